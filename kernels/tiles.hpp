// SPDX-License-Identifier: Apache-2.0
/// @file
/// The tiles that both schedules share: what a chunk brings for a group of heads, what it brings for one head, what a
/// head carries. W is the backend's worker (docs/tile-interface.md); sizes are its business.
#pragma once

#include "core/tile/scalar.hpp"
#include "core/tile/tile.hpp"
#include "kernels/call.hpp"

namespace tilemamba::kernels {

using tile::N;
using tile::P;
using tile::Part;
using tile::Q;

/// Once per chunk for all heads of a group.
template <class W>
struct GroupChunk {
  typename W::template Shared<Q, N, tile::as_A> C;
  typename W::template Shared<Q, N, tile::as_Bt | tile::as_B> B;
  typename W::template Accumulator<Q, Q, Part::lower> scores;  ///< C_i . B_j
  typename W::template Ordinals<Q> document;                   ///< as Decays has it for each head

  GroupChunk() = default;
  TILEMAMBA_FN explicit GroupChunk(W& w) : C(w), B(w), scores(w), document(w) {}
};

/// Time, as a chunk of one head sees it.
template <class W>
struct Decays {
  typename W::template Vector<Q> delta;  ///< step sizes; 0 beyond the last token
  typename W::template Vector<Q> cum;    ///< cum_i: inclusive sums of delta A log2 e, restarted where a document starts
  typename W::template Ordinals<Q> document;  ///< how many documents have started in this chunk, up to and with token i
  typename W::template Vector<Q>
      entry;  ///< what is left at token i of the state that entered: 2^cum_i, 0 for a new document
  typename W::template Weights<Q>
      exit;                      ///< what is left at the chunk's end of token j's part: 2^(cum_Q - cum_j) delta_j, or 0
  typename W::DecayTable table;  ///< what else the backend wants at hand for decay_scores

  Decays() = default;
  TILEMAMBA_FN explicit Decays(W& w) : delta(w), cum(w), document(w), entry(w), exit(w), table(w) {}
};

/// Once per chunk for each head.
template <class W>
struct HeadChunk {
  typename W::template Shared<Q, P, tile::as_B | tile::elementwise> x;
  typename W::template Shared<Q, P, tile::elementwise> z;
  Decays<W> decays;
  typename W::template Operand<Q, Q, tile::as_A, Part::lower> decayed;  ///< (C_i . B_j) 2^(cum_i - cum_j) delta_j

  HeadChunk() = default;
  TILEMAMBA_FN explicit HeadChunk(W& w) : x(w), z(w), decays(w), decayed(w) {}
};

template <class W>
using StateOperand = typename W::template Operand<P, N, tile::as_Bt>;

/// What a head carries from chunk to chunk, in fp32, and the copies that products multiply.
template <class W>
struct Carried {
  typename W::template State<P, N> S;
  StateOperand<W> S_in;                                      ///< S at the chunk's start
  typename W::template Operand<Q, P, tile::as_At> weighted;  ///< x_j by its exit weight

  Carried() = default;
  TILEMAMBA_FN explicit Carried(W& w) : S(w), S_in(w), weighted(w) {}
};

/// The outputs of a chunk of one head.
template <class W>
struct Output {
  typename W::template Operand<Q, P, tile::as_B> x;  ///< x as the product multiplies it
  typename W::template Accumulator<Q, P> y;
  typename W::template Leaving<Q, P> leaving;  ///< y on its way out: while it is stored, y may hold the next chunk's

  Output() = default;
  TILEMAMBA_FN explicit Output(W& w) : x(w), y(w), leaving(w) {}
};

}  // namespace tilemamba::kernels
