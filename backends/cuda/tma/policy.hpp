// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a tile configuration is, what is compiled of each, and how sequences are cut into segments. The tables of
/// configurations are the generations' own.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "kernels/lower.hpp"

namespace tilemamba::cuda::tma {

inline constexpr int q = 64;  ///< tokens of a chunk
inline constexpr int channels_of_slice = 64;
inline constexpr int policy_workers = 2;  ///< slices of heads of a block, which share B, C and C.B^T

/// What a compiled kernel can do beyond the plain call; everything it cannot do costs it no register.
struct Features {
  bool documents = false;  ///< seq_idx
  bool rich = false;       ///< a gate, chunk_states
  bool wide = false;       ///< fp32 outputs
};
inline constexpr std::array variants = {Features{false, false, false}, Features{true, false, false},
                                        Features{true, true, false}, Features{true, true, true}};

/// The least variant that does all that a problem asks for.
[[nodiscard]] inline std::size_t variant_of(const Problem& problem) {
  if (problem.y != problem.x) return 3;
  if (problem.z || problem.chunk_states) return 2;
  return problem.seq_idx ? 1 : 0;
}

/// Rough times of a block alone on its multiprocessor (or of a cluster), in microseconds, for the choice of segments.
struct Costs {
  double walk_chunk, sum_chunk;  ///< of one chunk
  double walk, sum;              ///< of a launch, beside its chunks
  double gather;                 ///< of adding up one segment before
};

struct Policy {
  std::string_view name;  ///< chunk, columns of the state, workers, blocks of a cluster
  int state;              ///< columns of the state, padded
  int parts;              ///< blocks that share them: a cluster
  Costs costs;

  [[nodiscard]] constexpr int columns() const { return state / parts; }  ///< of a block
};

/// Where bits must not depend on the company that a sequence keeps, nor on the device.
inline constexpr std::int64_t invariant_segment_tokens = 4096;

/// How sequences are cut: a block walks `units` units of work, after each unit before has been summed by one.
struct Cutting {
  std::int64_t unit_chunks, units;
};

/// What a device runs at once, one block on each multiprocessor.
struct AtOnce {
  int blocks, clusters;
};

/// The cut that makes `sequences` sequences of `chunks` chunks each shortest; `clusters` of `parts` blocks walk each
/// segment. Units may be shorter than what a block walks, since the sums, which leave out a sequence's last walk, would
/// otherwise leave multiprocessors idle.
[[nodiscard]] inline Cutting best_cutting(std::int64_t sequences, std::int64_t chunks, std::int64_t clusters, int parts,
                                          const AtOnce& at_once, const Costs& costs) {
  constexpr std::int64_t most_units = 4;
  Cutting best{chunks, 1};
  double least = -1;
  const std::int64_t most = std::min<std::int64_t>(chunks, 2 * at_once.clusters);
  for (std::int64_t wanted = 1; wanted <= most; ++wanted) {
    for (std::int64_t units = 1; units <= (wanted == 1 ? 1 : most_units); ++units) {
      const std::int64_t unit = kernels::divide_up(chunks, wanted * units),
                         walks = kernels::divide_up(chunks, unit * units), summed = (walks - 1) * units;
      const auto rounds = [](std::int64_t work, int places) {
        return static_cast<double>(kernels::divide_up<std::int64_t>(work, places));
      };
      const auto length = static_cast<double>(unit);
      double time = rounds(sequences * walks * clusters, at_once.clusters) *
                    (length * static_cast<double>(units) * costs.walk_chunk + costs.walk);
      if (summed > 0) {
        time += rounds(sequences * summed * clusters * parts, at_once.blocks) * (length * costs.sum_chunk + costs.sum) +
                static_cast<double>(summed) * costs.gather;
      }
      if (least >= 0 && time >= least) continue;
      least = time;
      best = {unit, units};
    }
  }
  return best;
}

[[nodiscard]] inline Cutting cutting_of(const Problem& problem, const Policy& policy, const AtOnce& at_once) {
  if (problem.options.batch_invariant) return {invariant_segment_tokens / q, 1};
  const std::int64_t slices =
      kernels::divide_up<std::int64_t>(problem.head_dim, channels_of_slice) * problem.heads / problem.groups;
  const std::int64_t blocks = problem.groups * kernels::divide_up<std::int64_t>(slices, policy_workers);
  const std::int64_t chunks = std::max<std::int64_t>(1, kernels::divide_up<std::int64_t>(problem.tokens, q));
  // The lengths of packed sequences are not known: pieces as if all were one.
  const std::int64_t sequences = problem.packed_sequences ? 1 : std::max<std::int64_t>(1, problem.batch);
  Cutting cutting = best_cutting(sequences, chunks, blocks, policy.parts, at_once, policy.costs);
  if (problem.packed_sequences) cutting = {cutting.unit_chunks * cutting.units, 1};
  return cutting;
}
[[nodiscard]] inline kernels::Arrangement arrangement_of(const Cutting& cutting) {
  return {Schedule::fused, q, cutting.unit_chunks};
}

/// The problem as the workspace sees it: states of segments fill whole tiles.
[[nodiscard]] inline Problem padded(Problem problem, const Policy& policy) {
  problem.head_dim = kernels::divide_up<std::int64_t>(problem.head_dim, channels_of_slice) * channels_of_slice;
  problem.state = policy.state;
  return problem;
}

}  // namespace tilemamba::cuda::tma
