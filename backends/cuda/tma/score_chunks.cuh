// SPDX-License-Identifier: Apache-2.0
/// @file
/// Scores of all chunks, once for all heads of a group: where a cluster shares a state's columns, its blocks would
/// each have a part of them, and its walk waits for shared memory, of which they would take a fifth.
///
/// A warpgroup multiplies what one more warp loads: of a chunk's C and B a piece of columns after the other.
#pragma once

#include "backends/cuda/tma/scores.cuh"
#include "backends/cuda/tma/segment.cuh"

namespace tilemamba::cuda::tma {

template <class Cores_, class E_, int n_, int pieces_>
struct ScoreKernel : PartOfState<n_, 1> {
  using Cores = Cores_;
  using E = E_;
  using ScoreWorker = typename Cores::template ScoreWorker<ScoreKernel>;
  static constexpr int n = n_, pieces = pieces_;  ///< columns of a piece; pieces of a state
  static constexpr Features features{};
  static constexpr int threads = 128 + 32;

  static constexpr int group_planes = n / 64;
  static constexpr unsigned group_bytes = group_planes * plane_bytes, stage_bytes = 2 * group_bytes;  // C, B
  static constexpr int stages = 3;  ///< so that a multiprocessor has two blocks
  static constexpr unsigned full = stages * stage_bytes, empty = full + 8 * stages, cores_at = empty + 8 * stages;
  static constexpr unsigned shared_bytes = cores_at + Cores::shared_bytes;
  static_assert(shared_bytes <= most_bytes / 2 - 1024);

  static TILEMAMBA_DEVICE void init_barriers(unsigned memory) {
    for (int s = 0; s < stages; ++s) {
      barrier_init(memory + full + 8 * s, 1);
      barrier_init(memory + empty + 8 * s, 4);
    }
    Cores::init_barriers(memory + cores_at);
    publish_barriers();
  }
};

template <class K>
struct ScoreChunks {
  const Job& job;
  unsigned memory;  ///< address of the block's shared memory
  int warp;
  unsigned lane;

  /// f(place in the workspace, tokens, group) of every chunk and group that this block has.
  template <class F>
  TILEMAMBA_DEVICE void each(F f) const {
    const kernels::Sequences& all = job.call.sequences;
    const int groups = job.call.groups;
    const std::int64_t count = all.chunks * groups, end = count * (blockIdx.x + 1) / gridDim.x;
    std::int64_t index = count * blockIdx.x / gridDim.x, place = index / groups;
    kernels::Sequence sequence = all.of_chunk(place);
    std::int64_t first = all.first_chunk(sequence.index), next = all.first_chunk(sequence.index + 1),
                 chunks = all.cut.chunks(sequence.length);
    for (int group = static_cast<int>(index - place * groups); index < end; ++index) {
      if (place == next && sequence.index + 1 < all.count) {
        sequence = all[sequence.index + 1];
        first = next, next = all.first_chunk(sequence.index + 1), chunks = all.cut.chunks(sequence.length);
      }
      const std::int64_t chunk = place - first;
      if (chunk >= 0 && chunk < chunks) f(place, all.cut.tokens(sequence, chunk), group);
      if (++group == groups) group = 0, ++place;
    }
  }

  TILEMAMBA_DEVICE void load() const {
    const bool by_hand = job.maps.B.by_hand || job.maps.C.by_hand;
    if (!by_hand && lane != 0) return;
    Ring<K::stages> ring;
    each([&](std::int64_t, const tile::Tokens& its, int group) {
      for (int piece = 0; piece < K::pieces; ++piece, ring.advance()) {
        const unsigned to = memory + ring.stage * K::stage_bytes, full = memory + K::full + 8 * ring.stage;
        const int column = piece * K::n;
        wait_phase(memory + K::empty + 8 * ring.stage, ring.parity ^ 1);
        if (by_hand) {
#pragma unroll 1
          for (int plane = 0; plane < K::group_planes; ++plane) {
            copy_tile(to + plane * plane_bytes, job.call.C, column + plane * 64, group, its, lane);
            copy_tile(to + K::group_bytes + plane * plane_bytes, job.call.B, column + plane * 64, group, its, lane);
          }
          publish_to_engines();
          __syncwarp();
          if (lane == 0) arrive(full);
          continue;
        }
        // Rows beyond the chunk's are somebody else's, or zeros: their scores count for nobody.
        expect_bytes(full, K::stage_bytes);
        const int token = static_cast<int>(its.first), batch = static_cast<int>(its.batch);
        load_planes<K::group_planes>(to, job.maps.C, place_of(job.maps.C, group, column), token, batch, full);
        load_planes<K::group_planes>(to + K::group_bytes, job.maps.B, place_of(job.maps.B, group, column), token, batch,
                                     full);
      }
    });
  }

  TILEMAMBA_DEVICE void multiply() const {
    using W = typename K::ScoreWorker;
    W w{lane, warp, 0};
    kernels::GroupChunk<W> chunk;
    Ring<K::stages> ring;
    each([&](std::int64_t place, const tile::Tokens&, int group) {
      const auto next = [&](auto product) {
        wait_phase(memory + K::full + 8 * ring.stage, ring.parity);
        chunk.C.at = (memory + ring.stage * K::stage_bytes) / 16;
        chunk.B.at = chunk.C.at + K::group_bytes / 16;
        auto scores = product(w, chunk);
        w.wait(scores);
        __syncwarp();
        if (lane == 0) arrive(memory + K::empty + 8 * ring.stage);
        ring.advance();
      };
      next([](W& w, auto& chunk) { return kernels::multiply_scores(w, chunk); });
#pragma unroll 1
      for (int piece = 1; piece < K::pieces; ++piece)
        next([](W& w, auto& chunk) { return kernels::multiply_more_scores(w, chunk); });
      kernels::store_scores(w, job.call, place, group, chunk);
    });
  }
};

template <class K>
__global__ void __launch_bounds__(K::threads, 2) score_chunks(const __grid_constant__ Job job) {
  let_next_launch_start();
  const unsigned memory = shared_address(0);
  if (threadIdx.x == 0) K::init_barriers(memory);
  __syncthreads();
  K::Cores::template begin<K>();
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
  const ScoreChunks<K> roles{job, memory, warp, threadIdx.x % 32};
  if (warp < 4) {
    roles.multiply();
  } else {
    roles.load();
    wait_for_last_launch();  // of sums: the walk waits for this launch alone
  }
  K::Cores::template end<K>();
}

}  // namespace tilemamba::cuda::tma
