// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which tokens a chunk, a segment and a sequence are. A chunk never crosses a sequence's end, nor a multiple of the
/// period at which chunk_states are asked for, so every state that anyone wants is the state at some chunk's end. All
/// of it depends on positions in the sequence alone, never on what it is packed with.
#pragma once

#include <cstdint>

#include "core/tile/config.hpp"
#include "core/tile/view.hpp"

namespace tilemamba::kernels {

using tile::Tokens;

template <class T>
TILEMAMBA_FN constexpr T divide_up(T a, T b) {
  return (a + b - 1) / b;
}

template <class T>
TILEMAMBA_FN constexpr T least(T a, T b) {
  return b < a ? b : a;
}

template <class T>
TILEMAMBA_FN constexpr T greatest(T a, T b) {
  return a < b ? b : a;
}

/// One sequence: a batch row, or a stretch of a packed row.
struct Sequence {
  std::int64_t index;           ///< which one; its initial and final state
  std::int64_t batch;           ///< row of the (B,T) grid
  std::int64_t first;           ///< token in that row
  std::int64_t length;          ///< in tokens
  std::int64_t first_unit;      ///< units of work before it
  std::int64_t units;           ///< its own
  std::int64_t first_slot;      ///< states that the workspace holds for the sequences before it
  std::int64_t first_snapshot;  ///< chunk_states before its own, in its row
  std::int64_t snapshots;       ///< its own
};

/// How a sequence is cut into chunks, and chunks gathered into units of work.
struct Cut {
  int chunk = 0;                 ///< Q
  std::int64_t period = 0;       ///< chunk_states_every; 0: none
  std::int64_t unit_chunks = 1;  ///< chunks of a unit: 1 in the staged schedule, a segment's in the fused one
  int stateless_units =
      0;  ///< the first units of a sequence, so many, need no state in the workspace and exist even if it is empty

  [[nodiscard]] TILEMAMBA_FN std::int64_t chunks_of_period() const { return divide_up<std::int64_t>(period, chunk); }

  [[nodiscard]] TILEMAMBA_FN std::int64_t chunks(std::int64_t length) const {
    if (period == 0) return divide_up<std::int64_t>(length, chunk);
    return length / period * chunks_of_period() + divide_up<std::int64_t>(length % period, chunk);
  }

  [[nodiscard]] TILEMAMBA_FN std::int64_t units(std::int64_t length) const {
    const std::int64_t needed = divide_up(chunks(length), unit_chunks);
    return needed < stateless_units ? stateless_units : needed;
  }

  /// The tokens of a sequence's chunk.
  [[nodiscard]] TILEMAMBA_FN Tokens tokens(const Sequence& sequence, std::int64_t index) const {
    std::int64_t begin = index * chunk;
    std::int64_t end = sequence.length;
    if (period != 0) {
      const std::int64_t whole_periods = index / chunks_of_period() * period;
      begin = whole_periods + index % chunks_of_period() * chunk;
      end = least(end, whole_periods + period);
    }
    end = least(end, begin + chunk);
    return {sequence.batch, sequence.first + begin, static_cast<int>(end - begin), index == 0};
  }

  /// Which of its sequence's chunk_states is the state after these tokens? -1: none.
  [[nodiscard]] TILEMAMBA_FN std::int64_t snapshot_after(const Sequence& sequence, const Tokens& tokens) const {
    const std::int64_t position = tokens.first + tokens.count - sequence.first;
    if (period == 0 || position % period != 0 || position / period > sequence.snapshots) return -1;
    return position / period - 1;
  }

  /// The most units with a state in the workspace that `count` sequences of `tokens` tokens in all can have.
  [[nodiscard]] TILEMAMBA_FN std::int64_t most_slots(std::int64_t count, std::int64_t tokens) const {
    // Each sequence has at most length * d + (chunk - 1) / chunk chunks, d being the chunks per token of a whole
    // period.
    const std::int64_t span = period == 0 ? chunk : period;
    const std::int64_t per_span = period == 0 ? 1 : chunks_of_period();
    const std::int64_t most_chunks =
        (tokens * per_span + divide_up<std::int64_t>(count * (chunk - 1) * span, chunk)) / span;
    // With one unit of each sequence left out, c chunks have at most (c - 1) / unit_chunks units more.
    return stateless_units == 0 ? most_chunks : most_chunks / unit_chunks;
  }
};

/// All sequences of a call. Packed ones have a table in the workspace (`tabulate`), so that a unit finds its sequence
/// whatever the lengths are; rows of a batch need none.
struct Sequences {
  std::int64_t count = 0;                    ///< sequences
  std::int64_t tokens = 0;                   ///< T, the length of a row
  const std::int32_t* cu_seqlens = nullptr;  ///< count + 1 entries, when packed
  std::int32_t* unit_starts = nullptr;       ///< table: units before each sequence; count + 1 entries
  std::int32_t* snapshot_starts = nullptr;  ///< table: chunk_states before each sequence; null where none are asked for
  std::int64_t slots = 0;                   ///< states that there is room for
  std::int64_t chunks = 0;                  ///< whose scores there is room for
  std::int64_t snapshots = 0;               ///< chunk_states that there is room for, in all (packed)
  Cut cut;

