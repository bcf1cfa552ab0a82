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
/// The same of what follows from the lane, where the state leaves no registers for it.
template <class W>
TILEMAMBA_DEVICE void forget_addresses(W& w) {
  if constexpr (!W::roomy) forget(w.lane);
  if constexpr (W::blocks_at_once > 2) forget(w.warp);
}
TILEMAMBA_DEVICE void forget(std::int64_t& value) { asm volatile("" : "+l"(value)); }

/// Sizes of the tiles of a worker.
template <class W>
struct Sizes {
  static constexpr unsigned group = W::template Plane<Q, N>::bytes;  // C, or B
  static constexpr unsigned head = W::template Plane<Q, P>::bytes;   // x, or z
  static constexpr unsigned decays = (W::precise ? 6 : 5) * W::q * 4;
  static constexpr unsigned decayed = W::template Plane<Q, Q>::bytes;
  static constexpr unsigned leaving = head;
  static constexpr unsigned wide_leaving = W::template Leaving<Q, P>::wide_bytes;
  static_assert(decays % 128 == 0 || W::q < 32, "planes begin at multiples of 128 bytes");
};
constexpr unsigned whole_lines(unsigned bytes) { return (bytes + 127) / 128 * 128; }

/// A worker's part of a chunk, each piece where its driver has it.
template <class W>
TILEMAMBA_DEVICE HeadChunk<W> head_chunk(W& w, unsigned x, unsigned decays, unsigned decayed, unsigned z) {
  HeadChunk<W> chunk;
  w.top = decays;
  chunk.decays = Decays<W>(w);
  chunk.x.base = x;
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

/// Shared memory of the walk: [stage 0][stage 1][decays of three chunks][decayed scores][parts of sums][D][leaving][z
/// of both stages]
template <class W>
struct FusedLayout {
  using S = Sizes<W>;
  static constexpr unsigned stage = 2 * S::group + W::most_workers * S::head;
  static constexpr unsigned decays = 2 * stage;
  static constexpr unsigned decayed = decays + 3 * W::most_workers * whole_lines(S::decays);
  static constexpr unsigned exchange = decayed + W::most_workers * S::decayed;
  static constexpr unsigned skip = exchange + W::exchange_bytes;
  static constexpr unsigned leaving = skip + whole_lines(W::most_workers * W::skip_bytes);
  static constexpr unsigned narrow_bytes = leaving + W::most_workers * S::leaving;
  static constexpr unsigned wide_bytes = leaving + W::most_workers * whole_lines(S::wide_leaving);
  static constexpr unsigned gate_bytes = 2 * W::most_workers * S::head;

  static TILEMAMBA_DEVICE unsigned leaving_of(const W& w, int worker) {
    return leaving + worker * (w.wide ? whole_lines(S::wide_leaving) : S::leaving);
  }
  static TILEMAMBA_DEVICE HeadChunk<W> chunk(W& w, int in_stage, int slot, int worker) {
    return head_chunk(w, in_stage * stage + 2 * S::group + worker * S::head,
                      decays + (slot * W::most_workers + worker) * whole_lines(S::decays),
                      decayed + worker * S::decayed,
                      (w.wide ? wide_bytes : narrow_bytes) + (in_stage * W::most_workers + worker) * S::head);
  }
};

/// Outputs and states of a segment, for the heads of a block. Block: (unit, block of heads).
///
/// Two barriers a chunk: `landed`, when its tiles and decays are there, and `decayed`, when its decayed scores are.
/// Between decayed(c) and landed(c + 1) fly the loads of c + 1, the products of c, the outputs of c - 1 on their way to
/// memory, and three warps of each head have a third of a chunk's decays each: one weighs for c + 1, one sums for c +
/// 2, one asks for the steps of c + 3.
template <class W>
__global__ void __launch_bounds__(W::threads, W::blocks_at_once)
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

  const std::int64_t before = cut.tokens(sequence, begin).first;
  // A plain call's tensors are read and written without a question of where.
  const Tokens start{sequence.batch, before, 0, false};
  [[maybe_unused]] auto C_stream = w.template stream<N>(call.C, start, slice);
  [[maybe_unused]] auto B_stream = w.template stream<N>(call.B, start, slice);
  [[maybe_unused]] auto x_stream = w.template stream<P>(call.x, start, slice);
  [[maybe_unused]] auto y_stream = w.template stream<P>(call.y, start, slice);
  B_stream.wanted = C_stream.wanted, y_stream.wanted = x_stream.wanted;  // as they are; it spares registers
  const auto load = [&](int stage, const Tokens& tokens) {
    w.top = stage * Layout::stage;
    GroupChunk<W> group(w);
    HeadChunk<W> chunk = Layout::chunk(w, stage, 0, w.worker());
    if constexpr (W::plain) {
      w.get(group.C, C_stream, call.C, tokens.count);
      w.get(group.B, B_stream, call.B, tokens.count);
      w.get(chunk.x, x_stream, call.x, tokens.count);
      return;
    }
    w.get(group.C, call.C, tokens, slice);
    w.get(group.B, call.B, tokens, slice);
    w.get(chunk.x, call.x, tokens, slice);
    if (call.z.given) w.get(chunk.z, call.z, tokens, slice);
  };
  // Which warp of a head has the decays of a chunk: one in turn, of those without rows of y where there are such.
  constexpr bool some_without_rows = W::owners < W::parts;
  constexpr int first_in_turn = some_without_rows ? W::owners * W::channel_blocks : 0;
  static_assert(W::head_warps - first_in_turn >= 3);
  const auto my_turn = [&](int c) {
    return c < end && w.head_warp() == first_in_turn + (c - begin) % (W::head_warps - first_in_turn);
  };
  typename W::Steps steps{{}, call.dt.dtype};
  const auto sum_decays = [&](int slot, const Tokens& tokens) {
    HeadChunk<W> chunk = Layout::chunk(w, 0, slot, w.worker());
    chunk_cumsum(w, StepsCall<W>{steps, call.seq_idx}, rule, tokens, slice.head, chunk.decays);
    entry_decays(w, chunk.decays);
  };
  const auto weigh_decays = [&](int slot) {
    HeadChunk<W> chunk = Layout::chunk(w, 0, slot, w.worker());
    exit_weights(w, rule, 0.0f, chunk.decays);
    tabulate_decays(w, rule, chunk.decays);
  };
  const auto following = [](int slot) { return slot == 2 ? 0 : slot + 1; };
  const auto tokens_of = [&](int c) {
    if (c < begin || c >= end) return Tokens{};
    if constexpr (!W::plain) return cut.tokens(sequence, c);
    const std::int64_t position = static_cast<std::int64_t>(c) * W::q;  // no chunk but the last is short
    return Tokens{sequence.batch, sequence.first + position,
                  static_cast<int>(kernels::least<std::int64_t>(W::q, sequence.length - position)), false};
  };

  Carried<W> carried(w);
  w.top = Layout::leaving_of(w, w.worker());
  Output<W> out(w);
  const auto store = [&](const Tokens& tokens) {
    if constexpr (W::plain && W::blocks_at_once < 3) {
      if (tokens.count > 0) w.put(y_stream, call.y, tokens.count, out.leaving);
    } else {
      store_output(w, call, tokens, slice, out);
    }
  };
  load(0, tokens_of(begin));
  commit_copies();
#pragma unroll 1
  for (int k = 0; k < 3; ++k) {
    if (!my_turn(begin + k)) continue;
    const Tokens tokens = tokens_of(begin + k);
    w.get(steps, call.dt, tokens, slice.head);
    if (k < 2) sum_decays(k, tokens);
    if (k == 0) weigh_decays(0);
  }
  w.load_skip(call.D, slice);
  gather_segments(w, call, sequence, segment, slice, carried);
  wait_copies<0>();
  __syncthreads();  // landed(begin)
  int stage = 0, slot = 0;
#pragma unroll 1
  for (int c = begin; c < end; ++c) {
    forget_addresses(w);
    w.top = stage * Layout::stage;
    GroupChunk<W> group(w);
    const HeadChunk<W> chunk = Layout::chunk(w, stage, slot, w.worker());
    if constexpr (W::parts == 1) {  // multiply_scores and multiply_state as one product of C
      w.operand(carried.S_in, carried.S);
      w.clear(group.scores);
      w.clear(out.y);
      auto both = w.mma_ABt(tile::add(group.scores), tile::add(out.y), group.C, group.B, carried.S_in);
      w.wait(both);
    } else {
      auto scores = multiply_scores(w, group);
      w.wait(scores);
      sum_scores(w, group);
    }
#pragma unroll
    for (int worker = 0; worker < W::most_workers; ++worker) {
      HeadChunk<W> other = Layout::chunk(w, stage, slot, worker);
      decay_scores(w, call, rule, slice.head, group, other);
    }
    __syncthreads();  // decayed(c): the other stage is free, and the last outputs are complete
    forget_addresses(w);
    if (W::parts > 1) forget(w.warp);
    if (c + 1 < end) load(stage ^ 1, tokens_of(c + 1));
    commit_copies();
    slot = following(slot);
    const auto decays_to_come = [&] {
      if (my_turn(c + 1)) weigh_decays(slot);
      if (my_turn(c + 2)) sum_decays(following(slot), tokens_of(c + 2));
      if (my_turn(c + 3)) w.get(steps, call.dt, tokens_of(c + 3), slice.head);
    };
    const auto under_first = [&] {
      if (real) store(tokens_of(c - 1));
      if (!some_without_rows) decays_to_come();
    };
    const auto under_last = [&] {
      if (real && !W::plain) put_states(w, call, unit, tokens_of(c), slice, c + 1 == end && leaves, carried);
      if (some_without_rows) decays_to_come();
      wait_copies<0>();
      __syncthreads();  // landed(c + 1)
      forget_addresses(w);
    };
    prepare_state(w, chunk.decays, chunk.x, carried);
    if constexpr (W::parts == 1) {
      auto advance = advance_state(w, group, carried);
      under_first();
      auto within = multiply_decayed(w, call, chunk, out);
      w.wait(advance, within);
      under_last();
    } else {
      step_fused(w, call, group, chunk, carried, out, under_first, under_last);
    }
    finish_output(w, call, slice, chunk, out);
    stage ^= 1;
  }
  __syncthreads();
  if (real) store(tokens_of(end - 1));
  if (W::plain && real && leaves) {
    int here = static_cast<int>(blockIdx.x);  // found again: in between there are no registers for it
    forget(here);
    finish_state(w, call, call.sequences.of_unit(here / heads.count), slice, carried);
  }
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
__global__ void __launch_bounds__(W::threads, W::n <= 64 && W::Element::size == 2 ? 4 : 2)
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
  const std::int64_t end = cut.unit_chunks;
  const Tokens last = cut.tokens(sequence, (index + 1) * end - 1);
  const auto tokens_of = [&](std::int64_t k) {  // of the k-th chunk from the last
    if constexpr (W::plain) return Tokens{last.batch, last.first - k * W::q, W::q, false};
    return k < end ? cut.tokens(sequence, (index + 1) * end - 1 - k) : Tokens{};
  };
  [[maybe_unused]] auto B_stream = w.template stream<N, -1>(call.B, last, slice);
  [[maybe_unused]] auto x_stream = w.template stream<P, -1>(call.x, last, slice);
  const auto load = [&](std::int64_t k, int stage) {
    if (k < end) {
      GroupChunk<W> group;
      HeadChunk<W> chunk;
      Layout::place(w, stage, group, chunk);
      if constexpr (W::plain) {
        w.get(group.B, B_stream, call.B, W::q);
        w.get(chunk.x, x_stream, call.x, W::q);
      } else {
        w.get(group.B, call.B, tokens_of(k), slice);
        w.get(chunk.x, call.x, tokens_of(k), slice);
      }
    }
    commit_copies();
  };
  // A warp in turn has the decays of a chunk: it asks for the steps, sums them when the chunk's tiles are asked for,
  // and weighs when they are about to be used. So three warps do a third of it each between two barriers.
  const auto my_turn = [&](std::int64_t k) { return k < end && w.warp == static_cast<int>(k) % W::warps; };
  typename W::Steps steps{{}, call.dt.dtype};
  const auto decays_of = [&](int stage) {
    GroupChunk<W> group;
    HeadChunk<W> chunk;
    Layout::place(w, stage, group, chunk);
    return chunk.decays;
  };
  const auto sum_decays = [&](std::int64_t k, int stage) {
    Decays<W> decays = decays_of(stage);
    chunk_cumsum(w, StepsCall<W>{steps, call.seq_idx}, rule, tokens_of(k), slice.head, decays);
  };
  const auto weights = [&](int stage, float after) {
    Decays<W> decays = decays_of(stage);
    exit_weights(w, rule, after, decays);
  };
  const auto following = [](int stage) { return stage + 1 == Layout::stages ? 0 : stage + 1; };

  kernels::SegmentSum<W> segment(w);
  begin_segment_sum(w, segment);
  load(0, 0);
  load(1, 1);
#pragma unroll 1
  for (int k = 0; k < 3; ++k) {
    if (!my_turn(k)) continue;
    w.get(steps, call.dt, tokens_of(k), slice.head);
    if (k < 2) sum_decays(k, k);
    if (k == 0) weights(0, 0.0f);
  }
  int stage = 0;
#pragma unroll 1
  for (std::int64_t k = 0; k < end; ++k) {
    if constexpr (!W::plain) forget(w.lane);
    wait_copies<1>();
    __syncthreads();
    load(k + 2, following(following(stage)));
    GroupChunk<W> group;
    HeadChunk<W> chunk;
    Layout::place(w, stage, group, chunk);
    auto sum = add_to_sum(w, group, chunk.decays, chunk.x, segment);
    segment.after = after_previous(w, chunk.decays, w.last(chunk.decays.cum), segment.after);
    stage = following(stage);
    if (my_turn(k + 1)) weights(stage, segment.after);
    if (my_turn(k + 2)) sum_decays(k + 2, following(stage));
    if (my_turn(k + 3)) w.get(steps, call.dt, tokens_of(k + 3), slice.head);
    w.wait(sum);
  }
  finish_segment_sum(w, call, sequence.first_slot + index, slice, segment);
  if (block.columns == 0 && w.warp == 0)
    finish_segment_decay(w, call, sequence.first_slot + index, slice.head, segment.after);
}

