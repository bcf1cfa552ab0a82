// SPDX-License-Identifier: Apache-2.0
/// @file
/// The comparison that every numerical test rests on: does it see what it must see?
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/golden.hpp"

namespace tilemamba::golden {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

constexpr Bars bars{1e-3, 1e-3, 1e-3};

Problem problem_of(std::int64_t tokens) {
  Problem problem;
  problem.batch = 2;
  problem.tokens = tokens;
  problem.heads = 3;
  problem.head_dim = 4;
  problem.groups = 1;
  problem.state = 5;
  return problem;
}

/// Answers that are 1 everywhere, so that errors are easily said.
Answers ones(const Problem& problem, std::int64_t chunks = 2) {
  const auto H = problem.heads;
  const auto P = problem.head_dim;
  const auto N = problem.state;
  const auto size = [](std::int64_t count) { return static_cast<std::size_t>(count); };
  return {std::vector<double>(size(problem.batch * problem.tokens * H * P), 1.0),
          std::vector<double>(size(problem.batch * H * P * N), 1.0),
          std::vector<double>(size(chunks * H * P * N), 1.0)};
}

double& y_at(const Problem& problem, Answers& answers, std::int64_t batch, std::int64_t token, std::int64_t head) {
  return answers
      .y[static_cast<std::size_t>(((batch * problem.tokens + token) * problem.heads + head) * problem.head_dim)];
}

TEST(Compare, EqualAnswersHaveNoError) {
  const Problem problem = problem_of(130);
  const Shares shares = compare(problem, ones(problem), ones(problem), bars);
  EXPECT_EQ(shares.worst(), 0);
  EXPECT_TRUE(shares.pass());
}

TEST(Compare, MeasuresEachPartAgainstItsOwnNorm) {
  const Problem problem = problem_of(130);
  Answers answers = ones(problem);
  y_at(problem, answers, 1, 129, 2) += 0.01;          // in a block of 2 tokens: 8 values of 1
  (*answers.final_states)[3 * 20 + 7] += 0.02;        // sequence 1, head 0: 20 values of 1
  (*answers.chunk_states)[(3 + 1) * 20 + 3] += 0.03;  // chunk 1, head 1
  const Errors errors = measure(problem, answers, ones(problem));
  EXPECT_NEAR(errors.out.value, 0.01 / std::sqrt(2 * 130 * 3 * 4), 1e-12);
  EXPECT_NEAR(errors.block.value, 0.01 / std::sqrt(8), 1e-12);
  EXPECT_EQ(errors.block.place, "batch 1, head 2, tokens 128-129");
  EXPECT_NEAR(errors.state->value, 0.02 / std::sqrt(20), 1e-12);
  EXPECT_EQ(errors.state->place, "sequence 1, head 0");
  EXPECT_NEAR(errors.chunk_state->value, 0.03 / std::sqrt(20), 1e-12);
  EXPECT_EQ(errors.chunk_state->place, "chunk 1, head 1");
  const Shares shares = compare(problem, answers, ones(problem), bars);
  EXPECT_NEAR(shares.block.value, errors.block.value / 1e-3, 1e-9);
  EXPECT_NEAR(shares.chunk_state->value, errors.chunk_state->value / 1e-3, 1e-9);
  EXPECT_FALSE(shares.pass());
}

/// One row of 64 that is wrong by 2.5 bars of its norm stays below its block's bar; the row rule is there for it.
TEST(Compare, OneWrongRowIsSeen) {
  const Problem problem = problem_of(64);
  Answers answers = ones(problem);
  for (int i = 0; i < problem.head_dim; ++i) (&y_at(problem, answers, 0, 10, 1))[i] += 2.5e-3;
  const Shares shares = compare(problem, answers, ones(problem), bars);
  EXPECT_LT(shares.block.value, 1);
  // Alone among 64 rows its error is 8 times their RMS, so that 2 bars of its norm is the wider of the two limits.
  EXPECT_NEAR(shares.row.value, 2.5 / 2, 1e-9);
  EXPECT_EQ(shares.row.place, "batch 0, head 1, token 10");
}

/// The same error in every row is no outlier, and no business of the row rule.
TEST(Compare, RowsAreComparedWithTheirBlock) {
  const Problem problem = problem_of(64);
  Answers answers = ones(problem);
  for (double& value : answers.y) value += 0.1;
  EXPECT_NEAR(compare(problem, answers, ones(problem), bars).row.value, 1.0 / 6, 1e-9);
}

TEST(Compare, WhatIsNotFiniteFails) {
  const Problem problem = problem_of(65);
  for (const double bad : {nan, infinity, -infinity}) {
    Answers answers = ones(problem);
    y_at(problem, answers, 0, 64, 1) = bad;
    const Shares shares = compare(problem, answers, ones(problem), bars);
    EXPECT_EQ(shares.out.value, infinity);
    EXPECT_EQ(shares.block.value, infinity);
    EXPECT_EQ(shares.block.place, "batch 0, head 1, tokens 64-64");
    EXPECT_EQ(shares.row.value, infinity);
    answers = ones(problem);
    answers.final_states->back() = bad;
    EXPECT_EQ(compare(problem, answers, ones(problem), bars).state->value, infinity);
    answers = ones(problem);
    answers.chunk_states->front() = bad;
    EXPECT_EQ(compare(problem, answers, ones(problem), bars).chunk_state->value, infinity);
    // A right answer that is not finite is no right answer.
    EXPECT_EQ(compare(problem, ones(problem), answers, bars).chunk_state->value, infinity);
  }
}

TEST(Compare, WhereTheRightAnswerIsZeroTheAnswerMustBe) {
  const Problem problem = problem_of(64);
  Answers right = ones(problem);
  for (int i = 0; i < 20; ++i) (*right.final_states)[static_cast<std::size_t>(i)] = 0;
  EXPECT_EQ(compare(problem, right, right, bars).worst(), 0);
  Answers answers = right;
  (*answers.final_states)[4] = 1e-30;
  EXPECT_EQ(compare(problem, answers, right, bars).state->value, infinity);
}

TEST(Compare, ABarOfZeroAllowsNoError) {
  const Problem problem = problem_of(64);
  Answers answers = ones(problem);
  EXPECT_EQ(compare(problem, answers, ones(problem), {}).worst(), 0);
  answers.y[0] += 1e-15;
  EXPECT_EQ(compare(problem, answers, ones(problem), {}).out.value, infinity);
}

TEST(Compare, NothingIsComparedWithNothing) {
  const Problem problem = problem_of(0);
  EXPECT_EQ(compare(problem, ones(problem, 0), ones(problem, 0), bars).worst(), 0);
}

TEST(Compare, RefusesAnswersOfAnotherSize) {
  const Problem problem = problem_of(64);
  Answers answers = ones(problem);
  answers.y.pop_back();
  EXPECT_THROW(static_cast<void>(measure(problem, answers, ones(problem))), Error);
  answers = ones(problem);
  answers.final_states.reset();
  EXPECT_THROW(static_cast<void>(measure(problem, answers, ones(problem))), Error);
  EXPECT_THROW(static_cast<void>(measure(problem, ones(problem, 3), ones(problem, 2))), Error);
}

TEST(Compare, BarsAreHalfAsMuchAgain) {
  const Errors errors{{1e-3, ""}, {2e-3, ""}, Worst{3e-3, ""}, Worst{4e-3, ""}};
  const Bars wide = bars_from(errors, DType::bf16);
  EXPECT_DOUBLE_EQ(wide.out, 1.5e-3);
  EXPECT_DOUBLE_EQ(wide.block, 3e-3);
  EXPECT_DOUBLE_EQ(wide.state, 6e-3);
  EXPECT_DOUBLE_EQ(bars_from({{1e-9, ""}, {1e-9, ""}, {}, {}}, DType::f32).out, 2e-6);
}

TEST(Gather, FollowsStridesAndTypes) {
  // 1, -2, 65504 and the smallest subnormal in f16; a row of two is skipped between them.
  const std::vector<std::uint16_t> halves = {0x3c00, 0xc000, 0xffff, 0xffff, 0x7bff, 0x0001};
  Arguments arguments;
  static_cast<Layout&>(arguments.y) = dense(DType::f16, {1, 2, 1, 2});
  arguments.y.strides = {8, 4, 2, 1};
  arguments.y.data = const_cast<std::uint16_t*>(halves.data());
  EXPECT_EQ(gather(arguments).y, (std::vector<double>{1, -2, 65504, 0x1p-24}));
}

TEST(GuardedMemory, SeesWritesOnBothSides) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{6}, std::size_t{4096}}) {
    GuardedMemory memory(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % 256, 0u);
    std::memset(memory.data(), 0, bytes);
    EXPECT_TRUE(memory.intact());
    const std::byte before = memory.data()[-1];
    memory.data()[-1] = std::byte{0xff};  // poison itself, written to the wrong place
    EXPECT_FALSE(memory.intact());
    memory.data()[-1] = before;
    EXPECT_TRUE(memory.intact());
    memory.data()[bytes] = std::byte{0xff};
    EXPECT_FALSE(memory.intact());
  }
}

