// SPDX-License-Identifier: Apache-2.0
/// @file
/// The worker that makes scores and decays them.
#pragma once

#include "backends/cuda/sm100/products.cuh"
#include "backends/cuda/tma/scores.cuh"

namespace tilemamba::cuda::sm100 {

template <class K>
struct ScoreWorker : ScoreFragments<K>, Products<K> {
  using E = typename K::E;
  using Token = sm100::Token;
  /// In tensor memory; the registers are for when they have left it.
  struct Scores : ScoreFragments<K>::Scores {
    unsigned at;
  };
  template <class R, class C, Part part = Part::full>
  using Accumulator = Scores;

  /// In the walk chunks take turns with the lanes.
  TILEMAMBA_DEVICE Token mma_ABt(tile::Set<Scores> scores, const SharedTile<tile::as_A>& C,
                                 const SharedTile<tile::as_Bt | tile::as_B>& B) {
    scores.target.at = in_lane(this->tensor + ScoresAt::at, 16 * this->parity(scores_product));
    return multiply<false>(scores.target.at, C, B);
  }
  TILEMAMBA_DEVICE Token mma_ABt(tile::Add<Scores> scores, const SharedTile<tile::as_A>& C,
                                 const SharedTile<tile::as_Bt | tile::as_B>& B) {
    return multiply<true>(scores.target.at, C, B);
  }

  TILEMAMBA_DEVICE void give(Scores& scores) const {
    load(scores);
    ScoreFragments<K>::give(scores);
  }
  TILEMAMBA_DEVICE void put(const kernels::ChunkVectors& view, std::int64_t chunk, int group, Scores& scores) const {
    load(scores);
    ScoreFragments<K>::put(view, chunk, group, scores);
  }
  TILEMAMBA_DEVICE void sum_columns(Scores& scores) const {
    if constexpr (K::parts == 1) load(scores);
    ScoreFragments<K>::sum_columns(scores);
  }

 private:
  template <bool more>
  TILEMAMBA_DEVICE Token multiply(unsigned to, const SharedTile<tile::as_A>& C,
                                  const SharedTile<tile::as_Bt | tile::as_B>& B) {
    const std::uint64_t c = inner_columns(C.at * 16), b = inner_columns(B.at * 16);
    return this->issue(scores_product, policy_workers, this->warp, [&] {
      constexpr std::uint32_t instruction = InstructionDescriptor{E::dtype == DType::bf16, false, q}.bits();
      product_of_shared<more>(to, c, b, instruction);
#pragma unroll
      for (int k = 1; k < n / 16; ++k) {
        const unsigned step = k / 4 * plane_bytes + k % 4 * 32;
        product_of_shared<true>(to, further(c, step), further(b, step), instruction);
      }
    });
  }
  TILEMAMBA_DEVICE void load(Scores& scores) const {
    load_fragments(this->part_of(scores).r, in_lane(scores.at, 32 * this->warp));
    wait_tensor_loads();
  }
};

}  // namespace tilemamba::cuda::sm100
