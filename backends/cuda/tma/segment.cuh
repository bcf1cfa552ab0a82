// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the roles of a block agree on: the segment that they walk, and how a chunk's tiles are made clean.
#pragma once

#include "backends/cuda/tma/tile.cuh"

namespace tilemamba::cuda::tma {

/// Where the copy engine finds the columns of a head (or group), whatever the tokens.
struct Place {
  int column, head;
};
TILEMAMBA_DEVICE Place place_of(const Map& map, int head, int column) {
  return map.columns_of_head > 0 ? Place{column + head * map.columns_of_head, 0} : Place{column, head};
}
/// The tiles of a block's workers, fetched in one go.
struct alignas(16) Places {
  Place of[policy_workers];

  TILEMAMBA_DEVICE void find(const Map& map, const tile::Slice (&slices)[policy_workers]) {
    for (int worker = 0; worker < policy_workers; ++worker)
      of[worker] = place_of(map, slices[worker].head, slices[worker].channel);
  }
  template <int rows>
  TILEMAMBA_DEVICE void load(unsigned to, const Map& map, int token, int batch, unsigned barrier) const {
    const Places here = *this;
#pragma unroll
    for (int worker = 0; worker < policy_workers; ++worker) {
      load_box(to + worker * rows * 128, map.map, here.of[worker].column, token, here.of[worker].head, batch, barrier);
    }
  }
  /// Waits until the shared memory is free again.
  TILEMAMBA_DEVICE void store(const Map& map, unsigned from, int token, int batch, int real_workers) const {
    const Places here = *this;
#pragma unroll
    for (int worker = 0; worker < policy_workers; ++worker) {
      if (worker < real_workers)
        store_box(map.map, from + worker * plane_bytes, here.of[worker].column, token, here.of[worker].head, batch);
    }
    commit_stores();
    wait_stores_read();
  }
};

/// The segment of a block; found by one thread, kept in shared memory.
struct Segment {
  Places x, z, y;
  Place B, C;
  /// What is looked up for every chunk, in one go.
  struct alignas(16) Often {
    int token, batch;  ///< of its first chunk
    int whole;         ///< chunks from there on that are whole boxes, one after the other, which the copy engine moves
    int real_workers;  ///< others do the work of the last one again, and put nothing
  } often;
  kernels::Sequence sequence;
  tile::Slice slices[policy_workers];
  int leaders[policy_workers];  ///< of each worker the first with the same head: it has the decays and decayed scores
  std::int64_t index;           ///< of the first of its units in the sequence
  std::int64_t units;           ///< that the segment has, but for a sequence's last
  std::int64_t scores;          ///< place in the workspace of its first chunk's
  int batch, first, length;     ///< of the sequence: the row, and its tokens there
  int begin, chunks;            ///< chunks of the sequence
  int tokens_of_row;
  int period, chunks_of_period;
  int first_lap;  ///< chunks that are first gone over for their state alone: all or none

  /// Is the sequence's end this segment's?
  [[nodiscard]] TILEMAMBA_DEVICE bool is_last() const { return index + units >= sequence.units; }