  /// Inside the row, whatever cu_seqlens holds.
  [[nodiscard]] TILEMAMBA_FN std::int64_t bound(std::int64_t index) const {
    const std::int64_t entry = cu_seqlens[index];
    return entry < 0 ? 0 : least(entry, tokens);
  }
  [[nodiscard]] TILEMAMBA_FN std::int64_t length(std::int64_t index) const {
    if (cu_seqlens == nullptr) return tokens;
    const std::int64_t difference = bound(index + 1) - bound(index);
    return difference < 0 ? 0 : difference;
  }

  [[nodiscard]] TILEMAMBA_FN Sequence operator[](std::int64_t index) const {
    if (cu_seqlens == nullptr) {
      const std::int64_t units = cut.units(tokens);
      return {index,
              index,
              0,
              tokens,
              index * units,
              units,
              index * (units - cut.stateless_units),
              0,
              cut.period == 0 ? 0 : tokens / cut.period};
    }
    const std::int64_t start = unit_starts[index];
    const std::int64_t snapshot = snapshot_starts == nullptr ? 0 : snapshot_starts[index];
    return {index,
            0,
            bound(index),
            length(index),
            start,
            unit_starts[index + 1] - start,
            start - index * cut.stateless_units,
            snapshot,
            snapshot_starts == nullptr ? 0 : snapshot_starts[index + 1] - snapshot};
  }

  /// Known before the lengths are: what a launch is sized for.
  [[nodiscard]] TILEMAMBA_FN std::int64_t most_units() const {
    return cu_seqlens == nullptr ? count * cut.units(tokens) : slots + count * cut.stateless_units;
  }
  [[nodiscard]] TILEMAMBA_FN std::int64_t units() const {
    return cu_seqlens == nullptr ? count * cut.units(tokens) : unit_starts[count];
  }

  /// The sequence that a unit belongs to.
  [[nodiscard]] TILEMAMBA_FN Sequence of_unit(std::int64_t unit) const {
    if (cu_seqlens == nullptr) return (*this)[unit / cut.units(tokens)];
    return (*this)[last_from(unit, [this](std::int64_t s) { return std::int64_t{unit_starts[s]}; })];
  }
  /// Packed: the sequence that a state in the workspace, one of `states`, belongs to.
  [[nodiscard]] TILEMAMBA_FN Sequence of_slot(std::int64_t slot) const {
    return (*this)[last_from(slot, [this](std::int64_t s) { return unit_starts[s] - s * cut.stateless_units; })];
  }
  /// Packed: how many there are.
  [[nodiscard]] TILEMAMBA_FN std::int64_t states() const { return units() - count * cut.stateless_units; }

  // Chunks of all sequences, counted where each has a place of its own in the workspace. A packed sequence's follow as
  // many as the tokens before it have if they are one sequence, and one for each sequence before: that is enough, so
  // that no table is needed, but leaves gaps.
  [[nodiscard]] TILEMAMBA_FN std::int64_t first_chunk(std::int64_t index) const {
    return cu_seqlens == nullptr ? index * cut.chunks(tokens) : cut.chunks(bound(index)) + index;
  }
  /// The sequence that such a chunk belongs to, unless it is in a gap: then one before.
  [[nodiscard]] TILEMAMBA_FN Sequence of_chunk(std::int64_t chunk) const {
    return (*this)[cu_seqlens == nullptr ? chunk / cut.chunks(tokens)
                                         : last_from(chunk, [this](std::int64_t s) { return first_chunk(s); })];
  }

  /// What a run of sequences wants of the workspace and of chunk_states.
  struct Wanted {
    std::int64_t slots, snapshots;
    TILEMAMBA_FN void add(const Wanted& more) { slots += more.slots, snapshots += more.snapshots; }
  };
  [[nodiscard]] TILEMAMBA_FN Wanted wanted(std::int64_t index) const {
    const std::int64_t tokens_of_it = length(index);
    return {cut.units(tokens_of_it) - cut.stateless_units, snapshot_starts == nullptr ? 0 : tokens_of_it / cut.period};
  }
  /// Fills the table for sequences [begin, end), before which `before` was wanted; the end's entry is the next run's
  /// first, or the last of all. Where cu_seqlens makes no sense (overlapping sequences) room runs out here and not in
  /// the workspace: what does not fit is left out.
  TILEMAMBA_FN void tabulate(std::int64_t begin, std::int64_t end, Wanted before) const {
    for (std::int64_t s = begin; s < end; ++s) {
      put_starts(s, before);
      before.add(wanted(s));
    }
    if (end == count) put_starts(count, before);
  }
  /// The whole table; one worker, once a call, before any unit is looked up.
  TILEMAMBA_FN void tabulate() const { tabulate(0, count, {}); }

 private:
  /// The last sequence with start(s) <= position, if that is less than start(count).
  template <class Start>
  [[nodiscard]] TILEMAMBA_FN std::int64_t last_from(std::int64_t position, Start start) const {
    std::int64_t low = 0;
    std::int64_t high = count;
    while (high - low > 1) {
      const std::int64_t middle = (low + high) / 2;
      (start(middle) <= position ? low : high) = middle;
    }
    return low;
  }
  TILEMAMBA_FN void put_starts(std::int64_t index, const Wanted& before) const {
    unit_starts[index] = static_cast<std::int32_t>(least(before.slots, slots) + index * cut.stateless_units);
    if (snapshot_starts != nullptr)
      snapshot_starts[index] = static_cast<std::int32_t>(least(before.snapshots, snapshots));
  }
};

}  // namespace tilemamba::kernels
