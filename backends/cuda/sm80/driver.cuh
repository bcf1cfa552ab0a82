// SPDX-License-Identifier: Apache-2.0
/// @file
/// The kernels: who does what of the text, when, and where its tiles lie.
#pragma once

#include "backends/cuda/sm80/kernels.hpp"
#include "backends/cuda/sm80/tile.cuh"
#include "kernels/scan_fused.hpp"

namespace tilemamba::cuda::sm80 {

using kernels::Call;
using kernels::Carried;
using kernels::Cut;
using kernels::Decays;
using kernels::GroupChunk;
using kernels::HeadBlocks;
using kernels::HeadChunk;
using kernels::HeadRule;
using kernels::Output;
using kernels::Sequence;
using kernels::Slice;
using kernels::Tokens;

template <class W>
using CallOf = std::conditional_t<W::plain, PlainCall, Call>;

template <class W>
TILEMAMBA_DEVICE W make_worker(const Call& call) {
  W w{};
  w.warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);  // so that the compiler knows it to be uniform
  w.lane = static_cast<int>(threadIdx.x) % 32;
  if constexpr (!W::plain) {
    w.documents = call.seq_idx.given;
    w.wide = W::Element::size == 2 && call.y.dtype == DType::f32;
  }
  w.active = true;
  return w;
}

/// What the compiler derived from this before is not worth keeping in registers.
TILEMAMBA_DEVICE void forget(int& value) { asm volatile("" : "+r"(value)); }
TILEMAMBA_DEVICE void forget(std::int64_t& value) { asm volatile("" : "+l"(value)); }

/// Sizes of the tiles of a worker.
template <class W>
struct Sizes {
  static constexpr unsigned group = W::template Plane<Q, N>::bytes;  // C, or B
  static constexpr unsigned head = W::template Plane<Q, P>::bytes;   // x, or z
  static constexpr unsigned decays = 5 * W::q * 4;
  static constexpr unsigned decayed = W::template Plane<Q, Q>::bytes;
  static constexpr unsigned leaving = head;
  static constexpr unsigned wide_leaving = W::template Leaving<Q, P>::wide_bytes;
  static_assert(decays % 128 == 0 || W::q < 32, "planes begin at multiples of 128 bytes");
};
constexpr unsigned whole_lines(unsigned bytes) { return (bytes + 127) / 128 * 128; }

/// A worker's part of a chunk: x and the decays together, decayed scores and z elsewhere.
template <class W>
TILEMAMBA_DEVICE HeadChunk<W> head_chunk(W& w, unsigned at, unsigned decayed, unsigned z) {
  w.top = at;
  HeadChunk<W> chunk(w);
  chunk.decayed.base = decayed;
  chunk.z.base = z;
  return chunk;
}

/// put_snapshot, and finish_state where the sequence ends, with the many ways to store a state compiled once. It looks
/// the sequence up again: in between there are no registers for it.
template <class W, class Call>
TILEMAMBA_DEVICE void put_states(W& w, const Call& call, std::int64_t unit, const Tokens& tokens, const Slice& slice,
                                 bool final, const Carried<W>& carried) {
  if (!call.chunk_states.given && !final) return;
  forget(unit);
  const Sequence sequence = call.sequences.of_unit(unit);
  const std::int64_t snapshot = call.chunk_states.given ? call.sequences.cut.snapshot_after(sequence, tokens) : -1;
#pragma unroll 1
  for (int k = 0; k < 2; ++k) {
    if (k == 0 ? snapshot < 0 : !(final && call.final_states.given)) continue;
    w.put(k == 0 ? call.chunk_states : call.final_states, k == 0 ? sequence.batch : 0,
          k == 0 ? sequence.first_snapshot + snapshot : sequence.index, slice, carried.S);
  }
}

/// dt comes from where it was loaded to.
template <class W>
struct StepsCall {
  const typename W::Steps& dt;
  const decltype(CallOf<W>::seq_idx)& seq_idx;
};

// ----------------------------------------------------------------------------------------------------------------- the
// fused walk

