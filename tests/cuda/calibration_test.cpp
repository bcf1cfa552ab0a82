// SPDX-License-Identifier: Apache-2.0
// Is the machine that the host plays a right one? Trials of single instructions on random words: the machine must say
// what an H200 said when it was asked, and, where there is such a device, what that says now.
#include <algorithm>
#include <bit>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/tile/scalar.hpp"
#include "tests/cuda/calibration.hpp"
#include "tests/cuda/machine.hpp"

namespace tilemamba::test::cuda {
namespace {

// ----------------------------------------------------------------------------------------------------------------
// words

/// The same on every machine (splitmix64).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint32_t operator()() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return static_cast<std::uint32_t>(z >> 32);
  }
  std::uint32_t below(std::uint32_t n) { return (*this)() % n; }
  /// From -n to n.
  float whole(std::uint32_t n) { return static_cast<float>(below(2 * n + 1)) - static_cast<float>(n); }
  float usual() { return static_cast<float>(static_cast<std::int32_t>((*this)())) * 0x1p-30f; }

 private:
  std::uint64_t state_;
};

/// Of infinities and NaN, which hide what else is in a sum, seven out of eight are halved, and so finite.
std::uint32_t seldom_special(std::uint32_t bits, std::uint32_t exponent, Random& random) {
  const std::uint32_t lowest = exponent & ~(exponent << 1);
  return (bits & exponent) == exponent && random.below(8) != 0 ? bits ^ lowest : bits;
}
std::uint32_t word_of(Words words, Random& random) {
  const auto pair = [&](const auto& one) {
    const std::uint32_t low = one();
    return low | static_cast<std::uint32_t>(one()) << 16;
  };
  switch (words) {
    case Words::bits:
      break;
    case Words::f32:
      return seldom_special(random(), 0x7f800000u, random);
    case Words::bf16:
      return pair([&] { return seldom_special(random() >> 16, 0x7f80u, random); });
    case Words::f16:
      return pair([&] { return seldom_special(random() >> 16, 0x7c00u, random); });
    // Of so many bits that sums of 128 products are exact in fp32.
    case Words::f32_whole:
      return std::bit_cast<std::uint32_t>(random.whole(random.below(2) == 0 ? 1000 : 2));
    case Words::bf16_whole:
      return pair([&] { return tile::to_bf16(random.whole(100)); });
    case Words::f16_whole:
      return pair([&] { return tile::to_f16(random.whole(100)); });
    case Words::f32_usual:
      return std::bit_cast<std::uint32_t>(random.usual());
    case Words::bf16_usual:
      return pair([&] { return tile::to_bf16(random.usual()); });
    case Words::f16_usual:
      return pair([&] { return tile::to_f16(random.usual()); });
  }
  return random();
}
/// All NaN are one: which of them a result is, no kernel asks.
std::uint32_t with_one_nan(Words words, std::uint32_t word) {
  const auto half = [&](std::uint32_t bits, std::uint32_t infinity) {
    return (bits & 0x7fffu) > infinity ? 0x7fffu : bits;
  };
  const std::uint32_t low = word & 0xffffu, high = word >> 16;
  switch (words) {
    case Words::f32:
      return (word & 0x7fffffffu) > 0x7f800000u ? 0x7fffffffu : word;
    case Words::bf16:
      return half(low, 0x7f80u) | half(high, 0x7f80u) << 16;
    case Words::f16:
      return half(low, 0x7c00u) | half(high, 0x7c00u) << 16;
    default:
      return word;
  }
}

// ---------------------------------------------------------------------------------------------------------------
// trials

constexpr std::uint64_t seeds = 3;

