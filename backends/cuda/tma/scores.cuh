// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the worker that makes scores, a warpgroup, does with them in registers: each warp has 16 rows, laid out as
/// wgmma has its accumulators.
#pragma once

#include "backends/cuda/tma/tile.cuh"

namespace tilemamba::cuda::tma {

template <class K>
struct ScoreFragments {
  using E = typename K::E;
  static constexpr bool documents = K::features.documents;
  template <class R, class C, unsigned uses>
  using Shared = SharedTile<uses>;
  template <class R, class C, Part part = Part::full>
  using Accumulator = Registers<q / 2>;
  template <class R, class C, unsigned use, Part part = Part::full>
  using Operand = SharedOperand;
  template <class Axis>
  using Vector = SharedVector;
  template <class Axis>
  using Weights = SharedWeights;
  template <class Axis>
  using Ordinals = SharedOrdinals;
  struct DecayTable {
    const StageDecays<documents>* at;
  };

  int lane, warp;

  /// The same instructions for every warp: all roles' loops share the multiprocessor's small instruction cache.
  TILEMAMBA_DEVICE void decay_scores(SharedOperand& out, const Registers<q / 2>& scores, const SharedVector&,
                                     const SharedVector&, const SharedOrdinals& document, const DecayTable& table,
                                     float, const NotGiven&, int) const {
    const int row = lane / 4, column = 2 * (lane % 4);
    const auto& decays = *table.at;
    const float cum[2] = {decays.cum[16 * warp + row], decays.cum[16 * warp + row + 8]};
    int start[2] = {};
    if constexpr (documents) start[0] = document.at[16 * warp + row], start[1] = document.at[16 * warp + row + 8];
    const unsigned address = out.at * 16 + (16 * warp + lane % 16) * 128;
    const unsigned piece = lane / 16, swizzle = lane % 8;
    const auto put = [&](int block, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
      stmatrix(address + (((2 * block + piece) ^ swizzle) << 4), a, b, c, d);
    };

    float diagonal[8];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const auto column_log = *reinterpret_cast<const float2*>(&decays.table.column_log[16 * warp + 8 * k + column]);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int half = e / 2;
        if (k > half) {
          diagonal[4 * k + e] = 0.0f;
          continue;
        }
        const int from = column + e % 2;
        const float log = cum[half] + (e % 2 == 0 ? column_log.x : column_log.y);
        const float decayed = on_diagonal(scores.r, 4 * k + e) * fast_exp2(log);
        bool seen = k < half || from <= row;
        if constexpr (documents) seen = seen && 16 * warp + 8 * k + from >= start[half];
        diagonal[4 * k + e] = seen ? decayed : 0.0f;
      }
    }
    put(warp, E::pack(diagonal[0], diagonal[1]), E::pack(diagonal[2], diagonal[3]), E::pack(diagonal[4], diagonal[5]),
        E::pack(diagonal[6], diagonal[7]));

    if (warp == 0) return;
    const float cum_before = decays.cum[16 * warp - 1];
    const auto factor = [&](int half) { return 16 * warp > start[half] ? fast_exp2(cum[half] - cum_before) : 0.0f; };
    const float high = factor(0), low = factor(1);
    const float* factors = decays.table.column_factor[warp - 1] + column;
#pragma unroll
    for (int block = 0; block < 3; ++block) {
      if (block >= warp) break;
      const auto f = *reinterpret_cast<const float2*>(factors + 16 * block),
                 g = *reinterpret_cast<const float2*>(factors + 16 * block + 8);
      const float* s = scores.r + 8 * block;
      put(block, E::pack(s[0] * (high * f.x), s[1] * (high * f.y)), E::pack(s[2] * (low * f.x), s[3] * (low * f.y)),
          E::pack(s[4] * (high * g.x), s[5] * (high * g.y)), E::pack(s[6] * (low * g.x), s[7] * (low * g.y)));
    }
  }

 private:
  /// The score `k` of the block that the diagonal runs through.
  TILEMAMBA_DEVICE float on_diagonal(const float (&scores)[q / 2], int k) const {
    const float above = warp == 0 ? scores[k] : scores[8 + k], below = warp == 2 ? scores[16 + k] : scores[24 + k];
    return warp < 2 ? above : below;
  }
};

}  // namespace tilemamba::cuda::tma
