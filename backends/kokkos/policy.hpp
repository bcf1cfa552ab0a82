// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tile configurations of the Kokkos backend and the rule by which one of them becomes the default.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string_view>

#include "backends/kokkos/worker.hpp"
#include "kernels/lower.hpp"

namespace tilemamba::kokkos {

/// Time of a place of a chunk, empty ones included, of one head: in proportion to slope * (P N + rest), the rest being
/// what is done besides the products with states.
struct Cost {
  double slope, rest;
};

struct Policy {
  std::string_view name;
  Schedule schedule;
  int chunk;                    ///< Q
  int channels;                 ///< the most of a head that a worker holds
  std::int64_t segment_chunks;  ///< chunks of a segment, where a sequence is cut
  Cost costs[3];                ///< by Multiplies
};

/// What products multiply: fp32 in vectors up to AVX2's, fp32 in those of AVX-512, pairs of bf16 (bf16_worker.hpp).
enum Multiplies { narrow, wide, pairs };

/// The costs are fits to times on one thread of a Zen 4, N 64 to 512, P 64; bench/results shows what their choices
/// lose.
inline constexpr std::array policies = {
    Policy{"q64", Schedule::fused, 64, 128, 64, {{1.0, 2450}, {1.0, 1790}, {1.0, 2250}}},
    Policy{"q32", Schedule::fused, 32, 128, 128, {{1.11, 1100}, {1.06, 1310}, {1.16, 1440}}},
    Policy{"q64", Schedule::staged, 64, 128, 1, {{1.43, 1130}, {1.41, 1500}, {1.94, 960}}},
    Policy{"q128", Schedule::staged, 128, 128, 1, {{1.35, 2200}, {1.27, 2540}, {1.50, 1960}}},
    Policy{"r16", Schedule::recurrent, 16, 128, kernels::whole_sequence, {{1.9, 0}, {1.26, 600}, {2.32, 0}}},
};

[[nodiscard]] inline Multiplies multiplies([[maybe_unused]] const Problem& problem) {
#if defined(__AVX512BF16__)
  if (problem.x == DType::bf16) return pairs;
#endif
  return Register<true>::lanes == 16 ? wide : narrow;
}

/// A problem under a policy.
struct Plan {
  kernels::Arrangement arrangement;
  int channels;
  int workers;  ///< heads of a block, which share C.B^T
};

/// Slices of `padding` channels, the narrowest that is worth a block, that should be there before sequences stay whole.
/// A constant of the library and not the number of cores: where a sequence is cut decides its bits, and they must not
/// depend on how many threads there are.
inline constexpr std::int64_t enough_slices = 16;

[[nodiscard]] inline bool sequences_stay_whole(const Problem& problem) {
  const auto of_head = kernels::divide_up<std::int64_t>(problem.head_dim, padding);
  return !problem.options.batch_invariant && problem.sequences() * problem.heads * of_head >= enough_slices;
}

/// How heads are cut into slices and slices put together to blocks decides no bit, so it may depend on the threads:
/// the last block should be done as early as can be. A block's work, in multiplications a token: the scores, once; for
/// each slice the decays, about as dear as 16 channels of a chunk, and the products.
[[nodiscard]] inline Plan plan_of(const Problem& problem, const Policy& policy, int threads) {
  const std::int64_t segment = sequences_stay_whole(problem) ? kernels::whole_sequence : policy.segment_chunks;
  const std::int64_t sequences = problem.sequences();
  const std::int64_t segments =
      segment == kernels::whole_sequence || sequences == 0
          ? 1
          : kernels::divide_up(kernels::divide_up(problem.batch * problem.tokens, sequences), segment * policy.chunk);
  const std::int64_t heads_of_group = problem.heads / std::max<std::int64_t>(problem.groups, 1);
  Plan best{{policy.schedule, policy.chunk, segment}, 0, 0};
  double least = std::numeric_limits<double>::infinity();
  for (int workers = most_workers; workers > 0; workers /= 2) {
    for (std::int64_t cuts = 1; cuts <= kernels::divide_up<std::int64_t>(problem.head_dim, padding); ++cuts) {
      const std::int64_t channels = padded(static_cast<int>(kernels::divide_up(problem.head_dim, cuts)));
      if (channels > policy.channels) continue;
      const std::int64_t slices = heads_of_group * kernels::divide_up(problem.head_dim, channels);
      const std::int64_t blocks =
          sequences * segments * problem.groups * kernels::divide_up<std::int64_t>(slices, workers);
      const double products = static_cast<double>(channels) * static_cast<double>(2 * problem.state + policy.chunk / 2);
      const double block =
          static_cast<double>(problem.state) * policy.chunk / 2 + workers * (products + padding * policy.chunk);
      const double time = static_cast<double>(kernels::divide_up<std::int64_t>(blocks, threads)) * block;
      if (time < least) {
        least = time;
        best.channels = static_cast<int>(std::min(channels, problem.head_dim));
        best.workers = workers;
      }
    }
  }
  return best;
}

/// What a policy costs for sequences of the mean length, the empty places of their last chunks included.
[[nodiscard]] inline double cost_of(const Problem& problem, const Policy& policy) {
  const std::int64_t row = problem.packed_sequences ? std::max<std::int64_t>(*problem.packed_sequences, 1) : 1;
  const std::int64_t length = kernels::divide_up(problem.tokens, row);
  const auto of_state = static_cast<double>(problem.head_dim * problem.state);
  const bool fills_chunks = policy.schedule != Schedule::recurrent;
  const std::int64_t places =
      fills_chunks ? kernels::divide_up<std::int64_t>(length, policy.chunk) * policy.chunk : length;
  const Cost& place = policy.costs[multiplies(problem)];
  return static_cast<double>(places) * place.slope * (of_state + place.rest);
}

/// Index of the default: what costs least.
[[nodiscard]] inline std::size_t default_policy(const Problem& problem) {
  if (problem.options.batch_invariant) return 0;  // nothing but the policy may decide
  const auto cheaper = [&](const Policy& a, const Policy& b) { return cost_of(problem, a) < cost_of(problem, b); };
  return static_cast<std::size_t>(std::min_element(policies.begin(), policies.end(), cheaper) - policies.begin());
}

}  // namespace tilemamba::kokkos