  /// kernels::Cut::tokens of the segment's chunk `k`, in 32 bits.
  [[nodiscard]] TILEMAMBA_DEVICE tile::Tokens tokens(int k) const { return tokens(often, k); }
  /// The same for a role that keeps `often` in registers.
  [[nodiscard]] TILEMAMBA_DEVICE tile::Tokens tokens(const Often& often, int k) const {
    if (k < often.whole) return {often.batch, often.token + k * q, q, begin + k == 0};
    const int chunk = begin + k;
    int begin_token = chunk * q, end = length;
    if (period != 0) {
      const int periods = static_cast<int>(static_cast<unsigned>(chunk) / static_cast<unsigned>(chunks_of_period));
      begin_token = periods * period + (chunk - periods * chunks_of_period) * q;
      end = min(end, (periods + 1) * period);
    }
    return {batch, first + begin_token, min(end - begin_token, q), chunk == 0};
  }
  /// kernels::Cut::snapshot_after, in 32 bits.
  [[nodiscard]] TILEMAMBA_DEVICE int snapshot_after(const kernels::Sequence&, const tile::Tokens& its) const {
    const unsigned position = static_cast<unsigned>(static_cast<int>(its.first) - first + its.count),
                   snapshot = position / max(period, 1);
    return period == 0 || snapshot * period != position || snapshot > sequence.snapshots
               ? -1
               : static_cast<int>(snapshot) - 1;
  }
  /// Does a box of `rows` tokens that begins with these reach into others, which are somebody else's?
  [[nodiscard]] TILEMAMBA_DEVICE bool ragged(const tile::Tokens& tokens, int rows = q) const {
    return tokens.count < rows && static_cast<int>(tokens.first) + tokens.count < tokens_of_row;
  }
};

/// What a block walks or sums. Where sequences are packed, the unit of all of them (or the state in the workspace that
/// its sum becomes).
template <class K>
TILEMAMBA_DEVICE Walks::Walk find_walk(const Job& job) {
  const unsigned cluster = blockIdx.x / K::parts, blocks = static_cast<unsigned>(job.heads.count);
  const auto walk = [](unsigned sequence, unsigned begin) {
    return Walks::Walk{static_cast<int>(sequence), static_cast<int>(begin), 1};
  };
  if (job.call.sequences.cu_seqlens != nullptr) return walk(cluster % blocks, cluster / blocks);
  if constexpr (K::features.chained) {  // segments of a sequence follow each other
    const unsigned segments = static_cast<unsigned>(job.walks.units());
    return walk(cluster / segments, cluster % segments);
  }
  const int index = static_cast<int>(cluster);
  return K::sums ? job.walks.sum(index) : job.walks[index];
}

/// The segment that is a walk (or a unit). @returns false where the block, and its cluster, have nothing to do.
template <class K>
TILEMAMBA_DEVICE bool find_segment(Segment& out, const Job& job) {
  const kernels::Sequences& sequences = job.call.sequences;
  const Walks::Walk walk = find_walk<K>(job);
  const unsigned blocks = static_cast<unsigned>(job.heads.count), index = static_cast<unsigned>(walk.sequence) / blocks;
  const int block = static_cast<int>(walk.sequence - index * blocks), units = walk.units;
  std::int64_t chunks = job.chunks_of_row;
  if (sequences.cu_seqlens != nullptr) {
    if (walk.begin >= (K::sums ? sequences.states() : sequences.units())) return false;
    out.sequence = K::sums ? sequences.of_slot(walk.begin) : sequences.of_unit(walk.begin);
    out.index = walk.begin - (K::sums ? out.sequence.first_slot : out.sequence.first_unit);
    chunks = sequences.cut.chunks(out.sequence.length);
  } else {
    out.index = walk.begin;
    kernels::Sequence row = job.first_row;
    row.index = row.batch = index;
    row.first_unit = index * row.units;
    row.first_slot = index * (row.units - sequences.cut.stateless_units);
    out.sequence = row;
  }
  out.batch = static_cast<int>(out.sequence.batch);
  out.first = static_cast<int>(out.sequence.first);
  out.length = static_cast<int>(out.sequence.length);
  out.units = units;
  const std::int64_t begin = out.index * sequences.cut.unit_chunks;
  out.begin = static_cast<int>(begin);
  out.chunks = static_cast<int>(kernels::least(units * sequences.cut.unit_chunks, chunks - begin));
  if constexpr (K::features.scored) {
    out.scores = begin + (sequences.cu_seqlens != nullptr ? sequences.first_chunk(out.sequence.index) : index * chunks);
  }
  out.first_lap = K::features.chained && !out.is_last() ? out.chunks : 0;
  const bool whole = sequences.cut.period == 0 && !job.maps.x.by_hand && !job.maps.y.by_hand;
  out.often = {out.first + out.begin * q, out.batch, whole ? max(0, min(out.chunks, out.length / q - out.begin)) : 0,
               job.heads.size(block)};
  for (int worker = 0; worker < policy_workers; ++worker) {
    out.slices[worker] = job.heads.slice(block, kernels::least(worker, out.often.real_workers - 1));
    out.leaders[worker] = worker;
    for (int other = worker; other-- > 0;)
      if (out.slices[other].head == out.slices[worker].head) out.leaders[worker] = other;
  }
  const int group = out.slices[0].group;
  out.B = place_of(job.maps.B, group, K::first_column());
  out.C = place_of(job.maps.C, group, K::first_column());
  out.x.find(job.maps.x, out.slices);
  out.z.find(job.maps.z, out.slices);
  out.y.find(job.maps.y, out.slices);
  out.tokens_of_row = static_cast<int>(sequences.tokens);
  out.period = static_cast<int>(sequences.cut.period);
  out.chunks_of_period = out.period == 0 ? 1 : static_cast<int>(sequences.cut.chunks_of_period());
  return true;
}

/// The planes of a group, from one address on.
template <int planes>
TILEMAMBA_DEVICE void load_planes(unsigned to, const Map& map, const Place& place, int token, int batch,
                                  unsigned barrier) {
#pragma unroll
  for (int plane = 0; plane < planes; ++plane) {
    load_box(to + plane * plane_bytes, map.map, place.column + 64 * plane, token, place.head, batch, barrier);
  }
}

/// What load_planes<1> does, by the lanes of a warp.
template <int rows = q>
TILEMAMBA_DEVICE void copy_tile(unsigned to, const kernels::TokenView& view, int column, int head,
                                const tile::Tokens& tokens, int lane) {
  const auto* from = static_cast<const std::uint16_t*>(view.data) + view.offset(tokens, head, column);
#pragma unroll 1
  for (int k = lane; k < rows * 16; k += 32) {
    const int row = k / 16, four = k % 16 * 4;
    std::uint32_t pairs[2] = {};
    if (row < tokens.count) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (column + four + e < view.width)
          pairs[e / 2] |= static_cast<std::uint32_t>(from[row * view.token_stride + four + e]) << e % 2 * 16;
      }
    }
    store_shared_words(to + swizzled(row, four / 8) + four % 8 * 2, pairs);
  }
}

