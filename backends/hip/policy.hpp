// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tile configurations and the rule by which one of them becomes the default.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

#include "backends/hip/target.hpp"
#include "kernels/lower.hpp"

namespace tilemamba::hip {

/// The tiles of a kernel. A block has workers * channels / 16 * parts waves.
struct Tiling {
  int chunk;     ///< Q
  int channels;  ///< of a head that a worker holds
  int state;     ///< columns of the state that a wave holds
  int parts;     ///< waves that share the columns of the same channels
  int workers;   ///< slices of heads in a block, which share C.B^T

  [[nodiscard]] constexpr int columns() const { return state * parts; }
  [[nodiscard]] constexpr int waves() const { return workers * channels / 16 * parts; }
};

struct Policy {
  std::string_view name;  ///< columns of the state
  Schedule schedule;
  DType x;
  Tiling out;    ///< of the kernel that computes outputs
  Tiling state;  ///< of the one that only sums states: any number of columns, a block for each `state` of them
};

/// Of a kind of device, for each type in the order of preference among those that the state fits in. A block's local
/// memory is 64 KiB on all of them, which leaves no room for 512 columns in fp32. None has been timed.
template <class Target>
inline constexpr std::array<Policy, 0> policies_of{};

/// These, and then the same for the staged schedule, whose kernels share their chunks.
template <std::size_t count>
[[nodiscard]] constexpr std::array<Policy, 2 * count> and_staged(const std::array<Policy, count>& fused) {
  std::array<Policy, 2 * count> all{};
  for (std::size_t i = 0; i < count; ++i) {
    all[i] = all[count + i] = fused[i];
    all[count + i].schedule = Schedule::staged;
    all[count + i].state.chunk = fused[i].out.chunk;
  }
  return all;
}

/// A wave of 64 has 512 registers; 256 columns of the state take 64 of them, and half as many as an operand.
template <>
inline constexpr std::array policies_of<Cdna> = and_staged(std::array{
    Policy{"n128", Schedule::fused, DType::bf16, {32, 64, 128, 1, 2}, {32, 64, 128, 1, 1}},
    Policy{"n256", Schedule::fused, DType::bf16, {32, 64, 256, 1, 1}, {32, 64, 128, 1, 1}},
    Policy{"n512", Schedule::fused, DType::bf16, {16, 32, 256, 2, 1}, {32, 64, 128, 1, 1}},
    Policy{"n128", Schedule::fused, DType::f16, {32, 64, 128, 1, 2}, {32, 64, 128, 1, 1}},
    Policy{"n256", Schedule::fused, DType::f16, {32, 64, 256, 1, 1}, {32, 64, 128, 1, 1}},
    Policy{"n512", Schedule::fused, DType::f16, {16, 32, 256, 2, 1}, {32, 64, 128, 1, 1}},
    Policy{"n128", Schedule::fused, DType::f32, {16, 64, 128, 1, 1}, {16, 64, 128, 1, 1}},
    Policy{"n256", Schedule::fused, DType::f32, {16, 64, 256, 1, 1}, {16, 64, 128, 1, 1}},
});

/// A wave of 32 has 256 registers; 64 columns of the state take 32 of them, and operands are held twice. With 128
/// columns a wave, registers spill.
template <>
inline constexpr std::array policies_of<Rdna> = and_staged(std::array{
    Policy{"n128", Schedule::fused, DType::bf16, {32, 64, 64, 2, 1}, {32, 64, 128, 1, 1}},
    Policy{"n256", Schedule::fused, DType::bf16, {16, 64, 64, 4, 1}, {32, 64, 128, 1, 1}},
    Policy{"n512", Schedule::fused, DType::bf16, {16, 32, 64, 8, 1}, {32, 64, 128, 1, 1}},
    Policy{"n128", Schedule::fused, DType::f16, {32, 64, 64, 2, 1}, {32, 64, 128, 1, 1}},
    Policy{"n256", Schedule::fused, DType::f16, {16, 64, 64, 4, 1}, {32, 64, 128, 1, 1}},
    Policy{"n512", Schedule::fused, DType::f16, {16, 32, 64, 8, 1}, {32, 64, 128, 1, 1}},
    Policy{"n128", Schedule::fused, DType::f32, {16, 64, 64, 2, 1}, {16, 64, 64, 1, 1}},
    Policy{"n256", Schedule::fused, DType::f32, {16, 64, 64, 4, 1}, {16, 64, 64, 1, 1}},
});

/// Where bits must not depend on the company that a sequence keeps, nor on the device.
inline constexpr std::int64_t invariant_segment_tokens = 4096;

/// A problem under a policy on a device of so many compute units. A sequence is cut into as many segments as fill the
/// device once: a second round of blocks would cost as much as the first.
[[nodiscard]] inline kernels::Arrangement arrangement_of(const Problem& problem, const Policy& policy,
                                                         int compute_units) {
  if (policy.schedule == Schedule::staged) return {policy.schedule, policy.out.chunk, 1};
  const std::int64_t chunk = policy.out.chunk;
  if (problem.options.batch_invariant) return {policy.schedule, policy.out.chunk, invariant_segment_tokens / chunk};
  const std::int64_t slices = kernels::divide_up<std::int64_t>(problem.head_dim, policy.out.channels) *
                              (problem.groups == 0 ? 0 : problem.heads / problem.groups);
  const std::int64_t blocks = problem.groups * kernels::divide_up<std::int64_t>(slices, policy.out.workers);
  const std::int64_t chunks = std::max<std::int64_t>(1, kernels::divide_up(problem.tokens, chunk));
  if (problem.packed_sequences) {  // of unknown lengths: pieces of the size that would fill the device if all were one
    const std::int64_t piece = kernels::divide_up<std::int64_t>(chunks * blocks, compute_units);
    return {policy.schedule, policy.out.chunk, std::max<std::int64_t>(1, piece)};
  }
  const std::int64_t walks = std::max<std::int64_t>(1, problem.batch * blocks);
  const std::int64_t segments = std::max<std::int64_t>(1, compute_units / walks);
  return {policy.schedule, policy.out.chunk, kernels::divide_up(chunks, segments)};
}

/// Is this policy made for the problem's type and state size at all?
[[nodiscard]] inline bool suits(const Policy& policy, const Problem& problem) {
  return policy.x == problem.x && problem.state <= policy.out.columns();
}

}  // namespace tilemamba::hip
