// SPDX-License-Identifier: Apache-2.0
/// @file
/// The second equation: the state at each chunk's start, and the final one.
///
///     S = 2^cum_Q S_in + sum_j 2^(cum_Q - cum_j) delta_j x_j B_j^T
#pragma once

#include "kernels/chunk_cumsum.hpp"

namespace tilemamba::kernels {

/// The state that enters a sequence.
template <class W, class Call>
TILEMAMBA_FN void begin_state(W& w, const Call& call, const Sequence& sequence, const Slice& slice, Carried<W>& c) {
  w.get(c.S, call.initial_states, std::int64_t{0}, sequence.index, slice);  // zeros where none was given
}

/// All that the state's product needs, and the decay: S_in = S, S = 2^cum_Q S, weighted_j = exit_j x_j.
template <class W, class Shared>
TILEMAMBA_FN void prepare_state(W& w, const Decays<W>& d, const Shared& x, Carried<W>& c) {
  w.operand(c.S_in, c.S);
  w.decay(c.S, w.last(d.entry));
  w.weigh(c.weighted, x, d.exit);
}

/// Once the scores are there, rows of B whose document has ended serve nobody: they are removed, since an infinite or
/// undefined B of one document must not reach another's state as 0 * B.
template <class W, class Call>
TILEMAMBA_FN void drop_ended_documents(W& w, const Call& call, const Tokens& tokens, GroupChunk<W>& group) {
  if (!call.seq_idx.given) return;
  w.scan_changes(group.document, call.seq_idx, tokens);
  w.keep_last(group.B, group.document);
}

/// S = S + weighted^T B.
template <class W>
[[nodiscard]] TILEMAMBA_FN typename W::Token advance_state(W& w, const GroupChunk<W>& group, Carried<W>& c) {
  return w.mma_AtB(tile::add(c.S), c.weighted, group.B);
}

/// Writes the state after these tokens where chunk_states asks for it.
template <class W, class Call>
TILEMAMBA_FN void put_snapshot(W& w, const Call& call, const Sequence& sequence, const Tokens& tokens,
                               const Slice& slice, const Carried<W>& c) {
  if (!call.chunk_states.given) return;
  const std::int64_t snapshot = call.sequences.cut.snapshot_after(sequence, tokens);
  if (snapshot >= 0) w.put(call.chunk_states, sequence.batch, sequence.first_snapshot + snapshot, slice, c.S);
}

/// The state that leaves a sequence.
template <class W, class Call>
TILEMAMBA_FN void finish_state(W& w, const Call& call, const Sequence& sequence, const Slice& slice,
                               const Carried<W>& c) {
  if (call.final_states.given) w.put(call.final_states, std::int64_t{0}, sequence.index, slice, c.S);
}

}  // namespace tilemamba::kernels
