// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tile configurations of the Kokkos backend and the rule by which one of them becomes the default.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "kernels/lower.hpp"

namespace tilemamba::kokkos {

struct Policy {
  std::string_view name;
  Schedule schedule;
  int chunk;                    ///< Q
  int channels;                 ///< the most of a head that a worker holds
  std::int64_t segment_chunks;  ///< chunks of a segment, where a sequence is cut
  double token_cost;            ///< time per token of a chunk, empty places included, beside that of the first
};

/// The costs were measured with P 64, N 128 (bench/results); they depend little on the sizes.
inline constexpr std::array policies = {
    Policy{"q64", Schedule::fused, 64, 128, 64, 1.0},
    Policy{"q32", Schedule::fused, 32, 128, 128, 1.05},
    Policy{"q64", Schedule::staged, 64, 128, 1, 1.25},
    Policy{"q128", Schedule::staged, 128, 128, 1, 1.25},
    Policy{"r16", Schedule::recurrent, 16, 128, kernels::whole_sequence, 1.2},
};

/// A problem under a policy.
struct Plan {
  kernels::Arrangement arrangement;
  int channels;
  int workers;  ///< heads of a block, which share C.B^T
};

/// Slices of heads, of all sequences: what there is to do side by side where sequences are not cut.
[[nodiscard]] inline std::int64_t slices(const Problem& problem, const Policy& policy) {
  return problem.sequences() * problem.heads * kernels::divide_up<std::int64_t>(problem.head_dim, policy.channels);
}

/// Slices that should be there before sequences stay whole. A constant of the library and not the number of cores:
/// where a sequence is cut decides its bits, and they must not depend on how many threads there are.
inline constexpr std::int64_t enough_slices = 8;

/// @param threads decides how many heads make a block, and with that no bit: a head's arithmetic is the same in any
/// block.
[[nodiscard]] inline Plan plan_of(const Problem& problem, const Policy& policy, int threads) {
  const bool whole = !problem.options.batch_invariant && slices(problem, policy) >= enough_slices;
  const auto blocks = [&](int workers) {
    const std::int64_t of_group =
        slices(problem, policy) / std::max<std::int64_t>(problem.sequences() * problem.groups, 1);
    return problem.sequences() * problem.groups * kernels::divide_up<std::int64_t>(of_group, workers);
  };
  int workers = 4;
  while (threads > 1 && workers > 1 && blocks(workers) < 4 * threads) workers /= 2;  // few blocks leave threads idle
  return {{policy.schedule, policy.chunk, whole ? kernels::whole_sequence : policy.segment_chunks},
          static_cast<int>(std::min<std::int64_t>(policy.channels, problem.head_dim)),
          workers};
}

/// Index of the default: what costs least for sequences of the mean length, the empty places of their last chunks
/// included.
[[nodiscard]] inline std::size_t default_policy(const Problem& problem) {
  if (problem.options.batch_invariant) return 0;  // nothing but the policy may decide
  const std::int64_t row = problem.packed_sequences ? std::max<std::int64_t>(*problem.packed_sequences, 1) : 1;
  const std::int64_t length = kernels::divide_up(problem.tokens, row);
  const auto cost = [&](const Policy& policy) {
    const bool fills_chunks = policy.schedule != Schedule::recurrent;
    const std::int64_t places =
        fills_chunks ? kernels::divide_up<std::int64_t>(length, policy.chunk) * policy.chunk : length;
    return static_cast<double>(places) * policy.token_cost;
  };
  const auto cheaper = [&](const Policy& a, const Policy& b) { return cost(a) < cost(b); };
  return static_cast<std::size_t>(std::min_element(policies.begin(), policies.end(), cheaper) - policies.begin());
}

}  // namespace tilemamba::kokkos
