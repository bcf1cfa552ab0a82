// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a block does: who does what of the text, when, and where its tiles lie.
#pragma once

#include "backends/hip/tile.hpp"
#include "kernels/compute_out.hpp"
#include "kernels/scan_fused.hpp"

namespace tilemamba::hip {

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
TILEMAMBA_FN W make_worker(const Call& call) {
  W w{};
  w.wave = W::M::wave();
  w.lane = W::M::lane();
  w.documents = call.seq_idx.given;
  w.wide = W::size == 2 && call.y.dtype == DType::f32;
  w.active = true;
  return w;
}

/// Sizes of the tiles of a worker, in bytes of local memory.
template <class W>
struct Sizes {
  static constexpr unsigned group = W::template Plane<Q, N>::bytes;  // C, or B
  static constexpr unsigned head = W::template Plane<Q, P>::bytes;   // x, or z
  static constexpr unsigned decays = 5 * W::q * 4 + W::DecayTable::bytes;
  static constexpr unsigned decayed = W::template Plane<Q, Q>::bytes;
  static constexpr unsigned leaving = head;
  static constexpr unsigned wide_leaving = W::size == 2 ? W::template Plane<Q, P, 4>::bytes : head;
};

/// Tiles on their way from memory.
template <class W>
struct Arriving {
  typename W::template Fetched<N> C, B;
  typename W::template Fetched<P> x, z;
};

/// dt comes from where it was loaded to.
template <class W>
struct StepsCall {
  const typename W::Steps& dt;
  const tile::TokenView& seq_idx;
};

/// put_snapshot, and finish_state where the sequence ends, with the ways to store a state compiled once.
template <class W>
TILEMAMBA_FN void put_states(W& w, const Call& call, const Sequence& sequence, const Tokens& tokens, const Slice& slice,
                             bool final, const Carried<W>& carried) {
  const std::int64_t snapshot = call.chunk_states.given ? call.sequences.cut.snapshot_after(sequence, tokens) : -1;
  TILEMAMBA_NO_UNROLL
  for (int k = 0; k < 2; ++k) {
    if (k == 0 ? snapshot < 0 : !(final && call.final_states.given)) continue;
    w.put(k == 0 ? call.chunk_states : call.final_states, k == 0 ? sequence.batch : 0,
          k == 0 ? sequence.first_snapshot + snapshot : sequence.index, slice, carried.S);
  }
}

// ------------------------------------------------------------------------------------------------------ the fused walk

/// Local memory of the walk: [C][B][D] and for each worker [x][decayed scores], [decays] of two chunks, [leaving], [z];
/// and [parts of sums].
template <class W>
struct FusedLayout {
  using S = Sizes<W>;
  static constexpr unsigned exchange = 2 * S::group;
  static constexpr unsigned skip = exchange + W::exchange_bytes;
  static constexpr unsigned decays = skip + W::most_workers * W::skip_bytes;
  static constexpr unsigned heads = decays + 2 * W::most_workers * S::decays;
  static constexpr unsigned head = S::head + S::decayed;
  static constexpr unsigned leaving = heads + W::most_workers * head;
  static constexpr unsigned narrow_bytes = leaving + W::most_workers * S::leaving;
  static constexpr unsigned wide_bytes = leaving + W::most_workers * S::wide_leaving;
  static constexpr unsigned gate_bytes = W::most_workers * S::head;
  static_assert(S::group % 16 == 0 && S::head % 16 == 0 && S::decayed % 16 == 0 && W::exchange_bytes % 16 == 0);