std::vector<std::uint32_t> given_to(const Trial& trial, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::uint32_t> given(trial.words_given);
  for (std::uint32_t& word : given) word = word_of(trial.given, random);
  return given;
}
struct Answer {
  std::string fault;
  std::vector<std::uint32_t> said;
};
Answer ask(const Calibrated& whom, std::size_t trial, const std::vector<std::uint32_t>& given) {
  const Trial& its = whom.trials[trial];
  Answer answer{"", std::vector<std::uint32_t>(its.words_said, 0xdeadbeefu)};
  answer.fault = whom.run(trial, given.data(), answer.said.data());
  for (std::uint32_t& word : answer.said) word = with_one_nan(its.said, word);
  return answer;
}
/// FNV-1a of all that is said for all seeds; a fault has none.
std::uint64_t digest(const Calibrated& whom, std::size_t trial) {
  std::uint64_t sum = 0xcbf29ce484222325u;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const Answer answer = ask(whom, trial, given_to(whom.trials[trial], seed));
    if (!answer.fault.empty()) return 0;
    for (const std::uint32_t word : answer.said) {
      for (int byte = 0; byte < 4; ++byte) sum = (sum ^ (word >> 8 * byte & 0xffu)) * 0x100000001b3u;
    }
  }
  return sum;
}
std::size_t trial_of(std::string_view name) {
  const auto trials = machine_calibrated().trials;
  for (std::size_t k = 0; k < trials.size(); ++k) {
    if (trials[k].name == name) return k;
  }
  ADD_FAILURE() << "there is no trial of " << name;
  return 0;
}

/// The digests of what an H200 said (driver 580, CUDA 13.0).
struct Said {
  const char* trial;
  std::uint64_t digest;
};
constexpr Said h200[] = {
    {"wgmma, bf16, tiles of 64x128", 0x14853574d0b57c2a},
    {"wgmma, fp16, tiles of 64x128", 0x14853574d0b57c2a},
    {"wgmma, bf16, registers, N 64", 0x57389f102bc64d80},
    {"wgmma, bf16, registers, N 128", 0x8e2af90b964d425a},
    {"wgmma, fp16, registers, N 64", 0x57389f102bc64d80},
    {"wgmma, fp16, registers, N 128", 0x8e2af90b964d425a},
    {"wgmma, bf16, 16 tokens", 0x339e40c03dc6f4c0},
    {"wgmma, bf16, 32 tokens", 0xfa324407bdff6b08},
    {"wgmma, fp16, 16 tokens", 0x339e40c03dc6f4c0},
    {"wgmma, fp16, 32 tokens", 0xfa324407bdff6b08},
    {"single products, bf16", 0xa68d15adad702ac},
    {"single products, fp16", 0xe0108d14483f085b},
    {"mma.sync, bf16", 0xa09eae0bee6c5bf7},
    {"mma.sync, fp16", 0xa09eae0bee6c5bf7},
    {"mma.sync, tf32", 0x62cd7a105fb282cb},
    {"single products, tf32", 0x3fa6c66e92d4a0a0},
    {"tiles of mma.sync, bf16", 0xd5b791b866c4019f},
    {"tiles of mma.sync, fp16", 0xd5b791b866c4019f},
    {"tiles of mma.sync, fp32", 0x31453039d346f6f5},
    {"loads of 64 tokens", 0x4335455a746a965e},
    {"loads of 32 tokens", 0xfb064689a61382e0},
    {"loads of 16 tokens", 0x80c89b59968eeb0f},
    {"stores of 64 tokens", 0x1dd9194ae9eea57c},
    {"stores of 32 tokens", 0xa7a28eb7cb0536bd},
    {"stores of 16 tokens", 0x8a5d365a8a7eb36b},
    {"a store from column 80", 0xa5d3720401fd965},
    {"a store from token 50", 0xa5d3720401fd965},
    {"a store to head 3", 0xa5d3720401fd965},
    {"phases of a barrier", 0xcdb4e442f6017497},
    {"clusters of two", 0xeb917e9d92654cdb},
    {"clusters of four", 0x69edc757c700c9f1},
    {"launches in a sequence", 0x5d57a10d21ba5475},
    {"meetings", 0x237f2407c9c39f43},
    {"ldmatrix, stmatrix", 0x3a86fe73222ae07a},
    {"four words", 0xf193b0a5600b7063},
    {"pairs of bf16", 0x3a8ce05ef4ad2d32},
    {"pairs of fp16", 0xf6ce4b8273ae6f4b},
    {"fp16 made wider", 0x502dc71b74254e7f},
};