/// Shared memory of the walk: [stage 0][stage 1][decayed scores][parts of sums][D][leaving][z of both stages]
template <class W>
struct FusedLayout {
  using S = Sizes<W>;
  static constexpr unsigned head = whole_lines(S::head + S::decays);
  static constexpr unsigned stage = 2 * S::group + W::most_workers * head;
  static constexpr unsigned decayed = 2 * stage;
  static constexpr unsigned exchange = decayed + W::most_workers * S::decayed;
  static constexpr unsigned skip = exchange + W::exchange_bytes;
  static constexpr unsigned leaving = skip + whole_lines(W::most_workers * W::skip_bytes);
  static constexpr unsigned narrow_bytes = leaving + W::most_workers * S::leaving;
  static constexpr unsigned wide_bytes = leaving + W::most_workers * whole_lines(S::wide_leaving);
  static constexpr unsigned gate_bytes = 2 * W::most_workers * S::head;

  static TILEMAMBA_DEVICE unsigned leaving_of(const W& w, int worker) {
    return leaving + worker * (w.wide ? whole_lines(S::wide_leaving) : S::leaving);
  }
  static TILEMAMBA_DEVICE HeadChunk<W> chunk(W& w, int in_stage, int worker) {
    return head_chunk(w, in_stage * stage + 2 * S::group + worker * head, decayed + worker * S::decayed,
                      (w.wide ? wide_bytes : narrow_bytes) + (in_stage * W::most_workers + worker) * S::head);
  }
};

