// SPDX-License-Identifier: Apache-2.0
/// @file
/// The third equation: the outputs of a chunk, from the state that entered it and from its own tokens.
///
///     y_i = 2^cum_i S_in C_i + sum_(j<=i) (C_i . B_j) 2^(cum_i - cum_j) delta_j x_j + D x_i
///     y_i = y_i z_i sigmoid(z_i)                                                              if there is a gate
///
/// The cuts are where data changes hands: scores once for a group's heads, decayed scores per head, then the two
/// products of a head with whatever the driver does under them, then the way out.
#pragma once

#include "kernels/chunk_cumsum.hpp"

namespace tilemamba::kernels {

/// scores_ij = C_i . B_j
template <class W>
[[nodiscard]] TILEMAMBA_FN typename W::Token multiply_scores(W& w, GroupChunk<W>& group) {
  return w.mma_ABt(tile::set(group.scores), group.C, group.B);
}

/// The same where C and B come a piece of their columns after the other, for every piece but the first.
template <class W>
[[nodiscard]] TILEMAMBA_FN typename W::Token multiply_more_scores(W& w, GroupChunk<W>& group) {
  return w.mma_ABt(tile::add(group.scores), group.C, group.B);
}

/// Made before, once for all who decay them: left in the workspace ...
template <class W, class Call>
TILEMAMBA_FN void store_scores(W& w, const Call& call, std::int64_t chunk, int index, GroupChunk<W>& group) {
  w.put(call.scores, chunk, index, group.scores);
}
/// ... and found there. `index`: which group.
template <class W, class Call>
TILEMAMBA_FN void load_scores(W& w, const Call& call, std::int64_t chunk, int index, GroupChunk<W>& group) {
  w.get(group.scores, call.scores, chunk, index);
}

/// Where workers share the state's columns: their sum. Before it is decayed, so that it is rounded once.
template <class W>
TILEMAMBA_FN void sum_scores(W& w, GroupChunk<W>& group) {
  w.sum_columns(group.scores);
}

/// What the backend wants at hand for the next step, made where the decays are.
template <class W>
TILEMAMBA_FN void tabulate_decays(W& w, const HeadRule& rule, Decays<W>& d) {
  w.tabulate(d.table, d.cum, d.delta, d.document, rule.rate);
}

/// decayed_ij = scores_ij 2^(cum_i - cum_j) delta_j for j <= i in one document, 0 elsewhere.
template <class W, class Call>
TILEMAMBA_FN void decay_scores(W& w, const Call& call, const HeadRule& rule, int head, const GroupChunk<W>& group,
                               HeadChunk<W>& chunk) {
  const Decays<W>& d = chunk.decays;
  w.decay_scores(chunk.decayed, group.scores, d.cum, d.delta, d.document, d.table, rule.rate, call.D, head);
}

/// y_i = S_in C_i
template <class W>
[[nodiscard]] TILEMAMBA_FN typename W::Token multiply_state(W& w, const GroupChunk<W>& group,
                                                            const StateOperand<W>& S_in, Output<W>& out) {
  return w.mma_ABt(tile::set(out.y), group.C, S_in);
}

/// y_i = entry_i y_i, summed over the workers that share the state's columns, + sum_(j<=i) decayed_ij x_j
template <class W, class Call>
[[nodiscard]] TILEMAMBA_FN typename W::Token multiply_decayed(W& w, const Call& call, const HeadChunk<W>& chunk,
                                                              Output<W>& out) {
  // Where a chunk holds several documents, an infinite or undefined x of one must not reach another as 0 * x. Only now,
  // after the first wait: as a register operand, x made earlier would live beside the state's operands and serialise
  // their products.
  w.operand_if(call.seq_idx.given, out.x, chunk.x, [](float x_j) { return tile::finite_or_zero(x_j); });
  w.weigh(out.y, chunk.decays.entry);
  w.sum_columns(out.y);
  return w.mma_AB(tile::add(out.y), chunk.decayed, out.x);
}

/// + D x_i, the gate, and the output type.
template <class W, class Call>
TILEMAMBA_FN void finish_output(W& w, const Call& call, const Slice& slice, const HeadChunk<W>& chunk, Output<W>& out) {
  w.add_skip(out.y, chunk.x, call.D, slice);
  if (call.z.given)
    w.map(
        out.y, [](float y_i, float z_i) { return y_i * tile::silu(z_i); }, tile::same(chunk.z));
  w.narrow(out.leaving, out.y);
}

template <class W, class Call>
TILEMAMBA_FN void store_output(W& w, const Call& call, const Tokens& tokens, const Slice& slice, const Output<W>& out) {
  w.put(call.y, tokens, slice, out.leaving);
}

/// The outputs of a chunk whose state is at hand in S_in.
template <class W, class Call>
TILEMAMBA_FN void compute_out(W& w, const Call& call, const GroupChunk<W>& group, const HeadChunk<W>& chunk,
                              const StateOperand<W>& S_in, Output<W>& out) {
  auto from_state = multiply_state(w, group, S_in, out);
  w.wait(from_state);
  auto within = multiply_decayed(w, call, chunk, out);
  w.wait(within);
}

}  // namespace tilemamba::kernels