/// Place and phase in a ring of `stages`.
template <int stages>
struct Ring {
  int stage = 0;
  unsigned parity = 0;
  TILEMAMBA_DEVICE void advance() {
    if (++stage == stages) stage = 0, parity ^= 1;
  }
  [[nodiscard]] TILEMAMBA_DEVICE int previous() const { return stage == 0 ? stages - 1 : stage - 1; }
};

/// Rows from `count` on of `planes` planes become zeros. One warp.
TILEMAMBA_DEVICE void clear_rows(unsigned address, int planes, int count, int lane) {
#pragma unroll 1
  for (int plane = 0; plane < planes; ++plane) {
#pragma unroll 1
    for (int k = count * 8 + lane; k < q * 8; k += 32) clear_shared(address + plane * plane_bytes + k * 16);
  }
}
/// What is infinite or undefined becomes zero. One warp.
template <class E>
TILEMAMBA_DEVICE void clear_undefined(unsigned address, int planes, int lane) {
  __syncwarp();  // rows may have been cleared, by other lanes
#pragma unroll 1
  for (unsigned k = lane * 16; k < planes * plane_bytes; k += 32 * 16) {
    std::uint32_t v[4];
    load_shared_words(v, address + k);
#pragma unroll
    for (std::uint32_t& pair : v) pair = finite_or_zero<E>(pair);
    store_shared_words(address + k, v);
  }
}

}  // namespace tilemamba::cuda::tma