  static TILEMAMBA_FN HeadChunk<W> chunk(W& w, int worker, int in_turn) {
    const auto index = static_cast<unsigned>(worker);
    w.top = heads + index * head;
    HeadChunk<W> chunk(w);
    w.top = decays + (static_cast<unsigned>(in_turn) * W::most_workers + index) * S::decays;
    chunk.decays = Decays<W>(w);
    chunk.decayed.base = heads + index * head + S::head;
    chunk.z.base = (w.wide ? wide_bytes : narrow_bytes) + index * S::head;
    return chunk;
  }
  static TILEMAMBA_FN unsigned leaving_of(const W& w, int worker) {
    return leaving + static_cast<unsigned>(worker) * (w.wide ? S::wide_leaving : S::leaving);
  }
};

/// Outputs and states of a segment, for the heads of a block. Block: (unit, block of heads).
///
/// Three meetings a chunk: when its tiles and decays are in local memory, when its decayed scores are, and when all of
/// them have been read. The tiles of the next chunk are asked for after the first and kept in registers until after the
/// third. Under the products one wave of each head sums the decays of the next chunk, whose steps it asked for a chunk
/// earlier.
template <class W>
TILEMAMBA_FN void fused(const Call& call, const HeadBlocks& heads) {
  using M = typename W::M;
  using Layout = FusedLayout<W>;
  const std::int64_t unit = M::block() / heads.count;
  const int head_block = static_cast<int>(M::block() % heads.count);
  if (unit >= call.sequences.units()) return;
  const Sequence sequence = call.sequences.of_unit(unit);
  const Cut& cut = call.sequences.cut;
  const std::int64_t segment = unit - sequence.first_unit;
  const std::int64_t begin = segment * cut.unit_chunks;
  // An empty sequence has a chunk without tokens: it leaves the state as it is.
  const std::int64_t chunks = sequence.length == 0 ? 1 : cut.chunks(sequence.length);
  const std::int64_t end = kernels::least(chunks, begin + cut.unit_chunks);

  W w = make_worker<W>(call);
  w.exchange = Layout::exchange;
  w.skip = Layout::skip + static_cast<unsigned>(w.worker()) * W::skip_bytes;
  const bool leaves = segment == sequence.units - 1;
  const int size = heads.size(head_block);
  const bool real = w.worker() < size;
  const Slice slice = heads.slice(head_block, kernels::least(w.worker(), size - 1));
  w.active = real && slice.channel + w.channel() < call.head_dim;
  const HeadRule rule = head_rule(call, slice.head);
  const auto tokens_of = [&](std::int64_t c) {
    return c < end ? cut.tokens(sequence, c) : Tokens{sequence.batch, sequence.first, 0, false};
  };

  GroupChunk<W> group;
  w.top = 0;
  group.C = decltype(group.C)(w);
  group.B = decltype(group.B)(w);
  Arriving<W> arriving;
  const auto fetch = [&](std::int64_t c) {
    const Tokens tokens = tokens_of(c);
    w.get(arriving.C, call.C, tokens, slice);
    w.get(arriving.B, call.B, tokens, slice);
    w.get(arriving.x, call.x, tokens, slice);
    if (call.z.given) w.get(arriving.z, call.z, tokens, slice);
  };
  const auto place = [&] {
    const HeadChunk<W> chunk = Layout::chunk(w, w.worker(), 0);
    w.place(group.C, arriving.C);
    w.place(group.B, arriving.B);
    w.place(chunk.x, arriving.x);
    if (call.z.given) w.place(chunk.z, arriving.z);
  };
  const auto in_turn = [&](std::int64_t c) { return static_cast<int>((c - begin) % 2); };
  const auto my_turn = [&](std::int64_t c) { return w.head_wave() == static_cast<int>((c - begin) % W::head_waves); };
  typename W::Steps steps{};
  const auto get_steps = [&](std::int64_t c) {
    if (my_turn(c)) w.get(steps, call.dt, tokens_of(c), slice.head);
  };
  const auto sum_decays = [&](std::int64_t c) {
    if (!my_turn(c)) return;
    HeadChunk<W> chunk = Layout::chunk(w, w.worker(), in_turn(c));
    chunk_cumsum(w, StepsCall<W>{steps, call.seq_idx}, rule, tokens_of(c), slice.head, chunk.decays);
    entry_decays(w, chunk.decays);
    exit_weights(w, rule, 0.0f, chunk.decays);
    tabulate_decays(w, rule, chunk.decays);
  };

  Carried<W> carried(w);
  w.top = Layout::leaving_of(w, w.worker());
  Output<W> out(w);
  fetch(begin);
  get_steps(begin);
  sum_decays(begin);
  get_steps(begin + 1);
  w.load_skip(call.D, slice);
  gather_segments(w, call, sequence, segment, slice, carried);
  place();
  for (std::int64_t c = begin; c < end; ++c) {
    const Tokens tokens = tokens_of(c);
    M::meet();  // tiles and decays are there
    M::forget(w.lane);
    fetch(c + 1);
    auto scores = multiply_scores(w, group);
    w.wait(scores);
    sum_scores(w, group);
    for (int worker = 0; worker < W::most_workers; ++worker) {
      HeadChunk<W> chunk = Layout::chunk(w, worker, in_turn(c));
      decay_scores(w, call, rule, slice.head, group, chunk);
    }
    M::meet();  // decayed scores are there
    M::forget(w.lane);
    const HeadChunk<W> chunk = Layout::chunk(w, w.worker(), in_turn(c));
    prepare_state(w, chunk.decays, chunk.x, carried);
    step_fused(
        w, call, group, chunk, carried, out,
        [&] {
          if (c + 1 < end) sum_decays(c + 1);
          get_steps(c + 2);
        },
        [&] {
          M::forget(w.lane);
          if (real) put_states(w, call, sequence, tokens, slice, c + 1 == end && leaves, carried);
        });
    finish_output(w, call, slice, chunk, out);
    M::meet();  // all has been read, outputs are complete
    M::forget(w.lane);
    place();
    if (real) store_output(w, call, tokens, slice, out);
  }
}

// ------------------------------------------------------------------------------------------------ sums of states alone

/// Local memory: [B][x][decays of two chunks]
template <class W>
struct StateLayout {
  using S = Sizes<W>;
  static constexpr unsigned decays = S::group + S::head;
  static constexpr unsigned bytes = decays + 2 * S::decays;

