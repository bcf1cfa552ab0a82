// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tile configurations of the mma.sync backend and the rule by which one of them becomes the default.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "kernels/lower.hpp"

namespace tilemamba::cuda::sm80 {

/// The tiles of a kernel. A block has workers * channels / 16 * parts warps.
struct Tiling {
  int chunk;       ///< Q
  int channels;    ///< of a head that a worker holds
  int state;       ///< columns of the state that a warp holds: 64 registers for 128
  int parts;       ///< warps that share the columns of the same channels
  int workers;     ///< slices of heads in a block, which share C.B^T
  int blocks = 1;  ///< of a multiprocessor that registers are kept for (the walk)

  [[nodiscard]] constexpr int columns() const { return state * parts; }
  [[nodiscard]] constexpr int warps() const { return workers * channels / 16 * parts; }
};

/// Bytes of shared memory of a block of the kernel that computes outputs; the others need no more than `narrow`. The
/// kernels' layouts decide: instances.cuh has them compared.
struct SharedMemory {
  unsigned narrow;
  unsigned wide;  ///< where y is fp32 and x is not
  unsigned gate;  ///< more where there is a gate

  [[nodiscard]] constexpr unsigned bytes(const Problem& problem) const {
    const bool is_wide = problem.y == DType::f32 && problem.x != DType::f32;
    return (is_wide ? wide : narrow) + (problem.z ? gate : 0);
  }
  friend constexpr bool operator==(const SharedMemory&, const SharedMemory&) = default;
};

struct Policy {
  std::string_view name;  ///< chunk, columns of the state, workers
  Schedule schedule;
  DType x;
  Tiling out;    ///< of the kernel that computes outputs
  Tiling state;  ///< of the one that only sums states: any number of columns, a block for each `state` of them
  SharedMemory shared_memory;
};

/// What a block may have on the smallest devices (8.6, 8.9, 12.0). Every type has a policy, staged for N up to 512,
/// that fits.
inline constexpr unsigned least_shared_memory = 99 * 1024;

/// For each type and schedule in the order of preference among those that the state fits in.
inline constexpr auto policies = std::to_array<Policy>({
    {"q64n64w1", Schedule::fused, DType::bf16, {64, 64, 64, 1, 1}, {64, 64, 64, 1, 1}, {69632, 78848, 16384}},
    {"q64n128w1", Schedule::fused, DType::bf16, {64, 64, 128, 1, 1}, {64, 64, 64, 1, 1}, {102400, 111616, 16384}},
    {"q64n128w2", Schedule::fused, DType::bf16, {64, 64, 128, 1, 2}, {64, 64, 64, 1, 1}, {139264, 157696, 32768}},
    {"q64n256", Schedule::fused, DType::bf16, {64, 64, 128, 2, 1}, {64, 64, 64, 1, 1}, {188416, 197632, 16384}},
    {"q32n256", Schedule::fused, DType::bf16, {32, 64, 128, 2, 1}, {32, 64, 64, 1, 1}, {90752, 95360, 8192}},
    {"q32n512", Schedule::fused, DType::bf16, {32, 32, 128, 4, 1}, {32, 64, 64, 1, 1}, {159744, 161792, 5120}},
    {"q64n128w2", Schedule::staged, DType::bf16, {64, 64, 128, 1, 2}, {64, 64, 128, 1, 1}, {84992, 103424, 16384}},
    {"q32n512", Schedule::staged, DType::bf16, {32, 32, 128, 4, 1}, {32, 64, 128, 1, 1}, {90368, 92416, 2560}},
    {"q64n128w2", Schedule::fused, DType::f16, {64, 64, 128, 1, 2}, {64, 64, 64, 1, 1}, {139264, 157696, 32768}},
    {"q32n512", Schedule::fused, DType::f16, {32, 32, 128, 4, 1}, {32, 64, 64, 1, 1}, {159744, 161792, 5120}},
    {"q64n128w2", Schedule::staged, DType::f16, {64, 64, 128, 1, 2}, {64, 64, 128, 1, 1}, {84992, 103424, 16384}},
    {"q32n512", Schedule::staged, DType::f16, {32, 32, 128, 4, 1}, {32, 64, 128, 1, 1}, {90368, 92416, 2560}},
    {"q32n128", Schedule::fused, DType::f32, {32, 64, 64, 2, 1}, {32, 64, 64, 1, 1}, {104960, 105472, 16384}},
    {"q16n512", Schedule::fused, DType::f32, {16, 16, 64, 8, 1}, {16, 64, 128, 1, 1}, {145664, 145664, 2560}},
    {"q32n128", Schedule::staged, DType::f32, {32, 64, 128, 1, 1}, {32, 64, 64, 1, 1}, {54272, 54784, 8192}},
    {"q16n512", Schedule::staged, DType::f32, {16, 16, 64, 8, 1}, {16, 64, 128, 1, 1}, {78080, 78080, 1280}},
});

/// Where bits must not depend on the company that a sequence keeps, nor on the device.
inline constexpr std::int64_t invariant_segment_tokens = 4096;

/// Warps of the walk that a multiprocessor's registers have room for.
inline constexpr int warps_at_once = 8;

/// A problem under a policy on a device of so many multiprocessors. Where a sequence is cut, into as many segments as
/// fill the device once: a second round of blocks would cost as much as the first.
[[nodiscard]] inline kernels::Arrangement arrangement_of(const Problem& problem, const Policy& policy,
                                                         int multiprocessors) {
  if (policy.schedule == Schedule::staged) return {policy.schedule, policy.out.chunk, 1};
  const std::int64_t chunk = policy.out.chunk;
  if (problem.options.batch_invariant) return {policy.schedule, policy.out.chunk, invariant_segment_tokens / chunk};
  const std::int64_t slices = kernels::divide_up<std::int64_t>(problem.head_dim, policy.out.channels) *
                              (problem.groups == 0 ? 0 : problem.heads / problem.groups);
  const std::int64_t blocks = problem.groups * kernels::divide_up<std::int64_t>(slices, policy.out.workers);
  const std::int64_t chunks = std::max<std::int64_t>(1, kernels::divide_up(problem.tokens, chunk));
  const std::int64_t room = std::int64_t{multiprocessors} * std::max(1, warps_at_once / policy.out.warps());
  if (problem.packed_sequences) {  // of unknown lengths: pieces of the size that would fill the device if all were one
    const std::int64_t piece = kernels::divide_up<std::int64_t>(chunks * blocks, room);
    return {policy.schedule, policy.out.chunk, std::max<std::int64_t>(1, piece)};
  }
  const std::int64_t walks = std::max<std::int64_t>(1, problem.batch * blocks);
  const std::int64_t segments = std::max<std::int64_t>(1, room / walks);
  return {policy.schedule, policy.out.chunk, kernels::divide_up(chunks, segments)};
}

/// Why a policy of x's type cannot run a problem on a device that gives a block so much shared memory; empty: it can.
[[nodiscard]] inline std::string why_not(const Policy& policy, const Problem& problem, unsigned most_shared_memory) {
  if (problem.state > policy.out.columns())
    return "its state has " + std::to_string(policy.out.columns()) + " columns, N is " + std::to_string(problem.state);
  if (const unsigned bytes = policy.shared_memory.bytes(problem); bytes > most_shared_memory) {
    return "a block needs " + std::to_string(bytes) + " bytes of shared memory, the device gives " +
           std::to_string(most_shared_memory);
  }
  return "";
}

}  // namespace tilemamba::cuda::sm80
