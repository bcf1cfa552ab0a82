// SPDX-License-Identifier: Apache-2.0
/// @file
/// The worker that makes scores and decays them: a warpgroup, of which each warp has 16 rows.
#pragma once

#include "backends/cuda/sm90/tile.cuh"

namespace tilemamba::cuda::sm90 {

template <class K>
struct ScoreWorker {
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
  /// A lane's part of the table, fetched before it is needed.
  struct DecayTable {
    float2 cum;        ///< of the lane's two rows
    float cum_before;  ///< at the end of the block before the warp's
    float2 column_log[2];
    float2 column_factor[6];
  };
  struct [[nodiscard]] Token {};

  int lane, warp;

  TILEMAMBA_DEVICE Token mma_ABt(tile::Set<Registers<q / 2>> scores, const SharedTile<tile::as_A>& C,
                                 const SharedTile<tile::as_Bt | tile::as_B>& B) const {
    const std::uint32_t c = inner_columns(C.at), b = inner_columns(B.at);
    begin_products();
    wgmma<E, false>(scores.target.r, descriptor(c), descriptor(b));
#pragma unroll
    for (int k = 1; k < K::n / 16; ++k) {
      const unsigned step = (k / 4 * plane_bytes + k % 4 * 32) / 16;
      wgmma<E, true>(scores.target.r, descriptor(c + step), descriptor(b + step));
    }
    commit_products();
    return {};
  }
  TILEMAMBA_DEVICE void wait(const Token&) const { wait_products<0>(); }

  TILEMAMBA_DEVICE void fetch(DecayTable& out, const StageDecays<documents>& stage) const {
    const int row = 16 * warp + lane / 4, column = 2 * (lane % 4);
    out.cum = {stage.cum[row], stage.cum[row + 8]};
    out.cum_before = warp > 0 ? stage.cum[16 * warp - 1] : 0.0f;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      out.column_log[k] = *reinterpret_cast<const float2*>(&stage.table.column_log[16 * warp + 8 * k + column]);
    }
  }
  TILEMAMBA_DEVICE void fetch_factors(DecayTable& out, const StageDecays<documents>& stage) const {
    const float* factors = stage.table.column_factor[warp > 0 ? warp - 1 : 0];
#pragma unroll
    for (int k = 0; k < 6; ++k) {
      if (k < 2 * warp) out.column_factor[k] = *reinterpret_cast<const float2*>(&factors[8 * k + 2 * (lane % 4)]);
    }
  }

  /// `warp` is known when this is compiled: the driver has made it so.
  TILEMAMBA_DEVICE void decay_scores(SharedOperand& out, const Registers<q / 2>& scores, const SharedVector&,
                                     const SharedVector&, const SharedOrdinals& document, const DecayTable& table,
                                     float, const NotGiven&, int) const {
    switch (warp) {
      case 0:
        decay_rows<0>(out.at, scores.r, table, document);
        break;
      case 1:
        decay_rows<1>(out.at, scores.r, table, document);
        break;
      case 2:
        decay_rows<2>(out.at, scores.r, table, document);
        break;
      default:
        decay_rows<3>(out.at, scores.r, table, document);
    }
  }

 private:
  template <int w>
  TILEMAMBA_DEVICE void decay_rows(unsigned out, const float (&scores)[q / 2], const DecayTable& table,
                                   const SharedOrdinals& document) const {
    const int row = lane / 4, column = 2 * (lane % 4);
    int start[2] = {};
    if constexpr (documents) start[0] = document.at[16 * w + row], start[1] = document.at[16 * w + row + 8];
    float diagonal[8];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int half = e / 2;
        if (k > half) {
          diagonal[4 * k + e] = 0.0f;
          continue;
        }
        const int from = column + e % 2;
        const float log =
            (half == 0 ? table.cum.x : table.cum.y) + (e % 2 == 0 ? table.column_log[k].x : table.column_log[k].y);
        const float decayed = scores[8 * w + 4 * k + e] * fast_exp2(log);
        bool seen = k < half || from <= row;
        if constexpr (documents) seen = seen && 16 * w + 8 * k + from >= start[half];
        diagonal[4 * k + e] = seen ? decayed : 0.0f;
      }
    }
    const unsigned address = out * 16 + (16 * w + lane % 16) * 128;
    const unsigned piece = lane / 16, swizzle = lane % 8;
    const auto factor = [&](float cum, int its_start) {
      return 16 * w > its_start ? fast_exp2(cum - table.cum_before) : 0.0f;
    };
    const float high = factor(table.cum.x, start[0]), low = factor(table.cum.y, start[1]);
#pragma unroll
    for (int block = 0; block < w; ++block) {
      const float2 f = table.column_factor[2 * block], g = table.column_factor[2 * block + 1];
      const float* s = scores + 8 * block;
      stmatrix(address + (((2 * block + piece) ^ swizzle) << 4), E::pack(s[0] * (high * f.x), s[1] * (high * f.y)),
               E::pack(s[2] * (low * f.x), s[3] * (low * f.y)), E::pack(s[4] * (high * g.x), s[5] * (high * g.y)),
               E::pack(s[6] * (low * g.x), s[7] * (low * g.y)));
    }
    stmatrix(address + (((2 * w + piece) ^ swizzle) << 4), E::pack(diagonal[0], diagonal[1]),
             E::pack(diagonal[2], diagonal[3]), E::pack(diagonal[4], diagonal[5]), E::pack(diagonal[6], diagonal[7]));
  }
};

}  // namespace tilemamba::cuda::sm90