  static TILEMAMBA_FN void place(W& w, int in_turn, GroupChunk<W>& group, HeadChunk<W>& chunk) {
    w.top = 0;
    group.B = decltype(group.B)(w);
    chunk.x = decltype(chunk.x)(w);
    w.top = decays + static_cast<unsigned>(in_turn) * S::decays;
    chunk.decays = Decays<W>(w);
  }
};

/// A segment's state summed from zero, its chunks from the last to the first. A sequence's last segment has nothing to
/// do. Block: (unit, slice of a head, columns of the state).
template <class W>
TILEMAMBA_FN void sum_segments(const Call& call, const HeadBlocks& heads, int column_blocks) {
  using M = typename W::M;
  using Layout = StateLayout<W>;
  const std::int64_t job = M::block() / column_blocks;
  const std::int64_t unit = job / heads.slices();
  const Slice slice = heads.slice(static_cast<int>(job % heads.slices()));
  const int columns = static_cast<int>(M::block() % column_blocks);
  if (unit >= call.sequences.units()) return;
  const Sequence sequence = call.sequences.of_unit(unit);
  const std::int64_t index = unit - sequence.first_unit;
  if (index == sequence.units - 1) return;
  const Cut& cut = call.sequences.cut;
  const HeadRule rule = head_rule(call, slice.head);

  W w = make_worker<W>(call);
  w.first_column = columns * W::n;
  w.active = slice.channel + w.channel() < call.head_dim;
  const std::int64_t end = cut.unit_chunks;  // k-th from the last
  const auto tokens_of = [&](std::int64_t k) {
    return k < end ? cut.tokens(sequence, (index + 1) * end - 1 - k) : Tokens{sequence.batch, sequence.first, 0, false};
  };
  GroupChunk<W> group;
  HeadChunk<W> chunk;
  typename W::template Fetched<N> B;
  typename W::template Fetched<P> x;
  const auto fetch = [&](std::int64_t k) {
    w.get(B, call.B, tokens_of(k), slice);
    w.get(x, call.x, tokens_of(k), slice);
  };
  const auto place = [&](std::int64_t k) {
    Layout::place(w, static_cast<int>(k % 2), group, chunk);
    w.place(group.B, B);
    w.place(chunk.x, x);
  };
  const auto weights = [&](std::int64_t k, float after) {
    if (k >= end || w.wave != static_cast<int>(k % W::waves)) return;
    Layout::place(w, static_cast<int>(k % 2), group, chunk);
    chunk_cumsum(w, call, rule, tokens_of(k), slice.head, chunk.decays);
    exit_weights(w, rule, after, chunk.decays);
  };

  kernels::SegmentSum<W> segment(w);
  begin_segment_sum(w, segment);
  fetch(0);
  weights(0, 0.0f);
  place(0);
  for (std::int64_t k = 0; k < end && kernels::reaches_back(segment.after); ++k) {
    M::meet();  // tiles and weights are there
    M::forget(w.lane);
    fetch(k + 1);
    Layout::place(w, static_cast<int>(k % 2), group, chunk);
    auto sum = add_to_sum(w, group, chunk.decays, chunk.x, segment);
    segment.after = after_previous(w, chunk.decays, w.last(chunk.decays.cum), segment.after);
    weights(k + 1, segment.after);
    w.wait(sum);
    M::meet();  // all has been read
    M::forget(w.lane);
    place(k + 1);
  }
  finish_segment_sum(w, call, sequence.first_slot + index, slice, segment);
  if (columns == 0 && w.wave == 0)
    finish_segment_decay(w, call, sequence.first_slot + index, slice.head, segment.after);
}

// ------------------------------------------------------------------------------------------------ the staged schedule

/// chunk_cumsum of every chunk and head, a wave each, into memory. Wave: (unit, head). Local memory: [decays] of each
/// wave.
template <class W>
TILEMAMBA_FN void cumsum(const Call& call) {
  W w = make_worker<W>(call);
  w.top = static_cast<unsigned>(w.wave) * Sizes<W>::decays;
  Decays<W> decays(w);
  const std::int64_t job = W::M::block() * W::waves + w.wave;
  store_decays(w, call, job / call.heads, static_cast<int>(job % call.heads), decays);
}

/// The state at each chunk's start, chunk after chunk, into memory. Block: (sequence, slice of a head, columns of the
/// state).
template <class W>
TILEMAMBA_FN void pass_state(const Call& call, const HeadBlocks& heads, int column_blocks) {
  using M = typename W::M;
  using Layout = StateLayout<W>;
  const std::int64_t job = M::block() / column_blocks;
  const Sequence sequence = call.sequences[job / heads.slices()];
  const Slice slice = heads.slice(static_cast<int>(job % heads.slices()));
  const Cut& cut = call.sequences.cut;
  const HeadRule rule = head_rule(call, slice.head);

  W w = make_worker<W>(call);
  w.first_column = static_cast<int>(M::block() % column_blocks) * W::n;
  w.active = slice.channel + w.channel() < call.head_dim;
  const auto tokens_of = [&](std::int64_t c) {
    return c < sequence.units ? cut.tokens(sequence, c) : Tokens{sequence.batch, sequence.first, 0, false};
  };
  GroupChunk<W> group;
  HeadChunk<W> chunk;
  typename W::template Fetched<N> B;
  typename W::template Fetched<P> x;
  const auto fetch = [&](std::int64_t c) {
    w.get(B, call.B, tokens_of(c), slice);
    w.get(x, call.x, tokens_of(c), slice);
  };
  const auto place = [&](std::int64_t c) {
    Layout::place(w, static_cast<int>(c % 2), group, chunk);
    w.place(group.B, B);
    w.place(chunk.x, x);
  };
  const auto weights = [&](std::int64_t c) {
    if (c >= sequence.units || w.wave != static_cast<int>(c % W::waves)) return;
    Layout::place(w, static_cast<int>(c % 2), group, chunk);
    load_decays(w, call, tokens_of(c), sequence.first_unit + c, slice.head, chunk.decays);
    exit_weights(w, rule, 0.0f, chunk.decays);
  };

  Carried<W> carried(w);
  fetch(0);
  weights(0);
  begin_state(w, call, sequence, slice, carried);
  place(0);
  for (std::int64_t c = 0; c < sequence.units; ++c) {
    M::meet();  // tiles and weights are there
    M::forget(w.lane);
    fetch(c + 1);
    Layout::place(w, static_cast<int>(c % 2), group, chunk);
    w.put(call.entry_states, std::int64_t{0}, sequence.first_unit + c, slice, carried.S);
    prepare_state(w, chunk.decays, chunk.x, carried);
    auto advance = advance_state(w, group, carried);
    weights(c + 1);
    w.wait(advance);
    put_states(w, call, sequence, tokens_of(c), slice, c + 1 == sequence.units, carried);
    M::meet();  // all has been read
    M::forget(w.lane);
    place(c + 1);
  }
  if (sequence.units == 0) finish_state(w, call, sequence, slice, carried);
}

/// The outputs of a chunk. Block: (unit, block of heads). Local memory: the walk's, of one chunk.
template <class W>
TILEMAMBA_FN void compute_out(const Call& call, const HeadBlocks& heads) {
  using M = typename W::M;
  using Layout = FusedLayout<W>;
  const std::int64_t unit = M::block() / heads.count;
  const int head_block = static_cast<int>(M::block() % heads.count);
  if (unit >= call.sequences.units()) return;
  const Sequence sequence = call.sequences.of_unit(unit);
  const Tokens tokens = call.sequences.cut.tokens(sequence, unit - sequence.first_unit);

  W w = make_worker<W>(call);
  w.exchange = Layout::exchange;
  w.skip = Layout::skip + static_cast<unsigned>(w.worker()) * W::skip_bytes;
  const int size = heads.size(head_block);
  const bool real = w.worker() < size;
  const Slice slice = heads.slice(head_block, kernels::least(w.worker(), size - 1));
  w.active = real && slice.channel + w.channel() < call.head_dim;
  const HeadRule rule = head_rule(call, slice.head);

  GroupChunk<W> group;
  w.top = 0;
  group.C = decltype(group.C)(w);
  group.B = decltype(group.B)(w);
  HeadChunk<W> chunk = Layout::chunk(w, w.worker(), 0);
  w.get(group.C, call.C, tokens, slice);
  w.get(group.B, call.B, tokens, slice);
  w.get(chunk.x, call.x, tokens, slice);
  if (call.z.given) w.get(chunk.z, call.z, tokens, slice);
  if (w.head_wave() == 0) {
    load_decays(w, call, tokens, unit, slice.head, chunk.decays);
    tabulate_decays(w, rule, chunk.decays);
  }
  w.load_skip(call.D, slice);
  kernels::StateOperand<W> S_in(w);
  w.get(S_in, call.entry_states, std::int64_t{0}, unit, slice);
  M::meet();  // tiles and decays are there
  M::forget(w.lane);
  auto scores = multiply_scores(w, group);
  w.wait(scores);
  for (int worker = 0; worker < W::most_workers; ++worker) {
    HeadChunk<W> other = Layout::chunk(w, worker, 0);
    decay_scores(w, call, rule, slice.head, group, other);
  }
  M::meet();  // decayed scores are there
  M::forget(w.lane);
  w.top = Layout::leaving_of(w, w.worker());
  Output<W> out(w);
  kernels::compute_out(w, call, group, chunk, S_in, out);
  finish_output(w, call, slice, chunk, out);
  M::meet();  // outputs are complete
  if (real) store_output(w, call, tokens, slice, out);
}

}  // namespace tilemamba::hip
