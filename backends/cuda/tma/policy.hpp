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
  bool chained = false;    ///< all segments of a sequence are a cluster, and hand states on: one launch
};
inline constexpr std::array variants = {Features{}, Features{true}, Features{true, true}, Features{true, true, true},
                                        Features{false, false, false, true}};

/// The least variant that does all that a problem asks for.
[[nodiscard]] inline std::size_t variant_of(const Problem& problem) {
  if (problem.y != problem.x) return 3;
  if (problem.z || problem.chunk_states) return 2;
  return problem.seq_idx ? 1 : 0;
}
inline constexpr std::size_t chained_variant = 4;

/// Rough times of a block alone on its multiprocessor (or of a cluster), in microseconds, for the choice of segments.
struct Costs {
  double walk_chunk, sum_chunk;  ///< of one chunk
  double walk, sum;              ///< of a launch, beside its chunks
  double again;                  ///< of a block, beside its chunks, where there was another before it
  double gather;                 ///< of adding up one segment before, while all multiprocessors do: L2 is shared
  double chain, chain_chunk;  ///< of a launch of chains, beside its chunks, and of one chunk, both times (as launches
                              ///< beside sums are counted)
  double hand_on;             ///< of a state, from a segment of a chain to the next
};

struct Policy {
  std::string_view name;  ///< chunk, columns of the state, workers, blocks of a cluster
  int state;              ///< columns of the state, padded
  int parts;              ///< blocks that share them: a cluster
  int sum_parts;          ///< the same of the first pass, where they are no cluster
  Costs costs;

  [[nodiscard]] constexpr int columns() const { return state / parts; }  ///< of a block
};

/// Where bits must not depend on the company that a sequence keeps, nor on the device.
inline constexpr std::int64_t invariant_segment_tokens = 4096;

/// How sequences are cut: a block walks `units` units of work, after each unit before has been summed by one. A
/// sequence's last walks are whole; of its first, which has what is left, each unit may be a walk of its own: in the
/// last `dealt` sequences (of a block's heads each) it is. Or units are segments, of which a cluster has all: so many
/// are `chained`, else 1.
struct Cutting {
  std::int64_t unit_chunks, units, dealt = 0;
  int chained = 1;
};

inline constexpr int most_blocks_of_cluster = 8;  ///< on every device that has clusters
/// How many clusters a device runs at once, one block on each multiprocessor; by the blocks of a cluster.
using AtOnce = std::array<int, most_blocks_of_cluster + 1>;