TEST(CudaCalibration, MachineSaysWhatTheDeviceSaid) {
  const auto trials = machine_calibrated().trials;
  for (std::size_t k = 0; k < trials.size(); ++k) {
    if (trials[k].agreement != Agreement::exact) continue;
    const auto said = std::find_if(std::begin(h200), std::end(h200),
                                   [&](const Said& its) { return std::string_view(its.trial) == trials[k].name; });
    ASSERT_NE(said, std::end(h200)) << trials[k].name;
    EXPECT_EQ(digest(machine_calibrated(), k), said->digest) << trials[k].name;
  }
}

/// What a device stops at, the machine complains of.
TEST(CudaCalibration, MachineRefusesWhatTheDeviceRefused) {
  const auto trials = machine_calibrated().trials;
  for (std::size_t k = 0; k < trials.size(); ++k) {
    if (trials[k].agreement != Agreement::refused) continue;
    EXPECT_NE(ask(machine_calibrated(), k, given_to(trials[k], 1)).fault, "") << trials[k].name;
  }
}

/// The comparison would see it if the machine were another.
TEST(CudaCalibration, MistakesAreSeen) {
  const struct {
    Mistake mistake;
    const char* trial;
  } all[] = {
      {Mistake::swizzle_of_64_bytes, "loads of 64 tokens"},
      {Mistake::swizzle_of_64_bytes, "stores of 16 tokens"},
      {Mistake::edges_not_filled, "loads of 32 tokens"},
      {Mistake::wrong_stride, "wgmma, bf16, tiles of 64x128"},
      {Mistake::wrong_stride, "wgmma, fp16, registers, N 128"},
      {Mistake::rows_swapped, "wgmma, bf16, registers, N 64"},
      {Mistake::rows_swapped, "wgmma, fp16, tiles of 64x128"},
      {Mistake::halves_swapped, "mma.sync, bf16"},
      {Mistake::halves_swapped, "mma.sync, tf32"},
      {Mistake::not_transposed, "ldmatrix, stmatrix"},
      {Mistake::not_transposed, "tiles of mma.sync, fp16"},
      {Mistake::matrices_swapped, "ldmatrix, stmatrix"},
      {Mistake::parity_swapped, "phases of a barrier"},
      {Mistake::bytes_miscounted, "phases of a barrier"},
      {Mistake::arrival_left_out, "phases of a barrier"},
      {Mistake::arrival_too_many, "phases of a barrier"},
      {Mistake::launch_not_waited_for, "launches in a sequence"},
      {Mistake::cluster_does_not_meet, "clusters of four"},
  };
  for (const auto& its : all) {
    const std::size_t trial = trial_of(its.trial);
    const std::uint64_t right = digest(machine_calibrated(), trial);
    EXPECT_NE(right, 0u) << its.trial;
    make(its.mistake);
    const std::uint64_t wrong = digest(machine_calibrated(), trial);
    make(Mistake::none);
    EXPECT_NE(wrong, right) << "mistake " << static_cast<int>(its.mistake) << " in " << its.trial;
  }
}

#ifdef TILEMAMBA_CUDA_CALIBRATION
float as_float(std::uint32_t word) { return std::bit_cast<float>(word); }

