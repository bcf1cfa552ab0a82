// SPDX-License-Identifier: Apache-2.0
/// @file
/// The first equation: step sizes, and decays summed along a chunk.
///
///     delta_t = dt_t + dt_bias, softplus if asked, clamped to dt_limit
///     cum_i   = sum_(j<=i) delta_j A log2 e                 within one document
#pragma once

#include "kernels/tiles.hpp"

namespace tilemamba::kernels {

TILEMAMBA_FN float step_size(float dt, float bias, const StepRule& rule) {
  float delta = dt + bias;
  if (rule.softplus) delta = tile::softplus(delta);
  return tile::select(delta < rule.least, rule.least, tile::select(delta > rule.most, rule.most, delta));
}

/// What a head does to its steps. Read once: a driver keeps it while it walks over chunks.
struct HeadRule {
  float bias;
  float rate;  ///< the decay per unit of step size, to base 2
  StepRule step;
};

template <class Call>
[[nodiscard]] TILEMAMBA_FN HeadRule head_rule(const Call& call, int head) {
  return {tile::value(call.dt_bias, head), tile::value(call.A, head) * tile::log2e, call.rule};
}

/// delta and document of one chunk of one head, from dt and seq_idx.
template <class W, class Call>
TILEMAMBA_FN void chunk_steps(W& w, const Call& call, const HeadRule& rule, const Tokens& tokens, int head,
                              Decays<W>& d) {
  w.scan_changes(d.document, call.seq_idx, tokens);
  w.get(d.delta, call.dt, tokens, head);
  w.map(
      d.delta,
      [&rule](float dt, bool inside) { return tile::select(inside, step_size(dt, rule.bias, rule.step), 0.0f); },
      tile::inside(tokens.count));
}

/// The same, and cum.
template <class W, class Call>
TILEMAMBA_FN void chunk_cumsum(W& w, const Call& call, const HeadRule& rule, const Tokens& tokens, int head,
                               Decays<W>& d) {
  chunk_steps(w, call, rule, tokens, head, d);
  w.map(
      d.cum, [&rule](float, float delta) { return delta * rule.rate; }, tile::rows(d.delta));
  w.scan(d.cum, d.document);
}

/// The same of a work unit of one chunk, left in the workspace: what the staged schedule begins with.
template <class W, class Call>
TILEMAMBA_FN void store_decays(W& w, const Call& call, std::int64_t unit, int head, Decays<W>& d) {
  if (unit >= call.sequences.units()) return;
  const Sequence sequence = call.sequences.of_unit(unit);
  const Tokens tokens = call.sequences.cut.tokens(sequence, unit - sequence.first_unit);
  chunk_cumsum(w, call, head_rule(call, head), tokens, head, d);
  w.put(call.cum, unit, head, d.cum);
  w.put(call.delta, unit, head, d.delta);
}

/// entry_i = 2^cum_i for the document that entered; 0, which removes the old state, for one that started in this chunk.
template <class W>
TILEMAMBA_FN void entry_decays(W& w, Decays<W>& d) {
  w.map(
      d.entry,
      [](float, float cum, int document) { return tile::exp2(tile::select(document == 0, cum, tile::minus_infinity)); },
      tile::rows(d.cum), tile::rows(d.document));
}

/// What store_decays has left.
template <class W, class Call>
TILEMAMBA_FN void load_decays(W& w, const Call& call, const Tokens& tokens, std::int64_t unit, int head, Decays<W>& d) {
  w.get(d.cum, call.cum, unit, head);
  w.get(d.delta, call.delta, unit, head);
  w.scan_changes(d.document, call.seq_idx, tokens);
  entry_decays(w, d);
}

/// exit_j = cum_Q - cum_j, summed from the chunk's end, which loses nothing under strong decay.
template <class W>
TILEMAMBA_FN void exit_exponents(W& w, const HeadRule& rule, Decays<W>& d) {
  w.map(
      d.exit, [&rule](float, float delta) { return delta * rule.rate; }, tile::rows(d.delta));
  w.scan_back(d.exit);
}

/// From these exit_j = 2^(cum_Q - cum_j + after) delta_j for the document that leaves; 0 for one that ended in this
/// chunk. `after`: log2 of what is left beyond the chunk.
template <class W>
TILEMAMBA_FN void weigh_exits(W& w, float after, Decays<W>& d) {
  const int leaving = w.last(d.document);
  w.map(
      d.exit,
      [=](float tail, float delta, int document) {
        return tile::weigh(delta, tile::exp2(tile::select(document == leaving, tail + after, tile::minus_infinity)));
      },
      tile::rows(d.delta), tile::rows(d.document));
}

template <class W>
TILEMAMBA_FN void exit_weights(W& w, const HeadRule& rule, float after, Decays<W>& d) {
  exit_exponents(w, rule, d);
  weigh_exits(w, after, d);
}

}  // namespace tilemamba::kernels
