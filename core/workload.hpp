// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls that are made for their time, and what they cost at least: for the command line's `bench` and for bench/.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include <tilemamba/tilemamba.hpp>

#include "core/golden.hpp"

namespace tilemamba::workload {

struct Shape {
  std::int64_t batch = 0, tokens = 0, heads = 0, head_dim = 0, groups = 0, state = 0;
  friend bool operator==(const Shape&, const Shape&) = default;
};

/// The inputs of a call with the published distribution: x, B, C = silu(randn), dt = softplus(randn), A = -U(1, 16); D
/// per head and initial states in f32. Dense, in host memory; the same bytes every time.
class Inputs {
 public:
  /// @throws Error out_of_memory.
  Inputs(const Shape& shape, DType dtype);
  /// No outputs are set.
  [[nodiscard]] const Arguments& arguments() const noexcept { return arguments_; }

 private:
  using Draw = double (*)(std::mt19937_64& random);
  Tensor add(DType dtype, std::initializer_list<std::int64_t> shape, Draw draw);

  std::mt19937_64 random_{20240531};
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

/// The processor as it calls itself; "CPU" where it does not.
[[nodiscard]] std::string processor_name();

}  // namespace tilemamba::workload
