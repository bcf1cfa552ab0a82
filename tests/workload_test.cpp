// SPDX-License-Identifier: Apache-2.0
// What is measured: inputs that other programs make as well, and the sample by which answers are judged.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "core/golden.hpp"
#include "core/sample.hpp"
#include "core/tile/view.hpp"
#include "core/workload.hpp"

namespace tilemamba::workload {
namespace {

float value(const Tensor& tensor, std::int64_t i) { return tile::load(tensor.data, tensor.dtype, i); }

/// bench/peers.py makes these values, and so does a program that has only its description.
TEST(Workload, InputsAreThoseOfOthers) {
  const Inputs published({2, 300, 8, 64, 1, 128}, DType::bf16);
  const Arguments& a = published.arguments();
  EXPECT_EQ(value(a.x, 0), -0.17578125f);
  EXPECT_EQ(value(a.x, 2 * 300 * 8 * 64 - 1), -0.248046875f);  // of a repeat: only 65537 are drawn
  EXPECT_EQ(value(a.dt, 0), 1.5703125f);
  EXPECT_FLOAT_EQ(value(a.A, 7), -4.67826605f);
  EXPECT_EQ(value(a.B, 0), -0.126953125f);
  EXPECT_EQ(value(a.C, 0), -0.251953125f);
  EXPECT_FLOAT_EQ(value(*a.D, 0), 0.995014012f);
  EXPECT_FLOAT_EQ(value(*a.initial_states, 0), 1.21662867f);
  const Inputs slow({2, 300, 8, 64, 1, 128}, DType::bf16, Decay::slow);
  EXPECT_EQ(value(slow.arguments().dt, 0), 0.0246582031f);
  for (std::int64_t t = 0; t < 2 * 300; ++t) {
    EXPECT_LE(std::abs(value(slow.arguments().dt, t * 8) * value(slow.arguments().A, 0)), 1e-4f);
  }
}

TEST(Workload, PackedSequencesFillTheRow) {
  EXPECT_EQ(packed_starts(16384, 8), (std::vector<std::int32_t>{0, 64, 192, 449, 963, 1991, 4047, 8159, 16384}));
  for (const std::int64_t sequences : {1, 3, 64}) {
    const std::vector<std::int32_t> starts = packed_starts(1000, sequences);
    EXPECT_EQ(starts.size(), static_cast<std::size_t>(sequences + 1));
    EXPECT_TRUE(std::is_sorted(starts.begin(), starts.end()));
    EXPECT_EQ(starts.front(), 0);
    EXPECT_EQ(starts.back(), 1000);
  }
}

/// A right answer passes the sample, one with a wrong row does not, wherever its sequence begins.
TEST(Sample, SeesAWrongRow) {
  for (const std::int64_t sequences : {0, 3}) {
    const Inputs inputs({1, 50, 2, 16, 1, 8, sequences}, DType::f32);
    const golden::GuardedOutputs outputs(inputs.arguments(), {}, true);
    const Arguments& call = outputs.arguments();
    const Problem problem = Problem::of(call);
    const Sample sample(problem, call);
    scan(call);
    EXPECT_TRUE(sample.within(1e-5, call));
    EXPECT_LT(sample.errors_of(call).y.relative(), 1e-5);
    EXPECT_LT(sample.errors_of(call).final_states.relative(), 1e-5);
    auto* const y = static_cast<float*>(call.y.data);
    for (std::int64_t i = 0; i < 2 * 16; ++i) y[49 * 2 * 16 + i] += 10;
    EXPECT_FALSE(sample.within(1e-5, call));
    EXPECT_GT(sample.errors_of(call).y.relative(), 1e-2);
    for (std::int64_t i = 0; i < 2 * 16; ++i) y[49 * 2 * 16 + i] = NAN;
    EXPECT_FALSE(sample.within(1e9, call));
  }
}

TEST(Workload, OneValueThatIsNotFiniteIsSeen) {
  std::vector<float> values(3 << 20, 1.0f);
  Tensor tensor{dense(DType::f32, {3 << 20}), values.data()};
  EXPECT_TRUE(all_finite(tensor));
  values[values.size() - 1] = INFINITY;
  EXPECT_FALSE(all_finite(tensor));
}

}  // namespace
}  // namespace tilemamba::workload
