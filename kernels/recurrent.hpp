// SPDX-License-Identifier: Apache-2.0
/// @file
/// The recurrence as it is defined, token by token, for calls of few tokens: no scores, no chunk to fill.
///
///     h_t = 2^(delta_t A log2 e) h_(t-1) + delta_t x_t B_t^T
///     y_t = h_t C_t
#pragma once

#include "kernels/compute_out.hpp"
#include "kernels/fwd_pass_state.hpp"

namespace tilemamba::kernels {

/// B and C of a run of tokens, for all heads of a group.
template <class W>
struct GroupRun {
  typename W::template Shared<Q, N, tile::elementwise> C;
  typename W::template Shared<Q, N, tile::elementwise> B;

  GroupRun() = default;
  TILEMAMBA_FN explicit GroupRun(W& w) : C(w), B(w) {}
};

template <class W, class Call>
TILEMAMBA_FN void load_run(W& w, const Call& call, const Tokens& tokens, int group, GroupRun<W>& run) {
  w.get(run.C, call.C, tokens, Slice{group, group, 0});
  w.get(run.B, call.B, tokens, Slice{group, group, 0});
}

/// entry_i = 2^(delta_i A log2 e), what token i leaves of the state before it (in its own document).
template <class W>
TILEMAMBA_FN void step_decays(W& w, const HeadRule& rule, Decays<W>& d) {
  w.map(
      d.entry, [&rule](float, float delta) { return tile::exp2(delta * rule.rate); }, tile::rows(d.delta));
}

/// Outputs and state of a run of tokens of one head.
template <class W>
TILEMAMBA_FN void step_recurrent(W& w, const Tokens& tokens, const GroupRun<W>& run, const HeadChunk<W>& chunk,
                                 Carried<W>& c, Output<W>& out) {
  const Decays<W>& d = chunk.decays;
  w.recur(out.y, c.S, chunk.x, run.B, run.C, d.entry, d.delta, d.document, tokens.count);
  w.sum_columns(out.y);
}

}  // namespace tilemamba::kernels
