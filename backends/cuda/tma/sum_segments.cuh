// SPDX-License-Identifier: Apache-2.0
/// @file
/// The first pass: the state of each segment but a sequence's last, summed from zero, chunks from the last to the
/// first.
///
/// Warp 0 loads B and x; a warp for each worker sums its decays and makes the tiles clean; a warpgroup for each worker
/// multiplies.
#pragma once

#include "backends/cuda/tma/decays.cuh"
#include "backends/cuda/tma/heads.cuh"
#include "backends/cuda/tma/segment.cuh"

namespace tilemamba::cuda::tma {

template <class Cores_, class E_, int n_, Features features_, int parts>
struct SumKernel : PartOfState<n_, parts> {
  using Cores = Cores_;
  using E = E_;
  using HeadWorker = typename Cores::template HeadWorker<SumKernel>;
  static constexpr int n = n_;
  static constexpr Features features = features_;
  static constexpr int threads = 128 * (1 + policy_workers);

  static constexpr int group_planes = n / 64;
  static constexpr unsigned group_bytes = group_planes * plane_bytes;  // B
  static constexpr unsigned stage_bytes = group_bytes + policy_workers * plane_bytes;
  static constexpr int stages = 6;
  static constexpr unsigned weights_at = stages * stage_bytes;
  static constexpr unsigned barriers_at = weights_at + stages * policy_workers * sizeof(uint2) * q / 2;
  static constexpr unsigned cores_at = barriers_at + 3 * stages * 8;
  static constexpr unsigned segment_at = (cores_at + Cores::shared_bytes + 15) / 16 * 16;
  static constexpr unsigned shared_bytes = segment_at + sizeof(Segment);

  static constexpr unsigned landed = barriers_at, full = landed + 8 * stages, empty = full + 8 * stages;
  static TILEMAMBA_DEVICE uint2* weights(int stage, int worker) {
    return reinterpret_cast<uint2*>(shared_memory + weights_at) + (stage * policy_workers + worker) * (q / 2);
  }
};

template <class K>
struct SumSegments {
  const Job& job;
  const Segment& segment;
  unsigned memory;  ///< address of the block's shared memory
  int warp, lane;

  TILEMAMBA_DEVICE tile::Tokens tokens(int k) const { return segment.tokens(segment.chunks - 1 - k); }

  /// Must B and x be looked through before others read them?
  TILEMAMBA_DEVICE bool needs_cleaning(const tile::Tokens& its) const {
    return (K::features.documents && job.call.seq_idx.given) || segment.ragged(its);
  }

  TILEMAMBA_DEVICE void load() const {
    const bool by_hand = job.maps.B.by_hand || job.maps.x.by_hand;
    if (!by_hand && lane != 0) return;
    const Place B = segment.B;
    Ring<K::stages> ring;
    for (int k = 0; k < segment.chunks; ++k, ring.advance()) {
      const tile::Tokens its = tokens(k);
      const unsigned to = memory + ring.stage * K::stage_bytes, full = memory + K::full + 8 * ring.stage;
      const bool clean = needs_cleaning(its);
      const unsigned ready = clean ? memory + K::landed + 8 * ring.stage : full;
      wait_phase(memory + K::empty + 8 * ring.stage, ring.parity ^ 1);
      if (by_hand) {
#pragma unroll 1
        for (int plane = 0; plane < K::group_planes; ++plane) {
          copy_tile(to + plane * plane_bytes, job.call.B, K::first_column() + plane * 64, segment.slices[0].group, its,
                    lane);
        }
#pragma unroll 1
        for (int worker = 0; worker < policy_workers; ++worker) {
          const tile::Slice& slice = segment.slices[worker];
          copy_tile(to + K::group_bytes + worker * plane_bytes, job.call.x, slice.channel, slice.head, its, lane);
        }
        publish_to_engines();
        __syncwarp();
        if (lane == 0) arrive(ready);
        if (lane == 0 && clean) arrive(full);
        continue;
      }
      expect_bytes(ready, K::stage_bytes);
      if (clean) arrive(full);
      const int token = static_cast<int>(its.first), batch = static_cast<int>(its.batch);
      load_planes<K::group_planes>(to, job.maps.B, B, token, batch, ready);
      segment.x.load<q>(to + K::group_bytes, job.maps.x, token, batch, ready);
    }
  }