/// Outputs and states of a segment, for the heads of a block. Block: (unit, block of heads).
///
/// Two barriers a chunk: `landed`, when its tiles and decays are there, and `decayed`, when its decayed scores are.
/// Between decayed(c) and landed(c + 1) fly the loads of c + 1, the products of c, the outputs of c - 1 on their way to
/// memory, and one warp of each head sums the decays of c + 1, whose steps it asked for a chunk earlier.
template <class W>
__global__ void __launch_bounds__(W::threads, 1)
    fused(const __grid_constant__ CallOf<W> call, const __grid_constant__ HeadBlocks heads) {
  using Layout = FusedLayout<W>;
  const std::int64_t unit = blockIdx.x / heads.count;
  const int head_block = static_cast<int>(blockIdx.x % heads.count);
  if (unit >= call.sequences.units()) return;
  const Sequence sequence = call.sequences.of_unit(unit);
  const Cut& cut = call.sequences.cut;
  const std::int64_t segment = unit - sequence.first_unit;
  const int begin = static_cast<int>(segment * cut.unit_chunks);
  // An empty sequence has a chunk without tokens: it leaves the state as it is.
  const std::int64_t chunks = sequence.length == 0 ? 1 : cut.chunks(sequence.length);
  const int end = static_cast<int>(kernels::least(chunks, begin + cut.unit_chunks));

  W w = make_worker<W>(call);
  w.exchange = Layout::exchange;
  w.skip = Layout::skip + w.worker() * W::skip_bytes;
  const bool leaves = segment == sequence.units - 1;
  const int size = heads.size(head_block);
  const bool real = w.worker() < size;
  const Slice slice = heads.slice(head_block, kernels::least(w.worker(), size - 1));
  w.active = real && slice.channel + w.channel() < call.head_dim;
  const HeadRule rule = head_rule(call, slice.head);

  const auto load = [&](int stage, const Tokens& tokens) {
    w.top = stage * Layout::stage;
    GroupChunk<W> group(w);
    HeadChunk<W> chunk = Layout::chunk(w, stage, w.worker());
    w.get(group.C, call.C, tokens, slice);
    w.get(group.B, call.B, tokens, slice);
    w.get(chunk.x, call.x, tokens, slice);
    if (call.z.given) w.get(chunk.z, call.z, tokens, slice);
  };
  // Which warp of a head sums the decays of a chunk: one in turn, of those without rows of y where there are such.
  constexpr bool some_without_rows = W::owners < W::parts;
  constexpr int first_in_turn = some_without_rows ? W::owners * W::channel_blocks : 0;
  const auto my_turn = [&](int c) {
    return w.head_warp() == first_in_turn + (c - begin) % (W::head_warps - first_in_turn);
  };
  typename W::Steps steps{};
  const auto sum_decays = [&](int stage, const Tokens& tokens) {
    HeadChunk<W> chunk = Layout::chunk(w, stage, w.worker());
    chunk_cumsum(w, StepsCall<W>{steps, call.seq_idx}, rule, tokens, slice.head, chunk.decays);
    entry_decays(w, chunk.decays);
    exit_weights(w, rule, 0.0f, chunk.decays);
    tabulate_decays(w, rule, chunk.decays);
  };
  const auto count_of = [&](int c) { return c < end ? cut.tokens(sequence, c).count : 0; };

  Carried<W> carried(w);
  w.top = Layout::leaving_of(w, w.worker());
  Output<W> out(w);
  // Chunks follow each other without gaps: where the current one begins and the counts around it say it all.
  std::int64_t first = cut.tokens(sequence, begin).first;
  int count_before = 0, count = count_of(begin), count_next = count_of(begin + 1);
  const auto tokens_at = [&](int c, std::int64_t token, int its_count) {
    return Tokens{sequence.batch, token, its_count, c == 0};
  };
  load(0, tokens_at(begin, first, count));
  commit_copies();
#pragma unroll 1
  for (int k = 0; k < 2; ++k) {
    if (!my_turn(begin + k)) continue;
    w.get(steps, call.dt, tokens_at(begin + k, first + k * count, k == 0 ? count : count_next), slice.head);
    if (k == 0) sum_decays(0, tokens_at(begin, first, count));
  }
  w.load_skip(call.D, slice);
  gather_segments(w, call, sequence, segment, slice, carried);
  wait_copies<0>();
  __syncthreads();  // landed(begin)
  int stage = 0;
#pragma unroll 1
  for (int c = begin; c < end; ++c) {
    forget(w.lane);
    w.top = stage * Layout::stage;
    GroupChunk<W> group(w);
    auto scores = multiply_scores(w, group);
    w.wait(scores);
#pragma unroll
    for (int worker = 0; worker < W::most_workers; ++worker) {
      HeadChunk<W> chunk = Layout::chunk(w, stage, worker);
      decay_scores(w, call, rule, slice.head, group, chunk);
    }
    __syncthreads();  // decayed(c): the other stage is free, and the last outputs are complete
    forget(w.lane);
    if (W::parts > 1) forget(w.warp);
    const Tokens next = tokens_at(c + 1, first + count, count_next);
    if (c + 1 < end) load(stage ^ 1, next);
    commit_copies();
    const int count_later = count_of(c + 2);
    const HeadChunk<W> chunk = Layout::chunk(w, stage, w.worker());
    prepare_state(w, chunk.decays, chunk.x, carried);
    step_fused(
        w, call, group, chunk, carried, out,
        [&] {
          if (real) store_output(w, call, tokens_at(c - 1, first - count_before, count_before), slice, out);
          if (!some_without_rows && c + 1 < end && my_turn(c + 1)) sum_decays(stage ^ 1, next);
          if (my_turn(c + 2)) w.get(steps, call.dt, tokens_at(c + 2, next.first + count_next, count_later), slice.head);
        },
        [&] {
          if (real && !W::plain)
            put_states(w, call, unit, tokens_at(c, first, count), slice, c + 1 == end && leaves, carried);
          if (some_without_rows && c + 1 < end && my_turn(c + 1)) sum_decays(stage ^ 1, next);
          wait_copies<0>();
          __syncthreads();  // landed(c + 1)
          forget(w.lane);
        });
    finish_output(w, call, slice, chunk, out);
    first += count, count_before = count, count = count_next, count_next = count_later;
    stage ^= 1;
  }
  __syncthreads();
  if (real) store_output(w, call, tokens_at(end - 1, first - count_before, count_before), slice, out);
  if (W::plain && real && leaves) finish_state(w, call, call.sequences.of_unit(unit), slice, carried);
}

// --------------------------------------------------------------------------------------------------------- kernels of
// states alone

/// Shared memory of a ring of chunks that bring B, x and decays.
template <class W>
struct StateLayout {
  using S = Sizes<W>;
  static constexpr int stages = 3;
  static constexpr unsigned stage = S::group + whole_lines(S::head + S::decays);
  static constexpr unsigned bytes = stages * stage;