/// Threads that only have decays where the state is passed from chunk to chunk: two warps in turn.
inline constexpr int decay_threads = 64;

/// The state at each chunk's start, chunk after chunk. Job: a sequence.
template <class W>
__global__ void __launch_bounds__(W::threads + decay_threads, 2)
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
  const auto tokens_of = [&](std::int64_t c) {
    if constexpr (!W::plain) return cut.tokens(sequence, c);
    const std::int64_t position = c * W::q;  // no chunk but the last is short
    return Tokens{sequence.batch, sequence.first + position,
                  static_cast<int>(kernels::least<std::int64_t>(W::q, sequence.length - position)), c == 0};
  };
  const auto load = [&](std::int64_t c, int stage) {
    if (c < sequence.units) {
      GroupChunk<W> group;
      HeadChunk<W> chunk;
      Layout::place(w, stage, group, chunk);
      w.get(group.B, call.B, tokens_of(c), slice);
      w.get(chunk.x, call.x, tokens_of(c), slice);
    }
    commit_copies();
  };
  const bool has_decays = w.warp >= W::warps;
  const auto my_turn = [&](std::int64_t c) {
    return c < sequence.units && w.warp == W::warps + static_cast<int>(c) % 2;
  };
  typename W::Steps steps{{}, call.dt.dtype};
  const auto decays_of = [&](int stage) {
    GroupChunk<W> group;
    HeadChunk<W> chunk;
    Layout::place(w, stage, group, chunk);
    return chunk.decays;
  };
  const auto sum_decays = [&](std::int64_t c, int stage) {
    Decays<W> decays = decays_of(stage);
    chunk_cumsum(w, StepsCall<W>{steps, call.seq_idx}, rule, tokens_of(c), slice.head, decays);
    entry_decays(w, decays);
  };
  const auto weigh_decays = [&](int stage) {
    Decays<W> decays = decays_of(stage);
    exit_weights(w, rule, 0.0f, decays);
  };
  const auto following = [](int stage) { return stage + 1 == Layout::stages ? 0 : stage + 1; };

  Carried<W> carried(w);
  if (has_decays) {
#pragma unroll 1
    for (int c = 0; c < 3; ++c) {
      if (!my_turn(c)) continue;
      w.get(steps, call.dt, tokens_of(c), slice.head);
      if (c < 2) sum_decays(c, c);
      if (c == 0) weigh_decays(0);
    }
  } else {
    load(0, 0);
    load(1, 1);
    begin_state(w, call, sequence, slice, carried);
  }
  int stage = 0;
