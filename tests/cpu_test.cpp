// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the CPU backend asks of the machine: its instruction-set level, how many threads it may start, and whether its
/// caller is parallel already.
#include "core/cpu.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "backends/kokkos/threads.hpp"
#include "tests/backend_test.hpp"

namespace tilemamba::test {
namespace {

TEST(Cpu, TheLowestLevelIsAlwaysThere) {
  const std::vector<CpuLevel> levels = cpu_levels();
  ASSERT_FALSE(levels.empty());
  EXPECT_TRUE(levels.back().supported);
  // A CPU that has a level has those below it.
  for (std::size_t i = 1; i < levels.size(); ++i)
    EXPECT_GE(levels[i].supported, levels[i - 1].supported) << levels[i].name;
}

TEST(Cpu, QuotaIsRoundedUpToProcessors) {
  using kokkos::processors_of_quota;
  EXPECT_EQ(processors_of_quota("200000 100000"), 2);
  EXPECT_EQ(processors_of_quota("150000 100000"), 2);
  EXPECT_EQ(processors_of_quota("1 100000"), 1);
  for (const char* none : {"max 100000", "", "0 100000", "-1 100000", "100000", "100000 0", "nonsense"})
    EXPECT_EQ(processors_of_quota(none), std::nullopt) << none;
  EXPECT_EQ(processors_of_quota("1e30 1"), 65536);
}

TEST(Cpu, TightestGroupCounts) {
  const std::filesystem::path root = std::filesystem::path(testing::TempDir()) / "tilemamba_cgroup";
  std::filesystem::create_directories(root / "a" / "b");
  const auto limit = [&](const std::filesystem::path& folder, const char* text) {
    std::ofstream(folder / "cpu.max") << text;
  };
  const auto found = [&](const char* self) {
    std::istringstream group(self);
    return kokkos::processors_of_cgroup(group, root.string());
  };
  limit(root / "a", "300000 100000");
  limit(root / "a" / "b", "max 100000");
  EXPECT_EQ(found("0::/a/b\n"), 3);
  limit(root / "a" / "b", "100000 100000");
  EXPECT_EQ(found("0::/a/b\n"), 1);
  EXPECT_EQ(found("0::/a\n"), 3);
  EXPECT_EQ(found("0::/\n"), std::nullopt);
  EXPECT_EQ(found("1:cpu:/a\n"), std::nullopt);  // version 1 has no cpu.max
  EXPECT_EQ(found(""), std::nullopt);
  std::filesystem::remove_all(root);
}

#if defined(_OPENMP)
/// Inside a caller's parallel region each thread's call runs alone; the bits are the same.
class InsideParallelRegion : public BackendTest {};

TEST_P(InsideParallelRegion, GivesTheSameBits) {
  Spec spec;
  spec.type(DType::bf16);
  spec.batch = 2, spec.tokens = 200, spec.heads = 3, spec.head_dim = 32, spec.decay = Decay::slow;
  Call outside(spec);
  if (!run(outside)) return;
  std::vector<Call> inside;
  for (int i = 0; i < 4; ++i) inside.emplace_back(spec);
#pragma omp parallel for num_threads(4)
  for (int i = 0; i < 4; ++i) scan(inside[i].arguments, inside[i].options, GetParam().choice());
  for (const Call& call : inside) expect_same_outputs(call.arguments, outside.arguments);
}

std::vector<Target> cpu_targets() {
  std::vector<Target> result;
  for (const Target& target : targets()) {
    if (target.backend.rfind("kokkos-", 0) == 0) result.push_back(target);
  }
  return result;
}
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(InsideParallelRegion);
INSTANTIATE_TEST_SUITE_P(On, InsideParallelRegion, testing::ValuesIn(cpu_targets()), target_name);
#endif

}  // namespace
}  // namespace tilemamba::test