  static TILEMAMBA_DEVICE void place(W& w, int in_stage, GroupChunk<W>& group, HeadChunk<W>& chunk) {
    w.top = in_stage * stage;
    group.B = decltype(group.B)(w);
    chunk.x = decltype(chunk.x)(w);
    chunk.decays = Decays<W>(w);
  }
};

/// A block of such a kernel: (job, slice of a head, columns of the state).
struct StateBlock {
  std::int64_t job;
  Slice slice;
  int columns;
  TILEMAMBA_DEVICE StateBlock(const HeadBlocks& heads, int column_blocks)
      : job(blockIdx.x / column_blocks / heads.slices()),
        slice(heads.slice(static_cast<int>(blockIdx.x / column_blocks % heads.slices()))),
        columns(static_cast<int>(blockIdx.x % column_blocks)) {}
};

/// A segment's state summed from zero, its chunks from the last to the first. A sequence's last segment has nothing to
/// do.
template <class W>
__global__ void __launch_bounds__(W::threads, 2)
    sum_segments(const __grid_constant__ CallOf<W> call, const __grid_constant__ HeadBlocks heads, int column_blocks) {
  using Layout = StateLayout<W>;
  const StateBlock block(heads, column_blocks);
  if (block.job >= call.sequences.units()) return;
  const Sequence sequence = call.sequences.of_unit(block.job);
  const std::int64_t index = block.job - sequence.first_unit;
  if (index == sequence.units - 1) return;
  const Cut& cut = call.sequences.cut;
  const Slice slice = block.slice;
  const HeadRule rule = head_rule(call, slice.head);

  W w = make_worker<W>(call);
  w.first_column = block.columns * W::n;
  w.active = slice.channel + w.channel() < call.head_dim;
  const std::int64_t end = cut.unit_chunks;  // k-th from the last
  const auto tokens_of = [&](std::int64_t k) {
    return k < end ? cut.tokens(sequence, (index + 1) * end - 1 - k) : Tokens{};
  };
  const auto load = [&](std::int64_t k, int stage) {
    if (k < end) {
      GroupChunk<W> group;
      HeadChunk<W> chunk;
      Layout::place(w, stage, group, chunk);
      const Tokens tokens = tokens_of(k);
      w.get(group.B, call.B, tokens, slice);
      w.get(chunk.x, call.x, tokens, slice);
    }
    commit_copies();
  };
  const auto my_turn = [&](std::int64_t k) { return k < end && w.warp == static_cast<int>(k) % W::warps; };
  typename W::Steps steps{};
  const auto weights = [&](std::int64_t k, int stage, float after) {
    GroupChunk<W> group;
    HeadChunk<W> chunk;
    Layout::place(w, stage, group, chunk);
    chunk_cumsum(w, StepsCall<W>{steps, call.seq_idx}, rule, tokens_of(k), slice.head, chunk.decays);
    exit_weights(w, rule, after, chunk.decays);
  };
  const auto following = [](int stage) { return stage + 1 == Layout::stages ? 0 : stage + 1; };

  kernels::SegmentSum<W> segment(w);
  begin_segment_sum(w, segment);
  load(0, 0);
  load(1, 1);
  if (my_turn(0)) w.get(steps, call.dt, tokens_of(0), slice.head);
  if (my_turn(0)) weights(0, 0, 0.0f);
  if (my_turn(1)) w.get(steps, call.dt, tokens_of(1), slice.head);
  int stage = 0;
#pragma unroll 1
  for (std::int64_t k = 0; k < end; ++k) {
    forget(w.lane);
    wait_copies<1>();
    __syncthreads();
    load(k + 2, following(following(stage)));
    GroupChunk<W> group;
    HeadChunk<W> chunk;
    Layout::place(w, stage, group, chunk);
    auto sum = add_to_sum(w, group, chunk.decays, chunk.x, segment);
    segment.after = after_previous(w, chunk.decays, segment.after);
    stage = following(stage);
    if (my_turn(k + 1)) weights(k + 1, stage, segment.after);
    if (my_turn(k + 2)) w.get(steps, call.dt, tokens_of(k + 2), slice.head);
    w.wait(sum);
  }
  finish_segment_sum(w, call, sequence.first_slot + index, slice, segment);
  if (block.columns == 0 && w.warp == 0)
    finish_segment_decay(w, call, sequence.first_slot + index, slice.head, segment.after);
}