TEST(GuardedMemory, PoisonAndGuardsAreNaNInEveryType) {
  GuardedMemory memory(16);
  for (const std::ptrdiff_t offset : {0, 4, -4, 16}) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      Arguments arguments;
      static_cast<Layout&>(arguments.y) = dense(dtype, {1});
      arguments.y.data = memory.data() + offset;
      EXPECT_TRUE(std::isnan(gather(arguments).y.front())) << name(dtype) << " at " << offset;
    }
  }
}

TEST(GuardedOutputs, HaveTheShapesOfTheCall) {
  std::vector<std::int32_t> ends = {0, 40, 40, 100};
  Arguments inputs;
  static_cast<Layout&>(inputs.x) = dense(DType::bf16, {1, 100, 3, 4});
  static_cast<Layout&>(inputs.B) = dense(DType::bf16, {1, 100, 1, 5});
  Options options;
  options.chunk_states_every = 16;
  const GuardedOutputs rows(inputs, options, true);
  EXPECT_EQ(rows.arguments().y.dtype, DType::bf16);
  EXPECT_EQ(rows.arguments().y.shape, (Extents{1, 100, 3, 4, 0}));
  EXPECT_EQ(rows.arguments().final_states->shape, (Extents{1, 3, 4, 5, 0}));
  EXPECT_EQ(rows.arguments().chunk_states->shape, (Extents{1, 6, 3, 4, 5}));
  inputs.cu_seqlens = Tensor{dense(DType::i32, {4}), ends.data()};
  const GuardedOutputs packed(inputs, options, true);
  EXPECT_EQ(packed.arguments().final_states->shape, (Extents{3, 3, 4, 5, 0}));
  EXPECT_EQ(packed.arguments().chunk_states->shape, (Extents{2 + 0 + 3, 3, 4, 5, 0}));
  // Entries out of order are the library's to name; here they must not make memory without end.
  ends = {0, 2147483647, -5, 100};
  EXPECT_LE(GuardedOutputs(inputs, options, true).arguments().chunk_states->shape[0], 6);
  EXPECT_FALSE(GuardedOutputs(inputs, {}, false).arguments().final_states.has_value());
}

}  // namespace
}  // namespace tilemamba::golden