/// The cut that makes `sequences` sequences of `chunks` chunks each shortest; `clusters` clusters walk each segment and
/// as many times the policy's `sum_parts` blocks sum it, two chunks at a time. Units may be shorter than what a block
/// walks, since the sums, which leave out a sequence's last walk, would otherwise leave multiprocessors idle. Where
/// there is room for both, walks begin beside the sums. `chains`: larger clusters may have all segments of a sequence.
[[nodiscard]] inline Cutting best_cutting(std::int64_t sequences, std::int64_t chunks, std::int64_t clusters,
                                          const Policy& policy, const AtOnce& at_once, bool chains) {
  const Costs& costs = policy.costs;
  const int parts = policy.parts;
  constexpr std::int64_t most_units = 4, most_dealt = 16;
  Cutting best{chunks, 1};
  double least = -1;
  const auto rounds = [](std::int64_t work, std::int64_t places) {
    return static_cast<double>(kernels::divide_up(work, places));
  };
  const auto sums = [&](std::int64_t summed, std::int64_t unit, std::int64_t walking, std::int64_t gathered) {
    if (summed == 0) return 0.0;
    const double times = rounds(summed * policy.sum_parts, at_once[1]), chunks_of_unit = 2 * rounds(unit, 2),
                 share = std::min(1.0, static_cast<double>(walking) / at_once[parts]);
    return costs.sum - costs.again + times * (chunks_of_unit * costs.sum_chunk + costs.again) +
           static_cast<double>(gathered) * share * costs.gather;
  };
  const auto consider = [&](double time, const Cutting& cutting) {
    if (least >= 0 && time >= least) return;
    least = time;
    best = cutting;
  };
  const std::int64_t rows = sequences * clusters, most = std::min<std::int64_t>(chunks, 2 * at_once[parts]);
  for (std::int64_t wanted = 1; wanted <= most; ++wanted) {
    for (std::int64_t units = 1; units <= (wanted == 1 ? 1 : most_units); ++units) {
      const std::int64_t unit = kernels::divide_up(chunks, wanted * units),
                         walks = kernels::divide_up(chunks, unit * units),
                         summed = kernels::divide_up(chunks, unit) - units;
      const double times = rounds(rows * walks, at_once[parts]),
                   walk = static_cast<double>(unit * units) * costs.walk_chunk + costs.again;
      const bool beside = summed > 0 && rows * (summed * policy.sum_parts + walks * parts) <= at_once[1];
      consider(
          (beside ? 0.0 : costs.walk) - costs.again + times * walk + sums(rows * summed, unit, rows * walks, summed),
          {unit, units});
    }
  }
  // Where the first walks of all sequences do not fit in beside the others, those of some are dealt out. (Without
  // clusters calls became slower by it: what they wait for is memory, and neighbours no longer read B and C together.)
  const std::int64_t walks = kernels::divide_up<std::int64_t>(at_once[parts], rows),
                     dealt = rows * walks - at_once[parts], kept = rows - dealt;
  for (std::int64_t first = 2; parts > 1 && dealt > 0 && first <= most_dealt; ++first) {
    for (std::int64_t units = first; units <= (walks == 1 ? first : 2 * most_dealt); ++units) {
      const std::int64_t of_sequence = (walks - 1) * units + first, unit = kernels::divide_up(chunks, of_sequence);
      if (kernels::divide_up(chunks, unit) != of_sequence) continue;
      const double chunk = static_cast<double>(unit) * costs.walk_chunk,
                   whole = static_cast<double>(units) * chunk + costs.walk,
                   begun = static_cast<double>(first) * chunk + costs.walk +
                           rounds(dealt * first, kept) * (chunk + costs.again);
      const std::int64_t before = walks == 1 ? first - 1 : of_sequence - units;
      consider(std::max(whole, begun) + sums((walks == 1 ? dealt : rows) * before, unit, at_once[parts], before),
               {unit, units, dealt});
    }
  }
  for (int wanted = 2; chains && wanted <= std::min<std::int64_t>(chunks, most_blocks_of_cluster / parts); ++wanted) {
    const std::int64_t unit = kernels::divide_up<std::int64_t>(chunks, wanted);
    const auto segments = static_cast<int>(kernels::divide_up(chunks, unit));
    if (rows > at_once[segments * parts]) continue;  // they would take turns
    consider(
        costs.chain + static_cast<double>(unit) * costs.chain_chunk + static_cast<double>(segments - 1) * costs.hand_on,
        {unit, 1, 0, segments});
  }
  return best;
}

/// May a cluster have all segments of a sequence?
[[nodiscard]] inline bool may_chain(const Problem& problem) {
  return variant_of(problem) == 0 && !problem.packed_sequences && !problem.options.batch_invariant;
}

[[nodiscard]] inline Cutting cutting_of(const Problem& problem, const Policy& policy, const AtOnce& at_once) {
  if (problem.options.batch_invariant) return {invariant_segment_tokens / q, 1};
  const std::int64_t slices =
      kernels::divide_up<std::int64_t>(problem.head_dim, channels_of_slice) * problem.heads / problem.groups;
  const std::int64_t blocks = problem.groups * kernels::divide_up<std::int64_t>(slices, policy_workers);
  const std::int64_t chunks = std::max<std::int64_t>(1, kernels::divide_up<std::int64_t>(problem.tokens, q));
  // The lengths of packed sequences are not known: pieces as if all were one.
  const std::int64_t sequences = problem.packed_sequences ? 1 : std::max<std::int64_t>(1, problem.batch);
  Cutting cutting = best_cutting(sequences, chunks, blocks, policy, at_once, may_chain(problem));
  if (problem.packed_sequences) cutting = {cutting.unit_chunks * cutting.units, 1};
  return cutting;
}
[[nodiscard]] inline kernels::Arrangement arrangement_of(const Cutting& cutting) {
  return {Schedule::fused, q, cutting.unit_chunks, cutting.chained};
}

/// The problem as the workspace sees it: states of segments fill whole tiles.
[[nodiscard]] inline Problem padded(Problem problem, const Policy& policy) {
  problem.head_dim = kernels::divide_up<std::int64_t>(problem.head_dim, channels_of_slice) * channels_of_slice;
  problem.state = policy.state;
  return problem;
}

}  // namespace tilemamba::cuda::tma
