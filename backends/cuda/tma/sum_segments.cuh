// SPDX-License-Identifier: Apache-2.0
/// @file
/// The first pass: the state of each segment that a walk begins after (of packed sequences: of each but a sequence's
/// last), summed from zero, from its last tokens to its first.
///
/// Warp 0 loads B and x; a warp for each worker sums its decays and makes the tiles clean; a warpgroup for each worker
/// multiplies. Sums of decays, which a warp makes one after the other, are of spans of 128 tokens; tiles are chunks of
/// 64, two of each span, in their order. Where a walk begins a chunk anew (at a snapshot) is nothing to a sum: its
/// spans follow each other, and only the last may be short.
///
/// L2 is what it waits for: on an H200 that is busy for 83 to 88 % of the pass, memory for 51 to 77 %, and tensor cores
/// for up to 72 % (N 256, heads of 128 channels). Nothing was gained by weighing a chunk under the last one's product,
/// by two blocks of a group that load B for each other (multicast), by workers that multiply in turn, by steps that are
/// asked for two spans ahead, nor, of what it would then have to do wrong, by leaving the decays out.
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
  static constexpr int span = 2 * q;
  static constexpr bool sums = true;

  static constexpr int group_planes = n / 64;
  static constexpr unsigned group_bytes = group_planes * plane_bytes;  // B
  static constexpr unsigned stage_bytes = group_bytes + policy_workers * plane_bytes;
  // Beside stages and weights there are barriers and the segment.
  static constexpr int fitting_stages = (most_bytes - 2048) / (stage_bytes + policy_workers * 4 * q);
  static constexpr int stages = fitting_stages < 8 ? fitting_stages / 2 * 2 : 8;
  static constexpr unsigned weights_at = stages * stage_bytes;
  static constexpr unsigned barriers_at = weights_at + stages * policy_workers * sizeof(uint2) * q / 2;
  static constexpr unsigned cores_at = barriers_at + 3 * stages * 8;
  static constexpr unsigned segment_at = (cores_at + Cores::shared_bytes + 15) / 16 * 16;
  static constexpr unsigned all_at = (segment_at + sizeof(Segment) + 15) / 16 * 16;
  static constexpr unsigned shared_bytes = all_at + sizeof(tile::Tokens);
  static_assert(shared_bytes <= most_bytes);

  // Registers of a thread of each role: those of 3 * 168, and what is left.
  static constexpr int mover_registers = 72, head_registers = 216;

  static constexpr unsigned landed = barriers_at, full = landed + 8 * stages, empty = full + 8 * stages;
  static TILEMAMBA_DEVICE void init_barriers(unsigned memory) {
    for (int s = 0; s < stages; ++s) {
      barrier_init(memory + landed + 8 * s, 1);
      barrier_init(memory + full + 8 * s, 1 + policy_workers);
      barrier_init(memory + empty + 8 * s, 4 * policy_workers);
    }
    Cores::init_barriers(memory + cores_at);
    publish_barriers();
  }
  /// Of a span's two chunks one after the other.
  static TILEMAMBA_DEVICE uint2* weights(int stage, int worker) {
    return reinterpret_cast<uint2*>(shared_memory + weights_at) +
           ((stage / 2 * policy_workers + worker) * 2 + stage % 2) * (q / 2);
  }
};

template <class K>
struct SumSegments {
  const Job& job;
  const Segment& segment;
  const tile::Tokens& all;  ///< of the segment
  unsigned memory;          ///< address of the block's shared memory
  int warp, lane;

  TILEMAMBA_DEVICE static tile::Tokens piece(const tile::Tokens& all, int index, int size) {
    return {all.batch, all.first + index * size, max(0, min(all.count - index * size, size)), all.begins && index == 0};
  }
  TILEMAMBA_DEVICE int spans() const { return (all.count + K::span - 1) / K::span; }
  /// The chunk of step `k`. A last span may end in its first chunk: then its second has no tokens.
  TILEMAMBA_DEVICE tile::Tokens chunk(int k) const { return piece(all, 2 * (spans() - 1 - k / 2) + k % 2, q); }

  /// Must B and x be looked through before others read them?
  TILEMAMBA_DEVICE bool needs_cleaning(const tile::Tokens& its) const {
    return (K::features.documents && job.call.seq_idx.given) || segment.ragged(its);
  }

