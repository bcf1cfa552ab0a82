// SPDX-License-Identifier: Apache-2.0
/// @file
/// The number of threads decides no bit. OMP_NUM_THREADS is read once a process, so this test runs itself again with
/// other counts.
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>

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
    for (const bool packed : {false, true}) {
      Spec spec;
      spec.type(DType::bf16);
      spec.batch = 2, spec.tokens = 500, spec.heads = 3, spec.head_dim = 48, spec.decay = Decay::slow;
      if (packed) spec.pack({3, 400, 0, 90});
      Call call(spec);
      if (!run_on(target, call.arguments, call.options)) continue;
      add(hash, bits(call.arguments.y));
      add(hash, bits(*call.arguments.final_states));
    }
    std::printf("fingerprint %s %016llx\n", testing::PrintToString(target).c_str(),
                static_cast<unsigned long long>(hash));
  }
}

std::string fingerprints(int threads) {
  std::array<char, 4096> self{};
  if (readlink("/proc/self/exe", self.data(), self.size() - 1) < 0) return {};
  const std::string command = "OMP_NUM_THREADS=" + std::to_string(threads) + " '" + self.data() +
                              "' --gtest_filter=Threads.DISABLED_Fingerprint --gtest_also_run_disabled_tests";
  std::FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return {};
  std::string found;
  std::array<char, 512> line{};
  while (std::fgets(line.data(), line.size(), pipe) != nullptr) {
    if (std::string(line.data()).rfind("fingerprint ", 0) == 0) found += line.data();
  }
  EXPECT_EQ(pclose(pipe), 0) << command;
  return found;
}

TEST(Threads, CountDecidesNoBit) {
  const auto expected = expected_backends();
  if (std::find(expected.begin(), expected.end(), "kokkos-openmp") == expected.end())
    GTEST_SKIP() << "no backend with threads";
  const std::string one = fingerprints(1);
  EXPECT_NE(one, "");
  for (const int threads : {2, 3}) EXPECT_EQ(fingerprints(threads), one) << threads << " threads";
}

}  // namespace
}  // namespace tilemamba::test
