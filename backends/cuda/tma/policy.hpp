// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a tile configuration is, what is compiled of each, and how sequences are cut into segments. The tables of
/// configurations are the generations' own.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string_view>

#include "kernels/lower.hpp"

namespace tilemamba::cuda::tma {

inline constexpr int q = 64;  ///< tokens of a chunk
inline constexpr int channels_of_slice = 64;
inline constexpr int policy_workers = 2;  ///< slices of heads of a block, which share B, C and C.B^T
/// Of a chunk, in memory: in blocks of 16 by 16, without those above the diagonal.
inline constexpr int floats_of_scores = q / 16 * (q / 16 + 1) / 2 * 16 * 16;

/// What a compiled kernel can do beyond the plain call; everything it cannot do costs it no register.
struct Features {
  bool documents = false;  ///< seq_idx
  bool rich = false;       ///< a gate, chunk_states
  bool wide = false;       ///< fp32 outputs
  bool chained = false;    ///< all segments of a sequence are a cluster, and hand states on: one launch
  bool scored = false;     ///< a launch before has made the scores, once for all heads of a group
};
inline constexpr std::array variants = {Features{},
                                        Features{true},
                                        Features{true, true},
                                        Features{true, true, true},
                                        Features{.chained = true},
                                        Features{.scored = true}};

/// The least variant that does all that a problem asks for.
[[nodiscard]] inline std::size_t variant_of(const Problem& problem) {
  if (problem.y != problem.x) return 3;
  if (problem.z || problem.chunk_states) return 2;
  return problem.seq_idx ? 1 : 0;
}
inline constexpr std::size_t chained_variant = 4, scored_variant = 5;

/// Times on an H200 in microseconds, for the choice of segments. All are fitted together to about 2500 times of bf16
/// calls that were cut by hand (128 to 262144 tokens, the published grid's and models' sizes, replayed in graphs), so
/// that what is chosen by them loses least: less than 1 % to the best cut tried, on average. Those of scores came
/// later: they separate the calls, of ten tried, that became faster by making scores first from those that became
/// slower.
struct Costs {
  double walk, walk_chunk;    ///< of a launch of walks, beside their chunks; of a chunk
  double sum, sum_chunk;      ///< the same of the first pass
  double again;               ///< of a block of either that follows another one, beside its chunks
  double gather;              ///< of adding up one segment before, while all multiprocessors do: L2 is shared
  double chain, chain_chunk;  ///< of a launch of chains, beside their chunks; of a chunk, which is gone over twice
  double hand_on;             ///< of a state, from a segment of a chain to the next
  double score = 0, score_chunk = 0;  ///< of a launch that makes scores, beside them; of a chunk's, by all blocks
  double scored_chunk = 0;            ///< of a walk's chunk whose scores are made
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
/// are `chained`, else 1. `scored`: scores are made before.
struct Cutting {
  std::int64_t unit_chunks, units, dealt = 0;
  int chained = 1;
  bool scored = false;
};

inline constexpr int most_blocks_of_cluster = 8;  ///< on every device that has clusters
/// How many clusters a device runs at once, one block on each multiprocessor; by the blocks of a cluster.
using AtOnce = std::array<int, most_blocks_of_cluster + 1>;

/// What is cut: sequences of `chunks` chunks, each for the heads of a cluster, and of how many groups their heads are.
struct Rows {
  std::int64_t count, chunks, groups;
};

/// What they take if they are cut so.
[[nodiscard]] inline double time_of(const Cutting& cutting, const Rows& its, const Policy& policy,
                                    const AtOnce& at_once) {
  const Costs& costs = policy.costs;
  const std::int64_t rows = its.count, chunks = its.chunks;
  const std::int64_t unit = cutting.unit_chunks, length = cutting.units, units = kernels::divide_up(chunks, unit);
  const auto rounds = [](std::int64_t work, std::int64_t at_a_time) {
    return static_cast<double>(kernels::divide_up(work, at_a_time));
  };
  // Who has a sequence's last chunk also writes its final state: about a chunk's time.
  const auto chunks_of = [&](std::int64_t begin, std::int64_t end) {
    return static_cast<double>(end == units ? chunks - begin * unit + 1 : (end - begin) * unit);
  };
  if (cutting.chained > 1) {
    return costs.chain + std::max(chunks_of(0, 1), chunks_of(units - 1, units)) * costs.chain_chunk +
           static_cast<double>(units - 1) * costs.hand_on;
  }
  // Of each sequence a first walk and `later` ones.
  const std::int64_t later = (units - 1) / length, first = units - later * length, dealt = cutting.dealt,
                     walks = rows * (later + 1), places = at_once[policy.parts],
                     summed = later == 0 ? dealt * (units - 1) : rows * (units - length);
  const double turns = dealt > 0 ? 1 : rounds(walks, places),
               full = std::min(1.0, static_cast<double>(walks) / static_cast<double>(places)),
               gather = costs.gather * full * std::max(1.0, turns / 2);
  const double chunk = cutting.scored ? costs.scored_chunk : costs.walk_chunk;
  const auto walk = [&](std::int64_t begin, std::int64_t end) {
    return static_cast<double>(begin) * gather + chunks_of(begin, end) * chunk;
  };
  // A sequence's last walk or the one before takes longest, or a first one that is followed by some that are dealt out.
  double longest = later == 0 ? walk(0, units) : walk(units - length, units);
  if (later == 1) longest = std::max(longest, walk(0, first));
  if (later > 1) longest = std::max(longest, walk(units - 2 * length, units - length));
  if (dealt > 0) {
    const double one = static_cast<double>(unit) * chunk + costs.again;
    longest = std::max(
        longest, walk(0, first) + rounds(dealt * first, rows - dealt) * one + static_cast<double>(first - 1) * gather);
  }
  // Launches whose blocks do not all find room at once take turns.
  double walking = costs.walk + longest + (turns - 1) * (static_cast<double>(unit * length) * chunk + costs.again);
  if (cutting.scored) walking += costs.score + static_cast<double>(its.groups * chunks) * costs.score_chunk;
  if (summed == 0) return walking;
  const double sum_turns = rounds(summed * policy.sum_parts, at_once[1]);
  return walking + costs.sum + sum_turns * 2 * rounds(unit, 2) * costs.sum_chunk + (sum_turns - 1) * costs.again;
}

/// The cut that takes least; the policy's `sum_parts` blocks sum each unit, two chunks at a time. Units may be shorter
/// than what a block walks, since the sums, which leave out a sequence's last walk, would otherwise leave
/// multiprocessors idle. `chains`: larger clusters may have all segments of a sequence. `scores`: they may be made
/// before.
[[nodiscard]] inline Cutting best_cutting(const Rows& its, const Policy& policy, const AtOnce& at_once, bool chains,
                                          bool scores) {
  constexpr std::int64_t most_units = 4, most_dealt = 16;
  const std::int64_t rows = its.count, chunks = its.chunks, places = at_once[policy.parts];
  Cutting best{};
  double least = std::numeric_limits<double>::infinity();
  const auto consider = [&](Cutting cutting) {
    for (const bool scored : {false, true}) {
      if (scored && (!scores || cutting.chained > 1)) break;
      cutting.scored = scored;
      const double time = time_of(cutting, its, policy, at_once);
      if (time >= least) continue;
      least = time;
      best = cutting;
    }
  };
  consider({chunks, 1});
  for (std::int64_t walks = 2; walks <= std::min(chunks, 2 * places); ++walks) {
    for (std::int64_t units = 1; units <= most_units; ++units)
      consider({kernels::divide_up(chunks, walks * units), units});
  }
  // Where the first walks of all sequences do not fit in beside the others, those of some are dealt out. (Without
  // clusters calls became slower by it: what they wait for is memory, and neighbours no longer read B and C together.)
  const std::int64_t walks = kernels::divide_up(places, rows), dealt = rows * walks - places;
  for (std::int64_t first = 2; policy.parts > 1 && dealt > 0 && first <= most_dealt; ++first) {
    for (std::int64_t units = first; units <= (walks == 1 ? first : 2 * most_dealt); ++units) {
      const std::int64_t of_sequence = (walks - 1) * units + first, unit = kernels::divide_up(chunks, of_sequence);
      if (kernels::divide_up(chunks, unit) == of_sequence) consider({unit, units, dealt});
    }
  }
  for (std::int64_t wanted = 2;
       chains && wanted <= std::min<std::int64_t>(chunks, most_blocks_of_cluster / policy.parts); ++wanted) {
    const std::int64_t unit = kernels::divide_up(chunks, wanted);
    const auto segments = static_cast<int>(kernels::divide_up(chunks, unit));
    if (rows <= at_once[segments * policy.parts]) consider({unit, 1, 0, segments});  // else they would take turns
  }
  return best;
}

/// May scores be made before, where blocks share a state's columns?
[[nodiscard]] inline bool may_score(const Problem& problem) {
  return variant_of(problem) == 0 && !problem.options.batch_invariant;
}
/// May a cluster have all segments of a sequence?
[[nodiscard]] inline bool may_chain(const Problem& problem) { return may_score(problem) && !problem.packed_sequences; }

[[nodiscard]] inline Cutting cutting_of(const Problem& problem, const Policy& policy, const AtOnce& at_once) {
  if (problem.options.batch_invariant) return {invariant_segment_tokens / q, 1};
  const std::int64_t slices =
      kernels::divide_up<std::int64_t>(problem.head_dim, channels_of_slice) * problem.heads / problem.groups;
  const std::int64_t blocks = problem.groups * kernels::divide_up<std::int64_t>(slices, policy_workers);
  const std::int64_t chunks = std::max<std::int64_t>(1, kernels::divide_up<std::int64_t>(problem.tokens, q));
  // The lengths of packed sequences are not known: pieces as if all were one.
  const std::int64_t sequences = problem.packed_sequences ? 1 : std::max<std::int64_t>(1, problem.batch);
  Cutting cutting = best_cutting({sequences * blocks, chunks, sequences * problem.groups}, policy, at_once,
                                 may_chain(problem), policy.parts > 1 && may_score(problem));
  if (problem.packed_sequences) cutting = {cutting.unit_chunks * cutting.units, 1, 0, 1, cutting.scored};
  return cutting;
}
[[nodiscard]] inline kernels::Arrangement arrangement_of(const Cutting& cutting) {
  return {Schedule::fused, q, cutting.unit_chunks, cutting.chained, true, cutting.scored ? floats_of_scores : 0};
}

/// The problem as the workspace sees it: states of segments fill whole tiles.
[[nodiscard]] inline Problem padded(Problem problem, const Policy& policy) {
  problem.head_dim = kernels::divide_up<std::int64_t>(problem.head_dim, channels_of_slice) * channels_of_slice;
  problem.state = policy.state;
  return problem;
}

}  // namespace tilemamba::cuda::tma