#pragma unroll 1
  for (std::int64_t c = 0; c < sequence.units; ++c) {
    forget(w.lane);
    wait_copies<1>();
    __syncthreads();
    const int here = stage;
    stage = following(stage);
    if (has_decays) {
      if (my_turn(c + 1)) weigh_decays(stage);
      if (my_turn(c + 2)) sum_decays(c + 2, following(stage));
      if (my_turn(c + 3)) w.get(steps, call.dt, tokens_of(c + 3), slice.head);
      continue;
    }
    load(c + 2, following(stage));
    GroupChunk<W> group;
    HeadChunk<W> chunk;
    Layout::place(w, here, group, chunk);
    prepare_state(w, chunk.decays, chunk.x, carried);
    w.put(call.entry_states, sequence.first_unit + c, slice, carried.S_in);
    forget(w.lane);
    auto advance = advance_state(w, group, carried);
    w.wait(advance);
    if constexpr (!W::plain)
      put_states(w, call, sequence.first_unit + c, tokens_of(c), slice, c + 1 == sequence.units, carried);
  }
  if (!has_decays && (W::plain || sequence.units == 0)) finish_state(w, call, sequence, slice, carried);
}

// ------------------------------------------------------------------------------------------------ outputs of the
// staged schedule

/// Shared memory: [a ring of C, B and the state, some columns at a time; then decayed scores, outputs that are wide,
/// z][x, then outputs][decays][D]
template <class W>
struct OutLayout {
  using S = Sizes<W>;
  static_assert(W::parts == 1);
  static constexpr int stages = 2;
  static constexpr unsigned state = 2 * S::group, stage = state + W::blocks_bytes;
  static constexpr unsigned z_bytes = W::most_workers * S::head;
  static constexpr unsigned wide = W::Element::size == 2 ? whole_lines(S::wide_leaving) : 0;
  static constexpr unsigned z = W::most_workers * (S::decayed > wide ? S::decayed : wide);
  static constexpr unsigned x = z + z_bytes > stages* stage ? z + z_bytes : stages* stage;
  static constexpr unsigned decays = x + W::most_workers * S::head;
  static constexpr unsigned skip = decays + W::most_workers * whole_lines(S::decays);
  static constexpr unsigned bytes = skip + whole_lines(W::most_workers * W::skip_bytes);
  static constexpr unsigned narrow_bytes = bytes, wide_bytes = bytes, gate_bytes = 0;