/// The state at each chunk's start, chunk after chunk. Job: a sequence.
template <class W>
__global__ void __launch_bounds__(W::threads, 2)
    pass_state(const __grid_constant__ CallOf<W> call, const __grid_constant__ HeadBlocks heads, int column_blocks) {
  using Layout = StateLayout<W>;
  const StateBlock block(heads, column_blocks);
  const Sequence sequence = call.sequences[block.job];
  const Cut& cut = call.sequences.cut;
  const Slice slice = block.slice;
  const HeadRule rule = head_rule(call, slice.head);

  W w = make_worker<W>(call);
  w.first_column = block.columns * W::n;
  w.active = slice.channel + w.channel() < call.head_dim;
  const auto load = [&](std::int64_t c, int stage) {
    if (c < sequence.units) {
      GroupChunk<W> group;
      HeadChunk<W> chunk;
      Layout::place(w, stage, group, chunk);
      const Tokens tokens = cut.tokens(sequence, c);
      w.get(group.B, call.B, tokens, slice);
      w.get(chunk.x, call.x, tokens, slice);
    }
    commit_copies();
  };
  const auto decays = [&](std::int64_t c, int stage) {  // a warp in turn, a chunk ahead
    if (c >= sequence.units || w.warp != static_cast<int>(c) % W::warps) return;
    GroupChunk<W> group;
    HeadChunk<W> chunk;
    Layout::place(w, stage, group, chunk);
    w.get(chunk.decays.cum, call.cum, sequence.first_unit + c, slice.head);
    w.get(chunk.decays.delta, call.delta, sequence.first_unit + c, slice.head);
    w.scan_changes(chunk.decays.document, call.seq_idx, cut.tokens(sequence, c));
    entry_decays(w, chunk.decays);
    exit_weights(w, rule, 0.0f, chunk.decays);
  };
  const auto following = [](int stage) { return stage + 1 == Layout::stages ? 0 : stage + 1; };

  Carried<W> carried(w);
  load(0, 0);
  load(1, 1);
  decays(0, 0);
  begin_state(w, call, sequence, slice, carried);
  int stage = 0;
#pragma unroll 1
  for (std::int64_t c = 0; c < sequence.units; ++c) {
    forget(w.lane);
    wait_copies<1>();
    __syncthreads();
    load(c + 2, following(following(stage)));
    GroupChunk<W> group;
    HeadChunk<W> chunk;
    Layout::place(w, stage, group, chunk);
    w.put(call.entry_states, std::int64_t{0}, sequence.first_unit + c, slice, carried.S);
    forget(w.lane);
    prepare_state(w, chunk.decays, chunk.x, carried);
    auto advance = advance_state(w, group, carried);
    stage = following(stage);
    decays(c + 1, stage);
    w.wait(advance);
    put_states(w, call, sequence.first_unit + c, cut.tokens(sequence, c), slice, c + 1 == sequence.units, carried);
  }
  if (sequence.units == 0) finish_state(w, call, sequence, slice, carried);
}

// ---------------------------------------------------------------------------------------------------- the other staged
// kernels

/// chunk_cumsum of every chunk and head. Warp: (unit, head).
template <class W>
__global__ void __launch_bounds__(128) cumsum(const __grid_constant__ CallOf<W> call) {
  W w = make_worker<W>(call);
  w.top = w.warp * Sizes<W>::decays;
  Decays<W> decays(w);
  const std::int64_t job = static_cast<std::int64_t>(blockIdx.x) * 4 + w.warp;
  const std::int64_t unit = job / call.heads;
  const int head = static_cast<int>(job % call.heads);
  if (unit >= call.sequences.units()) return;
  const Sequence sequence = call.sequences.of_unit(unit);
  const Tokens tokens = call.sequences.cut.tokens(sequence, unit - sequence.first_unit);
  chunk_cumsum(w, call, head_rule(call, head), tokens, head, decays);
  w.put(call.cum, unit, head, decays.cum);
  w.put(call.delta, unit, head, decays.delta);
}