/// How far two results of real products may be apart: an instruction adds 16 products and what there was before, cut
/// below the last bit of the largest (2^-23 of it) on a device, rounded one by one (half as much) on the host; no
/// partial sum is larger than that of the magnitudes.
float sums_bound(const Trial& trial, float magnitudes) {
  return static_cast<float>(trial.terms) * 18.0f * 1.5f * 0x1p-23f * magnitudes;
}
/// ex2.approx and lg2.approx: 2^-22 of the result, and for log2 near one of 1 (PTX ISA); the host's is closer.
float curve_bound(float result) { return 0x1p-21f * std::max(1.0f, std::fabs(result)); }

class OnDevice : public testing::TestWithParam<std::size_t> {
 protected:
  void SetUp() override {
    if (const std::string reason = no_device(); !reason.empty()) GTEST_SKIP() << reason;
  }
};
TEST_P(OnDevice, SaysWhatTheMachineSays) {
  const Trial& trial = machine_calibrated().trials[GetParam()];
  if (trial.agreement == Agreement::refused) {
    // In a process of its own: after such a fault a process cannot use the device any more.
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const auto wrong = [] {
      return ask(device_calibrated(), GetParam(), given_to(machine_calibrated().trials[GetParam()], 1)).fault;
    };
    EXPECT_EXIT((std::fputs(wrong().c_str(), stderr), std::exit(0)), testing::ExitedWithCode(0), "the kernel failed");
    return;
  }
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const std::vector<std::uint32_t> given = given_to(trial, seed);
    const Answer device = ask(device_calibrated(), GetParam(), given),
                 machine = ask(machine_calibrated(), GetParam(), given);
    ASSERT_EQ(device.fault, "");
    ASSERT_EQ(machine.fault, "");
    std::vector<std::uint32_t> magnitudes;
    if (trial.agreement == Agreement::sums) {
      std::vector<std::uint32_t> of_given = given;
      for (std::uint32_t& word : of_given) word &= trial.given == Words::f32_usual ? 0x7fffffffu : 0x7fff7fffu;
      magnitudes = ask(machine_calibrated(), GetParam(), of_given).said;
    }
    std::size_t differ = 0;
    std::ostringstream some;
    float worst = 0.0f;
    for (std::size_t k = 0; k < device.said.size(); ++k) {
      bool same = device.said[k] == machine.said[k];
      if (!same && trial.agreement != Agreement::exact) {
        const float its = as_float(device.said[k]), others = as_float(machine.said[k]);
        const float bound =
            trial.agreement == Agreement::sums ? sums_bound(trial, as_float(magnitudes[k])) : curve_bound(others);
        worst = std::max(worst, std::fabs(its - others) / bound);
        same = std::fabs(its - others) <= bound;
      }
      if (!same && differ++ < 8)
        some << "; word " << std::dec << k << std::hex << ": " << device.said[k] << " and not " << machine.said[k];
    }
    EXPECT_EQ(differ, 0u) << trial.name << ", seed " << seed << ": of " << device.said.size()
                          << " words the device says" << some.str();
    if (trial.agreement != Agreement::exact) RecordProperty("worst_share_of_bound", std::to_string(worst));
  }
  if (trial.agreement == Agreement::exact) {
    const auto said = std::find_if(std::begin(h200), std::end(h200),
                                   [&](const Said& its) { return std::string_view(its.trial) == trial.name; });
    const std::uint64_t now = digest(device_calibrated(), GetParam());
    EXPECT_TRUE(said != std::end(h200) && said->digest == now)
        << "the record has another digest than {\"" << trial.name << "\", 0x" << std::hex << now << "}";
  }
}
std::vector<std::size_t> all_trials() {
  std::vector<std::size_t> all(machine_calibrated().trials.size());
  for (std::size_t k = 0; k < all.size(); ++k) all[k] = k;
  return all;
}
INSTANTIATE_TEST_SUITE_P(Calibration, OnDevice, testing::ValuesIn(all_trials()),
                         [](const testing::TestParamInfo<std::size_t>& its) {
                           std::string name = machine_calibrated().trials[its.param].name;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
                           return name;
                         });
#endif

}  // namespace
}  // namespace tilemamba::test::cuda
