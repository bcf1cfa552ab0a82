// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls that are made for their time, and what they cost at least: for the command line's `bench` and for bench/.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include <tilemamba/tilemamba.hpp>

#include "core/golden.hpp"

namespace tilemamba::workload {

struct Shape {
  std::int64_t batch = 0, tokens = 0, heads = 0, head_dim = 0, groups = 0, state = 0;
  std::int64_t sequences = 0;  ///< packed in the one row of tokens; 0: none are
  friend bool operator==(const Shape&, const Shape&) = default;
};

/// How much of the state is left after a token. published: dt = softplus(randn), A = -U(1, 16). slow: half of the heads
/// keep theirs for thousands of tokens (|A dt| <= 1e-4), the others for about a hundred.
enum class Decay : std::uint8_t { published, slow };

/// The problem that such a call poses: one dtype throughout, D per head, f32 final states and, unless it is packed, f32
/// initial states.
[[nodiscard]] Problem problem_of(const Shape& shape, DType dtype);

/// Where packed sequences begin, and the end: most are short, a few long (the lengths grow by one factor from the first
/// to the last).
[[nodiscard]] std::vector<std::int32_t> packed_starts(std::int64_t tokens, std::int64_t sequences);

/// The inputs of a call: x, B, C = silu(randn), D and initial states as randn. Dense, in host memory. Each value comes
/// from a hash of its tensor's and its own number, so that others can make the same ones (bench/peers.py does).
class Inputs {
 public:
  /// @throws Error out_of_memory.
  Inputs(const Shape& shape, DType dtype, Decay decay = Decay::published);
  /// No outputs are set.
  [[nodiscard]] const Arguments& arguments() const noexcept { return arguments_; }

 private:
  using Draw = double (*)(double normal, double uniform, std::int64_t index);
  Tensor add(DType dtype, std::initializer_list<std::int64_t> shape, Draw draw);

  std::vector<golden::GuardedMemory> memory_;
  Arguments arguments_;
};

/// Whether a dense tensor in host memory (f32, f16 or bf16) has neither infinities nor NaN.
[[nodiscard]] bool all_finite(const Tensor& tensor);

/// Bytes that go through memory at least: x, y, B, C and dt, once. (States are left out.)
[[nodiscard]] double minimal_bytes(const Problem& problem);

/// Useful floating-point operations, a multiplication and an addition counted as two: the four products of the chunked
/// form with chunks of Q = 128, the causal half of each:
///
///     B T (G Q N + H Q P + 4 H P N)        scores; scores x values; state read and state update
///
/// The same for every schedule, whatever it really does; the decays and the skip are left out. (Below 128 tokens the
/// first two count more than there is to do.)
[[nodiscard]] double useful_flop(const Problem& problem);

}  // namespace tilemamba::workload