/// Shared memory: [C][B][x, decays][decayed scores][parts of sums][D][leaving][z]
template <class W>
struct OutLayout {
  using S = Sizes<W>;
  static constexpr unsigned head = whole_lines(S::head + S::decays);
  static constexpr unsigned decayed = 2 * S::group + W::most_workers * head;
  static constexpr unsigned exchange = decayed + W::most_workers * S::decayed;
  static constexpr unsigned skip = exchange + W::exchange_bytes;
  static constexpr unsigned leaving = skip + whole_lines(W::most_workers * W::skip_bytes);
  static constexpr unsigned narrow_bytes = leaving + W::most_workers * S::leaving;
  static constexpr unsigned wide_bytes = leaving + W::most_workers * whole_lines(S::wide_leaving);
  static constexpr unsigned gate_bytes = W::most_workers * S::head;

  static TILEMAMBA_DEVICE HeadChunk<W> chunk(W& w, int worker) {
    return head_chunk(w, 2 * S::group + worker * head, decayed + worker * S::decayed,
                      (w.wide ? wide_bytes : narrow_bytes) + worker * S::head);
  }
};

/// The outputs of a chunk. Block: (unit, block of heads).
template <class W>
__global__ void __launch_bounds__(W::threads, 1)
    compute_out(const __grid_constant__ CallOf<W> call, const __grid_constant__ HeadBlocks heads) {
  using Layout = OutLayout<W>;
  const std::int64_t unit = blockIdx.x / heads.count;
  const int head_block = static_cast<int>(blockIdx.x % heads.count);
  if (unit >= call.sequences.units()) return;
  const Sequence sequence = call.sequences.of_unit(unit);
  const Tokens tokens = call.sequences.cut.tokens(sequence, unit - sequence.first_unit);

  W w = make_worker<W>(call);
  w.exchange = Layout::exchange;
  w.skip = Layout::skip + w.worker() * W::skip_bytes;
  const int size = heads.size(head_block);
  const bool real = w.worker() < size;
  const Slice slice = heads.slice(head_block, kernels::least(w.worker(), size - 1));
  w.active = real && slice.channel + w.channel() < call.head_dim;
  const HeadRule rule = head_rule(call, slice.head);

  GroupChunk<W> group(w);
  HeadChunk<W> chunk = Layout::chunk(w, w.worker());
  w.get(group.C, call.C, tokens, slice);
  w.get(group.B, call.B, tokens, slice);
  w.get(chunk.x, call.x, tokens, slice);
  if (call.z.given) w.get(chunk.z, call.z, tokens, slice);
  commit_copies();
  if (w.head_warp() == 0) {
    w.get(chunk.decays.cum, call.cum, unit, slice.head);
    w.get(chunk.decays.delta, call.delta, unit, slice.head);
    w.scan_changes(chunk.decays.document, call.seq_idx, tokens);
    entry_decays(w, chunk.decays);
    tabulate_decays(w, rule, chunk.decays);
  }
  w.load_skip(call.D, slice);
  kernels::StateOperand<W> S_in(w);
  w.get(S_in, call.entry_states, std::int64_t{0}, unit, slice);
  wait_copies<0>();
  __syncthreads();
  forget(w.lane);
  auto scores = multiply_scores(w, group);
  w.wait(scores);
#pragma unroll
  for (int worker = 0; worker < W::most_workers; ++worker) {
    HeadChunk<W> other = Layout::chunk(w, worker);
    decay_scores(w, call, rule, slice.head, group, other);
  }
  w.top = Layout::leaving + w.worker() * (w.wide ? whole_lines(Sizes<W>::wide_leaving) : Sizes<W>::leaving);
  Output<W> out(w);
  kernels::compute_out(w, call, group, chunk, S_in, out, [&] {
    __syncthreads();
    forget(w.lane);
  });
  finish_output(w, call, slice, chunk, out);
  __syncthreads();
  if (real) store_output(w, call, tokens, slice, out);
}

}  // namespace tilemamba::cuda::sm80