  TILEMAMBA_DEVICE void sum_decays(int worker) const {
    using W = DecayWorker<K>;
    const tile::Slice slice = segment.slices[worker];
    const kernels::HeadRule rule = kernels::head_rule(job.call, slice.head);
    const Segment::Often often = segment.often;
    const int chunks = segment.chunks;
    const auto tokens_of = [&](int k) { return segment.tokens(often, chunks - 1 - k); };
    const auto fetch = [&](const W& w, int k) {
      return k < chunks ? w.fetch(job.call.seq_idx, tokens_of(k)) : Steps{};
    };
    W w(job.call.dt, segment.batch, slice.head, lane);
    constexpr int foreseen = 6;
    Steps next = fetch(w, 0), later = fetch(w, 1);
    float after = 0.0f;
    unsigned cleaned = 0;  // parities, one a stage
    Ring<K::stages> ring;
    for (int k = 0; k < chunks; ++k, ring.advance()) {
      // A register that moves on waits for what it holds, so the steps are really asked for one chunk ahead.
      w.steps = next, next = later, later = fetch(w, k + 2);
      // (Blocks that share the columns find them in L2 as it is.)
      if (K::parts == 1 && k + foreseen < chunks) w.foresee(tokens_of(k + foreseen));
      const tile::Tokens its = tokens_of(k);
      kernels::Decays<W> d;
      kernels::chunk_cumsum(w, job.call, rule, its, slice.head, d);
      kernels::exit_weights(w, rule, after, d);
      after = kernels::after_previous(w, d, after);
      wait_phase(memory + K::empty + 8 * ring.stage, ring.parity ^ 1);
      w.publish(K::weights(ring.stage, worker), d.exit);
      if (needs_cleaning(its)) {
        wait_phase(memory + K::landed + 8 * ring.stage, cleaned >> ring.stage & 1);
        cleaned ^= 1u << ring.stage;
        const unsigned B = memory + ring.stage * K::stage_bytes, x = B + K::group_bytes + worker * plane_bytes;
        const bool ragged = segment.ragged(its), documents = w.last(d.document) != 0;
        if (ragged) clear_rows(x, 1, its.count, lane);
        if (ragged && worker == 0) clear_rows(B, K::group_planes, its.count, lane);
        if (documents && worker == 0) clear_undefined<typename K::E>(B, K::group_planes, lane);
        if (ragged || documents) publish_to_engines();
      }
      __syncwarp();
      if (lane == 0) arrive(memory + K::full + 8 * ring.stage);
    }
    if (worker < segment.often.real_workers && slice.channel == 0 && K::part() == 0) {
      kernels::finish_segment_decay(w, job.call, segment.sequence.first_slot + segment.index, slice.head, after);
    }
  }

  struct HeadCall {
    const States& entry_states;
  };
  TILEMAMBA_DEVICE void multiply(int worker) const {
    using W = typename K::HeadWorker;
    W w{lane, warp % 4, worker, channels_of_slice};
    kernels::SegmentSum<W> sum;
    kernels::begin_segment_sum(w, sum);
    kernels::GroupChunk<W> group;
    kernels::HeadChunk<W> chunk;
    const unsigned base = memory / 16;
    const auto look_at = [&](int stage) {
      group.B.at = base + stage * (K::stage_bytes / 16);
      chunk.x.at = group.B.at + (K::group_bytes + worker * plane_bytes) / 16;
      chunk.decays.exit.at = K::weights(stage, worker);
      w.fetch(chunk.x);
    };
    Ring<K::stages> ring;
    wait_phase(memory + K::full, 0);
    look_at(0);
    for (int k = 0; k < segment.chunks; ++k) {
      const int stage = ring.stage;
      auto product = kernels::add_to_sum(w, group, chunk.decays, chunk.x, sum);
      ring.advance();
      if (k + 1 < segment.chunks) wait_phase(memory + K::full + 8 * ring.stage, ring.parity);
      look_at(ring.stage);  // past the end something old, which nobody uses
      w.wait(product);
      __syncwarp();
      if (lane == 0) arrive(memory + K::empty + 8 * stage);
    }
    if (worker >= segment.often.real_workers) return;
    const HeadCall call{job.entry_states};
    kernels::finish_segment_sum(w, call, segment.sequence.first_slot + segment.index, segment.slices[worker], sum);
  }
};

template <class K>
__global__ void __launch_bounds__(K::threads, 1) sum_segments(const __grid_constant__ Job job) {
  Segment& segment = *reinterpret_cast<Segment*>(shared_memory + K::segment_at);
  let_next_launch_start();
  const unsigned memory = shared_address(0);
  int work = 0;
  if (threadIdx.x == 0) {
    // What a sequence's last walk goes over needs no sum.
    work = find_segment<K>(segment, job, 1) &&
           segment.index < (segment.sequence.units - 1) / job.units_of_walk * job.units_of_walk;
    for (int s = 0; s < K::stages; ++s) {
      barrier_init(memory + K::landed + 8 * s, 1);
      barrier_init(memory + K::full + 8 * s, 1 + policy_workers);
      barrier_init(memory + K::empty + 8 * s, 4 * policy_workers);
    }
    K::Cores::init_barriers(memory + K::cores_at);
    publish_barriers();
    if (work != 0) {
      if (!job.maps.B.by_hand) prefetch_map(job.maps.B.map);
      if (!job.maps.x.by_hand) prefetch_map(job.maps.x.map);
    }
  }
  if (__syncthreads_or(work) == 0) return;
  K::Cores::template begin<K>();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const SumSegments<K> roles{job, segment, memory, warp, lane};
  if (warp < 4) {
    give_registers<56>();
    if (warp == 0) roles.load();
    if (warp > 0 && warp <= policy_workers) roles.sum_decays(warp - 1);
  } else {
    roles.multiply(warp / 4 - 1);
  }
  K::Cores::template end<K>();
}

}  // namespace tilemamba::cuda::tma
