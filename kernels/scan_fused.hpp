// SPDX-License-Identifier: Apache-2.0
/// @file
/// The fused, segmented schedule: the same three equations in one walk over a segment's chunks, the state staying with
/// the worker. Where a sequence has several segments, each but the last is first summed from a zero state, then one
/// short scan gives the state that enters each.
#pragma once

#include "kernels/compute_out.hpp"
#include "kernels/fwd_pass_state.hpp"

namespace tilemamba::kernels {

// ---------------------------------------------------------------------------------------------------- first pass:
// segment sums

/// sum_j 2^(cum_end - cum_j) delta_j x_j B_j^T over a segment, its chunks walked from the last to the first: what is
/// left of a token at the segment's end is in its weight, so the sum itself never decays.
template <class W>
struct SegmentSum {
  typename W::template State<P, N> sum;
  typename W::template Operand<Q, P, tile::as_At> weighted;
  float after = 0.0f;  ///< log2 of what is left, at the segment's end, of a state at the end of the chunk at hand

  SegmentSum() = default;
  TILEMAMBA_FN explicit SegmentSum(W& w) : sum(w), weighted(w) {}
};

template <class W>
TILEMAMBA_FN void begin_segment_sum(W& w, SegmentSum<W>& segment) {
  w.zero(segment.sum);
  segment.after = 0.0f;
}

/// sum = sum + weighted^T B, the weights of the chunk's tokens being at hand.
template <class W, class Shared>
[[nodiscard]] TILEMAMBA_FN typename W::Token add_to_sum(W& w, const GroupChunk<W>& group, const Decays<W>& d,
                                                        const Shared& x, SegmentSum<W>& segment) {
  w.weigh(segment.weighted, x, d.exit);
  return w.mma_AtB(tile::add(segment.sum), segment.weighted, group.B);
}

/// `after` for the chunk before this one. `total`: cum_Q.
template <class W>
[[nodiscard]] TILEMAMBA_FN float after_previous(W& w, const Decays<W>& d, float total, float after) {
  const bool one_document = w.last(d.document) == 0;
  return tile::select(one_document, after + total, tile::minus_infinity);
}

/// The weights of a chunk's tokens, without cum. @returns `after` for the chunk before.
template <class W>
[[nodiscard]] TILEMAMBA_FN float weigh_back(W& w, const HeadRule& rule, float after, Decays<W>& d) {
  exit_exponents(w, rule, d);
  const float total = w.first(d.exit) + w.first(d.delta) * rule.rate;
  weigh_exits(w, after, d);
  return after_previous(w, d, total, after);
}

/// Does anything before the chunk at hand still count? Not once a document has started: there the walk ends, so that an
/// infinite or undefined B of the one before does not come through as 0 * B.
TILEMAMBA_FN bool reaches_back(float after) { return after != tile::minus_infinity; }

template <class W>
TILEMAMBA_FN void step_segment_sum(W& w, const HeadRule& rule, const GroupChunk<W>& group, HeadChunk<W>& chunk,
                                   SegmentSum<W>& segment) {
  segment.after = weigh_back(w, rule, segment.after, chunk.decays);
  auto sum = add_to_sum(w, group, chunk.decays, chunk.x, segment);
  w.wait(sum);
}

template <class W, class Call>
TILEMAMBA_FN void finish_segment_sum(W& w, const Call& call, std::int64_t slot, const Slice& slice,
                                     const SegmentSum<W>& segment) {
  w.put(call.entry_states, std::int64_t{0}, slot, slice, segment.sum);
}

template <class W, class Call>
TILEMAMBA_FN void finish_segment_decay(W& w, const Call& call, std::int64_t slot, int head, float after) {
  w.put(call.segment_decays, slot, head, after);
}

// --------------------------------------------------------------------------------------- second pass: states between
// segments

/// The state that enters each segment but the first, in place of the sum of the one before it.
template <class W, class Call>
TILEMAMBA_FN void scan_segments(W& w, const Call& call, const Sequence& sequence, const Slice& slice, Carried<W>& c,
                                typename W::template State<P, N>& sum) {
  begin_state(w, call, sequence, slice, c);
  for (std::int64_t slot = sequence.first_slot; slot < sequence.first_slot + sequence.units - 1; ++slot) {
    w.get(sum, call.entry_states, std::int64_t{0}, slot, slice);
    w.decay(c.S, tile::exp2(*call.segment_decays.at(slot, slice.head)));
    w.map(
        c.S, [](float S, float more) { return S + more; }, tile::same(sum));
    w.put(call.entry_states, std::int64_t{0}, slot, slice, c.S);
  }
}

/// The state that enters a segment, found by whoever walks it from the initial state and the sums of all segments
/// before: instead of a pass, where sequences have few segments.
template <class W, class Call>
TILEMAMBA_FN void gather_segments(W& w, const Call& call, const Sequence& sequence, std::int64_t segment,
                                  const Slice& slice, Carried<W>& c) {
  w.zero(c.S);
  for (std::int64_t k = 0; k <= segment; ++k) {
    const bool initial = k == 0;
    const std::int64_t slot = sequence.first_slot + k - 1;
    typename W::template State<P, N> sum(w);
    w.get(sum, initial ? call.initial_states : call.entry_states, std::int64_t{0}, initial ? sequence.index : slot,
          slice);
    w.decay(c.S, initial ? 0.0f : tile::exp2(*call.segment_decays.at(slot, slice.head)));
    w.map(
        c.S, [](float S, float more) { return S + more; }, tile::same(sum));
  }
}

// ----------------------------------------------------------------------------------------------- instead of both:
// segments that reach one another

/// Where all segments of a sequence are walked at once by workers that reach one another, each is first gone over for
/// its state alone, from zero. `left`: what is left, at the end of the chunks so far, of a state that entered the
/// segment.
template <class W, class Shared>
[[nodiscard]] TILEMAMBA_FN typename W::Token step_sum(W& w, const GroupChunk<W>& group, const Decays<W>& d,
                                                      const Shared& x, Carried<W>& c, float& left) {
  left *= w.last(d.entry);
  prepare_state(w, d, x, c);
  return advance_state(w, group, c);
}

/// The state that enters the segment, in place of its sum. The driver gives the first what enters the sequence.
template <class W>
TILEMAMBA_FN void scan_sums(W& w, const Sequence& sequence, std::int64_t segment, float left, Carried<W>& c) {
  w.chained_scan(c.S, segment, sequence.units, [left](float S, float sum) { return tile::weigh(S, left) + sum; });
}

// ------------------------------------------------------------------------------------------------------ third pass:
// the walk

/// The state that enters a sequence's segment.
template <class W, class Call>
TILEMAMBA_FN void begin_segment(W& w, const Call& call, const Sequence& sequence, std::int64_t segment,
                                const Slice& slice, Carried<W>& c) {
  const bool first = segment == 0;
  w.get(c.S, first ? call.initial_states : call.entry_states, std::int64_t{0},
        first ? sequence.index : sequence.first_slot + segment - 1, slice);
}

/// All products of a chunk of one head: outputs and the next state. The state must have been prepared for this chunk. A
/// driver that has other work (the last chunk's outputs to store, the next chunk's state to prepare) gives it to be
/// done under them.
template <class W, class Call, class UnderFirst, class UnderLast>
TILEMAMBA_FN void step_fused(W& w, const Call& call, const GroupChunk<W>& group, const HeadChunk<W>& chunk,
                             Carried<W>& c, Output<W>& out, UnderFirst&& under_first, UnderLast&& under_last) {
  auto from_state = multiply_state(w, group, c.S_in, out);
  auto advance = advance_state(w, group, c);
  under_first();
  w.wait(from_state, advance);
  auto within = multiply_decayed(w, call, chunk, out);
  w.wait(advance, within);
  under_last();
  w.wait(within);
}

}  // namespace tilemamba::kernels
