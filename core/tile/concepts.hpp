// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a backend's worker must offer to run the text of kernels/, as the compiler checks it. docs/tile-interface.md
/// says what each operation means, who may wait for what, and how a driver is written.
#pragma once

#include <concepts>
#include <cstdint>

#include "core/tile/tile.hpp"
#include "core/tile/view.hpp"

namespace tilemamba::tile {

template <class W>
concept Worker = requires(W w, typename W::template Shared<Q, N, as_A> C,
                          typename W::template Shared<Q, N, as_Bt | as_B> B,
                          typename W::template Shared<Q, N, elementwise> run_B,
                          typename W::template Shared<Q, P, as_B | elementwise> x,
                          typename W::template Shared<Q, P, elementwise> z, typename W::template Vector<Q> vector,
                          typename W::template Weights<Q> weights, typename W::template Ordinals<Q> document,
                          typename W::DecayTable table, typename W::template Accumulator<Q, Q, Part::lower> scores,
                          typename W::template Operand<Q, Q, as_A, Part::lower> decayed,
                          typename W::template Accumulator<Q, P> y, typename W::template Leaving<Q, P> leaving,
                          typename W::template State<P, N> S, typename W::template Operand<P, N, as_Bt> S_in,
                          typename W::template Operand<Q, P, as_At> weighted,
                          typename W::template Operand<Q, P, as_B> x_operand, typename W::Token token,
                          const TokenView& tokens_view, const StateView& state_view, const HeadView& head_view,
                          const ChunkVectors& vectors, const Tokens& tokens, const Slice& slice, std::int64_t index,
                          int head, float factor, float (*unary)(float), float (*binary)(float, float)) {
  // from and to memory
  w.get(C, tokens_view, tokens, slice);
  w.get(B, tokens_view, tokens, slice);
  w.get(run_B, tokens_view, tokens, slice);
  w.get(x, tokens_view, tokens, slice);
  w.get(z, tokens_view, tokens, slice);
  w.get(vector, tokens_view, tokens, head);
  w.get(vector, vectors, index, head);
  w.get(S, state_view, index, index, slice);
  w.get(S_in, state_view, index, index, slice);
  w.put(tokens_view, tokens, slice, leaving);
  w.put(state_view, index, index, slice, S);
  w.put(vectors, index, head, vector);
  w.put(vectors, index, head, factor);
  // elementwise
  w.zero(S);
  w.map(y, binary, rows(vector));
  w.map(y, binary, same(z));
  w.map(S, binary, same(S));
  w.map(vector, binary, rows(vector));
  w.map(weights, binary, rows(vector));
  w.operand(S_in, S);
  w.operand_if(true, x_operand, x, unary);
  w.narrow(leaving, y);
  w.keep_last(B, document);
  // along a chunk
  w.scan(vector, document);
  w.scan_back(weights);
  w.scan_changes(document, tokens_view, tokens);
  { w.first(vector) } -> std::convertible_to<float>;
  { w.first(weights) } -> std::convertible_to<float>;
  { w.last(vector) } -> std::convertible_to<float>;
  { w.last(document) } -> std::convertible_to<int>;
  // by name
  w.weigh(y, vector);
  w.weigh(weighted, x, weights);
  w.decay(S, factor);
  w.tabulate(table, vector, vector, document, factor);
  w.decay_scores(decayed, scores, vector, vector, document, table, factor, head_view, head);
  w.sum_columns(scores);
  w.sum_columns(y);
  w.add_skip(y, x, head_view, slice);
  w.recur(y, S, x, run_B, run_B, vector, vector, document, head);
  // products
  { w.mma_ABt(set(scores), C, B) } -> std::same_as<typename W::Token>;
  { w.mma_ABt(set(y), C, S_in) } -> std::same_as<typename W::Token>;
  { w.mma_AB(add(y), decayed, x_operand) } -> std::same_as<typename W::Token>;
  { w.mma_AtB(add(S), weighted, B) } -> std::same_as<typename W::Token>;
  w.wait(token);
  w.wait(token, token);
};

}  // namespace tilemamba::tile
