// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tile configurations of the Kokkos backend and the rule by which one of them becomes the default.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "kernels/lower.hpp"

namespace tilemamba::kokkos {

struct Policy {
  std::string_view name;
  Schedule schedule;
  int chunk;                    ///< Q
  int channels;                 ///< the most of a head that a worker holds
  int workers;                  ///< slices of heads in a block, which share C.B^T
  std::int64_t segment_chunks;  ///< chunks of a segment where a sequence is cut
};

/// In the order of preference; `take` may prefer a later one. Names: chunk, workers.
inline constexpr std::array policies = {
    Policy{"q64w4", Schedule::fused, 64, 128, 4, 64},    //
    Policy{"q64w1", Schedule::fused, 64, 128, 1, 64},    //
    Policy{"q32w2", Schedule::fused, 32, 64, 2, 128},    //
    Policy{"q64w4", Schedule::staged, 64, 128, 4, 1},    //
    Policy{"q128w4", Schedule::staged, 128, 128, 4, 1},  //
    Policy{"r16w1", Schedule::recurrent, 16, 128, 1, kernels::whole_sequence},
};

/// Blocks that the fused schedule should have to keep a CPU's cores busy. A constant of the library and not the number
/// of cores: results must not depend on how many threads there are.
inline constexpr std::int64_t enough_blocks = 16;

/// A problem under a policy.
struct Plan {
  kernels::Arrangement arrangement;
  int channels;
  int workers;
};

[[nodiscard]] inline std::int64_t blocks_per_segment(const Problem& problem, const Policy& policy) {
  const std::int64_t slices =
      kernels::divide_up<std::int64_t>(problem.head_dim, policy.channels) * (problem.heads / problem.groups);
  return problem.sequences() * problem.groups * kernels::divide_up<std::int64_t>(slices, policy.workers);
}

/// One segment a sequence where that gives enough blocks. Under batch_invariant nothing but the policy may decide.
[[nodiscard]] inline Plan plan_of(const Problem& problem, const Policy& policy) {
  const bool whole = !problem.options.batch_invariant && blocks_per_segment(problem, policy) >= enough_blocks;
  return {{policy.schedule, policy.chunk, whole ? kernels::whole_sequence : policy.segment_chunks},
          static_cast<int>(std::min<std::int64_t>(policy.channels, problem.head_dim)),
          policy.workers};
}

/// Index of the default: four heads a block share C.B^T, unless that leaves too few blocks.
[[nodiscard]] inline std::size_t default_policy(const Problem& problem) {
  if (problem.options.batch_invariant) return 0;
  return blocks_per_segment(problem, policies[0]) >= enough_blocks ? 0 : 1;
}

}  // namespace tilemamba::kokkos
