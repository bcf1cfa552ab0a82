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
  static constexpr int own_blocks = K::own_tokens / 16;  ///< 16 rows each, that the block decays
  template <class R, class C, unsigned uses>
  using Shared = SharedTile<uses>;
  /// Where a cluster shares the columns: of the block's own tokens 16 columns a warp.
  using OwnScores = Registers<8 * own_blocks>;
  /// If it makes the scores, also of all tokens what this block's columns give.
  struct SharedScores : OwnScores {
    Registers<q / 2> part;
  };
  using Scores = std::conditional_t<K::parts == 1, Registers<q / 2>,
                                    std::conditional_t<K::features.scored, OwnScores, SharedScores>>;
  static TILEMAMBA_DEVICE Registers<q / 2>& part_of(Scores& scores) {
    if constexpr (K::parts == 1) {
      return scores;
    } else {
      return scores.part;
    }
  }
  template <class R, class C, Part part = Part::full>
  using Accumulator = Scores;
  template <class R, class C, unsigned use, Part part = Part::full>
  using Operand = SharedOperand;
  template <class Axis>
  using Vector = SharedVector;
  template <class Axis>
  using Weights = SharedWeights;
  template <class Axis>
  using Ordinals = SharedOrdinals;
  struct DecayTable {
    const typename K::Decays* at;
  };

  unsigned lane;
  int warp;
  unsigned chunk_parity;  ///< only a cluster looks at it

  // In memory the scores lie as registers do: of each 16 rows, of each eight columns as far as they are causal, 16
  // bytes of each lane.
  TILEMAMBA_DEVICE void put(const kernels::ChunkVectors& view, std::int64_t chunk, int group,
                            const Registers<q / 2>& scores) const {
    float4* const to = reinterpret_cast<float4*>(view.at(chunk, group)) + pieces_before(warp) * 32 + lane;
#pragma unroll
    for (int k = 0; k < q / 8; ++k) {
      if (k / 2 > warp) break;
      to[k * 32] = {scores.r[4 * k], scores.r[4 * k + 1], scores.r[4 * k + 2], scores.r[4 * k + 3]};
    }
  }
  TILEMAMBA_DEVICE void get(OwnScores& scores, const kernels::ChunkVectors& view, std::int64_t chunk, int group) const {
    const float4* const from = reinterpret_cast<const float4*>(view.at(chunk, group)) + lane;
#pragma unroll
    for (int block = 0; block < own_blocks; ++block) {
      if (warp > own_row(block)) continue;
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const float4 v = from[(pieces_before(own_row(block)) + 2 * warp + k) * 32];
        float* const to = scores.r + 8 * block + 4 * k;
        to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
      }
    }
  }

  /// This block's part of each row's scores, as far as they are causal, to the block that decays them.
  TILEMAMBA_DEVICE void give(const SharedScores& scores) const {
    wait_phase(shared_address(K::scores_taken), chunk_parity ^ 1);
    const int there = warp / own_blocks;
    const unsigned to = K::in_part(place(K::part(), warp % own_blocks, 0), there),
                   barrier = K::in_part(shared_address(K::scores_given), there);
#pragma unroll
    for (int k = 0; k < q / 8; ++k) {
      if (k / 2 > warp) break;
      store_there(to + k * 512, scores.part.r + 4 * k, barrier);
    }
  }
  /// Always in the same order.
  TILEMAMBA_DEVICE void sum_columns(Scores& scores) const {
    if constexpr (K::parts > 1 && !K::features.scored) {
      const unsigned given = shared_address(K::scores_given);
      wait_phase(given, chunk_parity);
      if (warp == 0 && lane == 0) expect_bytes(given, K::scores_given_bytes());  // the next chunk's
#pragma unroll
      for (int block = 0; block < own_blocks; ++block) {
        if (warp > own_row(block)) continue;
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          float* const sum = scores.r + 8 * block + 4 * k;
#pragma unroll
          for (int from = 0; from < K::parts; ++from) {
            const float4 more = load_shared_four(place(from, block, 2 * warp + k));
            if (from == 0) {
              sum[0] = more.x, sum[1] = more.y, sum[2] = more.z, sum[3] = more.w;
            } else {
              sum[0] += more.x, sum[1] += more.y, sum[2] += more.z, sum[3] += more.w;
            }
          }
        }
      }
      __syncwarp();
      if (lane < K::parts) arrive_there(K::in_part(shared_address(K::scores_taken), lane));
    }
  }

  TILEMAMBA_DEVICE void decay_scores(SharedOperand& out, const Scores& scores, const SharedVector&, const SharedVector&,
                                     const SharedOrdinals& document, const DecayTable& table, float, const NotGiven&,
                                     int) const {
    if constexpr (K::parts == 1) {
      decay_all(out, scores, document, table);
    } else {
      decay_own(out, scores, document, table);
    }
  }

 private:
  /// Of eight columns, before those of 16 rows in memory.
  static TILEMAMBA_DEVICE int pieces_before(int block) { return block * (block + 1); }
  /// Among the chunk's blocks of 16 rows.
  static TILEMAMBA_DEVICE int own_row(int block) { return K::part() * own_blocks + block; }
  /// This lane's 16 bytes of eight columns of what block `from` of the cluster gives of 16 rows.
  TILEMAMBA_DEVICE unsigned place(int from, int block, int columns) const {
    return shared_address(K::scores_at) + ((from * own_blocks + block) * (q / 8) + columns) * 512 + lane * 16;
  }

  /// 16 columns of the rows that are the block's own.
  TILEMAMBA_DEVICE void decay_own(SharedOperand& out, const OwnScores& scores, const SharedOrdinals& document,
                                  const DecayTable& table) const {
    const auto& decays = *table.at;
    const int row = static_cast<int>(lane / 4), column = 16 * warp + 2 * static_cast<int>(lane % 4);
    float2 column_log[2];
#pragma unroll
    for (int k = 0; k < 2; ++k)
      column_log[k] = *reinterpret_cast<const float2*>(&decays.table.column_log[column + 8 * k]);
#pragma unroll
    for (int block = 0; block < own_blocks; ++block) {
      if (warp > own_row(block)) continue;
      const int to[2] = {16 * own_row(block) + row, 16 * own_row(block) + row + 8};
      const float cum[2] = {decays.cum[to[0]], decays.cum[to[1]]};
      int start[2] = {};
      if constexpr (documents) start[0] = document.at[to[0]], start[1] = document.at[to[1]];
      float decayed[8];
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const int half = k / 2 % 2, from = column + k / 4 * 8 + k % 2;
        const float log = cum[half] + (k % 2 == 0 ? column_log[k / 4].x : column_log[k / 4].y);
        const bool seen = from <= to[half] && from >= start[half];
        decayed[k] = seen ? scores.r[8 * block + k] * fast_exp2(log) : 0.0f;
      }
      stmatrix(out.at * 16 + swizzled(16 * block + lane % 16, 2 * warp + lane / 16), E::pack(decayed[0], decayed[1]),
               E::pack(decayed[2], decayed[3]), E::pack(decayed[4], decayed[5]), E::pack(decayed[6], decayed[7]));
    }
  }

  /// The same instructions for every warp: all roles' loops share the multiprocessor's small instruction cache.
  TILEMAMBA_DEVICE void decay_all(SharedOperand& out, const Registers<q / 2>& scores, const SharedOrdinals& document,
                                  const DecayTable& table) const {
    const int row = static_cast<int>(lane / 4), column = 2 * static_cast<int>(lane % 4);
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

  /// The score `k` of the block that the diagonal runs through.
  TILEMAMBA_DEVICE float on_diagonal(const float (&scores)[q / 2], int k) const {
    const float above = warp == 0 ? scores[k] : scores[8 + k], below = warp == 2 ? scores[16 + k] : scores[24 + k];
    return warp < 2 ? above : below;
  }
};

}  // namespace tilemamba::cuda::tma
