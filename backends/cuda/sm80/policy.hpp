// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tile configurations of the mma.sync backend and the rule by which one of them becomes the default.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "kernels/lower.hpp"

namespace tilemamba::cuda::sm80 {

/// The tiles of a kernel. A block has workers * channels / 16 * parts warps.
struct Tiling {
  int chunk;             ///< Q
  int channels;          ///< of a head that a worker holds
  int state;             ///< columns of the state that a warp holds: 64 registers for 128
  int parts;             ///< warps that share the columns of the same channels
  int workers;           ///< slices of heads in a block, which share C.B^T
  int blocks = 1;        ///< of a multiprocessor that registers are kept for (the walk)
  bool in_turn = false;  ///< any number of columns, these many after these many

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

/// In the place of the stride of a state's rows: the state lies in blocks (tile.cuh). No tensor has it.
inline constexpr std::int64_t stride_of_blocks = std::numeric_limits<std::int64_t>::min();

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
    {"q64n64w1", Schedule::fused, DType::bf16, {64, 64, 64, 1, 1, 3}, {64, 64, 64, 1, 1}, {69632, 78848, 16384}},
    {"q64n128w1", Schedule::fused, DType::bf16, {64, 64, 128, 1, 1}, {64, 64, 64, 1, 1}, {102400, 111616, 16384}},
    {"q128w2", Schedule::staged, DType::bf16, {128, 64, 64, 1, 2, 1, true}, {128, 64, 64, 1, 1}, {140800, 140800, 0}},
    {"q64w1", Schedule::staged, DType::bf16, {64, 64, 64, 1, 1, 1, true}, {64, 64, 64, 1, 1}, {58880, 58880, 0}},
    {"q64n128w1", Schedule::fused, DType::f16, {64, 64, 128, 1, 1}, {64, 64, 64, 1, 1}, {102400, 111616, 16384}},
    {"q128w2", Schedule::staged, DType::f16, {128, 64, 64, 1, 2, 1, true}, {128, 64, 64, 1, 1}, {140800, 140800, 0}},
    {"q64w1", Schedule::staged, DType::f16, {64, 64, 64, 1, 1, 1, true}, {64, 64, 64, 1, 1}, {58880, 58880, 0}},
    {"q32n128", Schedule::fused, DType::f32, {32, 64, 64, 2, 1}, {32, 64, 64, 1, 1}, {104960, 105472, 16384}},
    {"q32w1", Schedule::staged, DType::f32, {32, 64, 64, 1, 1, 1, true}, {32, 64, 64, 1, 1}, {74752, 74752, 0}},
});

/// Where bits must not depend on the company that a sequence keeps, nor on the device.
inline constexpr std::int64_t invariant_segment_tokens = 4096;

/// A problem under a policy on a device of so many multiprocessors. Sequences are cut into as many segments as pay: the
/// device is filled by rounds of blocks, a segment is walked twice, and who begins one adds up the states of those
/// before it.
[[nodiscard]] inline kernels::Arrangement arrangement_of(const Problem& problem, const Policy& policy,
                                                         int multiprocessors) {
  if (policy.schedule == Schedule::staged)
    return {.schedule = policy.schedule, .chunk = policy.out.chunk, .stores_decays = false};
  const std::int64_t chunk = policy.out.chunk;
  if (problem.options.batch_invariant) return {policy.schedule, policy.out.chunk, invariant_segment_tokens / chunk};
  const std::int64_t slices = kernels::divide_up<std::int64_t>(problem.head_dim, policy.out.channels) *
                              (problem.groups == 0 ? 0 : problem.heads / problem.groups);
  const std::int64_t blocks = problem.groups * kernels::divide_up<std::int64_t>(slices, policy.out.workers);
  const std::int64_t chunks = std::max<std::int64_t>(1, kernels::divide_up(problem.tokens, chunk));
  const std::int64_t room = std::int64_t{multiprocessors} * std::max(policy.out.blocks, 8 / policy.out.warps());
  if (problem.packed_sequences) {  // of unknown lengths: pieces of the size that would fill the device if all were one
    const std::int64_t piece = kernels::divide_up<std::int64_t>(chunks * blocks, room);
    return {policy.schedule, policy.out.chunk, std::max<std::int64_t>(1, piece)};
  }
  const std::int64_t walks = std::max<std::int64_t>(1, problem.batch * blocks);
  // In chunks walked: one summed, the beginning of a block, a column of a state added.
  constexpr double sum = 0.4, begin = 1, add = 1.0 / 430;
  const auto time_of = [&](std::int64_t segments) {
    const auto rounds = static_cast<double>(kernels::divide_up(walks * segments, room));
    const double walk = rounds * (static_cast<double>(kernels::divide_up(chunks, segments)) + begin);
    return segments == 1 ? walk : walk * (1 + sum) + static_cast<double>(segments * policy.out.columns()) * add;
  };
  std::int64_t best = 1;
  for (std::int64_t segments = 2; segments <= std::min(chunks, 4 * room / walks); ++segments) {
    if (time_of(segments) < time_of(best)) best = segments;
  }
  return {policy.schedule, policy.out.chunk, kernels::divide_up(chunks, best)};
}

/// Why a policy of x's type cannot run a problem on a device that gives a block so much shared memory; empty: it can.
[[nodiscard]] inline std::string why_not(const Policy& policy, const Problem& problem, unsigned most_shared_memory) {
  if (!policy.out.in_turn && problem.state > policy.out.columns())
    return "its state has " + std::to_string(policy.out.columns()) + " columns, N is " + std::to_string(problem.state);
  if (const unsigned bytes = policy.shared_memory.bytes(problem); bytes > most_shared_memory) {
    return "a block needs " + std::to_string(bytes) + " bytes of shared memory, the device gives " +
           std::to_string(most_shared_memory);
  }
  return "";
}

}  // namespace tilemamba::cuda::sm80