  TILEMAMBA_DEVICE void load() const {
    const bool by_hand = job.maps.B.by_hand || job.maps.x.by_hand;
    if (!by_hand && lane != 0) return;
    const Place B = segment.B;
    Ring<K::stages> ring;
    for (int k = 0; k < 2 * spans(); ++k, ring.advance()) {
      const tile::Tokens its = chunk(k);
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
    using W = DecayWorker<K, K::span / 32>;
    const tile::Slice slice = segment.slices[worker];
    const tile::Tokens all = this->all;
    const int spans = this->spans();
    const auto tokens_of = [&](int k) { return piece(all, spans - 1 - k, K::span); };
    const auto fetch = [&](const W& w, int k) {
      return k < spans ? w.fetch(job.call.seq_idx, tokens_of(k)) : typename W::Steps{};
    };
    W w(job.call.dt, segment.batch, slice.head, lane);
    constexpr int foreseen = 3;
    typename W::Steps next = fetch(w, 0);
    const kernels::HeadRule rule = kernels::head_rule(job.call, slice.head);
    float after = 0.0f;
    bool ended = false;
    unsigned cleaned = 0;
    Ring<K::stages / 2> ring;
    for (int k = 0; k < spans; ++k, ring.advance()) {
      w.steps = next, next = fetch(w, k + 1);
      if (k + foreseen < spans) w.foresee(tokens_of(k + foreseen));
      kernels::Decays<W> d;
      kernels::chunk_steps(w, job.call, rule, tokens_of(k), slice.head, d);
      after = kernels::weigh_back(w, rule, after, d);
      const int stage = 2 * ring.stage;
      wait_phase(memory + K::empty + 8 * (stage + 1), ring.parity ^ 1);
      w.publish(K::weights(stage, worker), d.exit);
      if (k == 0 || (K::features.documents && job.call.seq_idx.given)) {
        const bool documents = !kernels::reaches_back(after);
#pragma unroll 1
        for (int half = 0; half < 2; ++half) clean(2 * k + half, stage + half, worker, ended, documents, cleaned);
        ended = documents;
      }
      __syncwarp();
      if (lane < 2) arrive(memory + K::full + 8 * (stage + lane));
    }
    if (worker < segment.often.real_workers && slice.channel == 0 && K::part() == 0) {
      kernels::finish_segment_decay(w, job.call, segment.sequence.first_slot + segment.index, slice.head, after);
    }
  }
  /// Nothing that must not count may be multiplied by its weight of zero. `ended`: all tokens; `documents`: some of the
  /// span's. `cleaned`: how often each stage has been, modulo 2.
  TILEMAMBA_DEVICE void clean(int k, int stage, int worker, bool ended, bool documents, unsigned& cleaned) const {
    const tile::Tokens its = chunk(k);
    if (!needs_cleaning(its)) return;
    wait_phase(memory + K::landed + 8 * stage, cleaned >> stage & 1);
    cleaned ^= 1u << stage;
    const unsigned B = memory + stage * K::stage_bytes, x = B + K::group_bytes + worker * plane_bytes;
    const bool ragged = segment.ragged(its);
    if (ragged) clear_rows(x, 1, its.count, lane);
    if (worker == 0 && (ragged || ended)) clear_rows(B, K::group_planes, ended ? 0 : its.count, lane);
    if (worker == 0 && documents && !ended) clear_undefined<typename K::E>(B, K::group_planes, lane);
    if (ragged || documents) publish_to_engines();
  }

  struct HeadCall {
    const States& entry_states;
  };
  TILEMAMBA_DEVICE void multiply(int worker) const {
    using W = typename K::HeadWorker;
    W w{static_cast<unsigned>(lane), warp % 4, worker, channels_of_slice};
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
    const int chunks = 2 * spans();
    wait_phase(memory + K::full, 0);
    look_at(0);
    for (int k = 0; k < chunks; ++k) {
      const int stage = ring.stage;
      auto product = kernels::add_to_sum(w, group, chunk.decays, chunk.x, sum);
      ring.advance();
      if (k + 1 < chunks) wait_phase(memory + K::full + 8 * ring.stage, ring.parity);
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
  tile::Tokens& all = *reinterpret_cast<tile::Tokens*>(shared_memory + K::all_at);
  let_next_launch_start();
  const unsigned memory = shared_address(0);
  int work = 0;
  // Each warp has something to do before the roles begin.
  if (threadIdx.x == 0) {
    work = find_segment<K>(segment, job);
    if (work != 0) {
      const tile::Tokens first = segment.tokens(0), last = segment.tokens(segment.chunks - 1);
      all = {first.batch, first.first, static_cast<int>(last.first - first.first) + last.count, first.begins};
    }
  }
  if (threadIdx.x == 32) K::init_barriers(memory);
  if (threadIdx.x == 64 && job.chunks_of_row > 0) {
    if (!job.maps.B.by_hand) prefetch_map(job.maps.B.map);
    if (!job.maps.x.by_hand) prefetch_map(job.maps.x.map);
  }
  if (__syncthreads_or(work) == 0) return;
  K::Cores::template begin<K>();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const SumSegments<K> roles{job, segment, all, memory, warp, lane};
  if (warp < 4) {
    give_registers<K::mover_registers>();
    if (warp == 0) roles.load();
    if (warp > 0 && warp <= policy_workers) roles.sum_decays(warp - 1);
  } else {
    take_registers<K::head_registers>();
    roles.multiply(warp / 4 - 1);
  }
  K::Cores::template end<K>();
}

}  // namespace tilemamba::cuda::tma
