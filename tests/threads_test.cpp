// SPDX-License-Identifier: Apache-2.0
/// @file
/// The number of threads decides no bit. OMP_NUM_THREADS is read once a process, so this test runs itself again with
/// other counts.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>

#include "core/cpu.hpp"
#include "core/registry.hpp"
#include "tests/backend_test.hpp"

namespace tilemamba::test {
namespace {

/// FNV-1a.
void add(std::uint64_t& hash, const std::vector<std::byte>& bytes) {
  for (const std::byte byte : bytes) hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3u;
}

/// Not a test: what the other one runs in a process of its own.
TEST(Threads, DISABLED_Fingerprint) {
  for (const Target& target : targets()) {
    if (target.backend != "kokkos-openmp") continue;
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (const DType dtype : {DType::bf16, DType::f32}) {
      for (const bool packed : {false, true}) {
        Spec spec;
        spec.type(dtype);
        spec.batch = 2, spec.tokens = 500, spec.heads = 3, spec.head_dim = 72, spec.decay = Decay::slow, spec.z = true;
        if (packed) spec.pack({3, 400, 0, 90});
        Call call(spec);
        if (!run_on(target, call.arguments, call.options)) continue;
        add(hash, bits(call.arguments.y));
        add(hash, bits(*call.arguments.final_states));
      }
    }
    std::printf("fingerprint %s %016llx\n", testing::PrintToString(target).c_str(),
                static_cast<unsigned long long>(hash));
  }
}

std::string fingerprints(int threads) {
  std::string found;
  for (const std::string& line :
       run_again("OMP_NUM_THREADS=" + std::to_string(threads), "Threads.DISABLED_Fingerprint")) {
    if (line.rfind("fingerprint ", 0) == 0) found += line;
  }
  return found;
}

TEST(Threads, CountDecidesNoBit) {
  const auto expected = expected_backends();
  if (std::find(expected.begin(), expected.end(), "kokkos-openmp") == expected.end())
    GTEST_SKIP() << "no backend with threads";
  const std::string one = fingerprints(1);
  EXPECT_NE(one, "");
  // With many, heads are cut into slices.
  for (const int threads : {2, 3, 16, 40}) EXPECT_EQ(fingerprints(threads), one) << threads << " threads";
}

/// Not a test: says which level's module was loaded.
TEST(CpuLevels, DISABLED_Loaded) {
  for (const BackendInfo& backend : backends()) {
    if (backend.name == "kokkos-serial")
      std::printf("loaded %s\n", backend.can_run ? backend.devices.at(0).c_str() : "none");
    if (backend.name == "kokkos-serial") std::printf("reason %s\n", backend.reason.c_str());
  }
}

std::string loaded(const std::string& level) {
  std::string found;
  for (const std::string& line : run_again("TILEMAMBA_CPU_ISA=" + level, "CpuLevels.DISABLED_Loaded")) {
    if (line.rfind("loaded ", 0) == 0 || line.rfind("reason ", 0) == 0) found += line;
  }
  return found;
}

/// Every level that this CPU has is loaded when it is asked for, and right: the stored cases and some drawn ones. (All
/// other tests run on the best level.)
TEST(CpuLevels, EachIsRight) {
  const auto expected = expected_backends();
  if (std::find(expected.begin(), expected.end(), "kokkos-serial") == expected.end())
    GTEST_SKIP() << "no backend with levels";
  for (const CpuLevel& level : cpu_levels()) {
    const std::string name(level.name);
    SCOPED_TRACE(name);
    const std::string what = loaded(name);
    if (!level.supported) {
      EXPECT_NE(what.find("loaded none"), std::string::npos) << what;
      EXPECT_NE(what.find("this CPU does not have"), std::string::npos) << what;
      continue;
    }
    if (std::string(TILEMAMBA_TEST_CPU_LEVELS).find("," + name + ",") == std::string::npos) {  // not built
      EXPECT_NE(what.find("not part of this installation"), std::string::npos) << what;
      continue;
    }
    EXPECT_NE(what.find(", " + name + "\n"), std::string::npos) << what;
    // run_again fails this test if a test fails there.
    const auto lines = run_again("TILEMAMBA_TEST_DRAWS=0.25 TILEMAMBA_CPU_ISA=" + name,
                                 "On/GoldenOnBackend.*/kokkos_serial*:On/RandomProblems.*/kokkos_serial*:"
                                 "On/Properties.DocumentsDoNotReachEachOther/kokkos_serial_automatic*");
    EXPECT_TRUE(std::any_of(lines.begin(), lines.end(),
                            [](const std::string& line) { return line.rfind("[  PASSED  ]", 0) == 0; }));
  }
}

TEST(CpuLevels, UnknownNamesListTheValidOnes) {
  const auto expected = expected_backends();
  if (std::find(expected.begin(), expected.end(), "kokkos-serial") == expected.end())
    GTEST_SKIP() << "no backend with levels";
  const std::string what = loaded("z80");
  EXPECT_NE(what.find("loaded none"), std::string::npos) << what;
  EXPECT_NE(what.find("z80"), std::string::npos) << what;
  for (const CpuLevel& level : cpu_levels()) EXPECT_NE(what.find(level.name), std::string::npos) << what;
}

}  // namespace
}  // namespace tilemamba::test