  static TILEMAMBA_DEVICE HeadChunk<W> chunk(W& w, int worker) {
    return head_chunk(w, x + worker * S::head, decays + worker * whole_lines(S::decays), worker * S::decayed,
                      z + worker * S::head);
  }
};

/// The outputs of a chunk. The columns of C, B and the state come in turn; multiply_scores and multiply_state are one
/// product of C, summed over them. Block: (unit, block of heads).
template <class W>
__global__ void __launch_bounds__(W::threads, 1)
    compute_out(const __grid_constant__ CallOf<W> call, const __grid_constant__ HeadBlocks heads) {
  using Layout = OutLayout<W>;
  const std::int64_t unit = blockIdx.x / heads.count;
  const int head_block = static_cast<int>(blockIdx.x % heads.count);
  if (unit >= call.sequences.units()) return;
  const auto tokens_of = [&](std::int64_t unit) {
    const Sequence sequence = call.sequences.of_unit(unit);
    return call.sequences.cut.tokens(sequence, unit - sequence.first_unit);
  };
  const Tokens tokens = tokens_of(unit);

  W w = make_worker<W>(call);
  w.skip = Layout::skip + w.worker() * W::skip_bytes;
  const int size = heads.size(head_block);
  const bool real = w.worker() < size;
  const Slice slice = heads.slice(head_block, kernels::least(w.worker(), size - 1));
  w.active = real && slice.channel + w.channel() < call.head_dim;
  const HeadRule rule = head_rule(call, slice.head);

  GroupChunk<W> group(w);
  HeadChunk<W> chunk = Layout::chunk(w, w.worker());
  const int turns = kernels::divide_up(call.C.width, W::n);
  const auto place = [&](int stage) {
    w.top = stage * Layout::stage;
    group.C = decltype(group.C)(w);
    group.B = decltype(group.B)(w);
  };
  const auto load = [&](int turn, int stage) {
    if (turn < turns) {
      place(stage);
      w.first_column = turn * W::n;
      w.get(group.C, call.C, tokens, slice);
      w.get(group.B, call.B, tokens, slice);
      w.fetch(w.top, call.entry_states, unit, slice);
    }
    commit_copies();
  };

  w.get(chunk.x, call.x, tokens, slice);
  load(0, 0);
  // A warp for each head has its decays, later: its steps are on their way.
  typename W::Steps steps{{}, call.dt.dtype};
  const bool has_decays = w.head_warp() == 0;
  if (has_decays) w.get(steps, call.dt, tokens, slice.head);
  w.load_skip(call.D, slice);
  w.top = w.wide ? w.worker() * Layout::wide : chunk.x.base;
  Output<W> out(w);
  w.clear(group.scores);
  w.clear(out.y);
#pragma unroll 1
  for (int turn = 0; turn < turns; ++turn) {
    forget(w.lane);
    wait_copies<0>();
    __syncthreads();
    load(turn + 1, (turn + 1) % Layout::stages);
    place(turn % Layout::stages);
    kernels::StateOperand<W> S_in(w);
    w.get(S_in, w.top);
    auto both = w.mma_ABt(tile::add(group.scores), tile::add(out.y), group.C, group.B, S_in);
    w.wait(both);
    if (turn == 0 && has_decays) {
      chunk_cumsum(w, StepsCall<W>{steps, call.seq_idx}, rule, tokens, slice.head, chunk.decays);
      entry_decays(w, chunk.decays);
      tabulate_decays(w, rule, chunk.decays);
    }
  }
  __syncthreads();  // C and B have been read
  forget(w.lane);
  if (call.z.given) w.get(chunk.z, call.z, tokens, slice);
  commit_copies();
#pragma unroll 1
  for (int worker = 0; worker < W::most_workers; ++worker) {
    HeadChunk<W> other = Layout::chunk(w, worker);
    decay_scores(w, call, rule, slice.head, group, other);
  }
  wait_copies<0>();
  __syncthreads();
  forget(w.lane);
  auto within = multiply_decayed(w, call, chunk, out);
  w.wait(within);
  if constexpr (!W::plain) __syncthreads();  // outputs that are wide lie where decayed scores were
  finish_output(w, call, slice, chunk, out);
  __syncthreads();
  if (!real) return;
  int here = static_cast<int>(blockIdx.x);  // the tokens are found again: in between there are no registers for them
  forget(here);
  store_output(w, call, tokens_of(here / heads.count), slice, out);
}

}  // namespace tilemamba::cuda::sm80
