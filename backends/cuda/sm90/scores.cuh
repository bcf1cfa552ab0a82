// SPDX-License-Identifier: Apache-2.0
/// @file
/// The worker that makes scores and decays them.
#pragma once

#include "backends/cuda/sm90/descriptor.cuh"
#include "backends/cuda/tma/scores.cuh"

namespace tilemamba::cuda::sm90 {

using namespace tma;

template <class K>
struct ScoreWorker : ScoreFragments<K> {
  using E = typename K::E;
  struct [[nodiscard]] Token {};

  using Scores = typename ScoreFragments<K>::Scores;

  TILEMAMBA_DEVICE Token mma_ABt(tile::Set<Scores> scores, const SharedTile<tile::as_A>& C,
                                 const SharedTile<tile::as_Bt | tile::as_B>& B) const {
    return multiply<false>(scores.target, C, B);
  }
  TILEMAMBA_DEVICE Token mma_ABt(tile::Add<Scores> scores, const SharedTile<tile::as_A>& C,
                                 const SharedTile<tile::as_Bt | tile::as_B>& B) const {
    return multiply<true>(scores.target, C, B);
  }
  TILEMAMBA_DEVICE void wait(const Token&) const { wait_products<0>(); }

 private:
  template <bool more>
  TILEMAMBA_DEVICE Token multiply(Scores& scores, const SharedTile<tile::as_A>& C,
                                  const SharedTile<tile::as_Bt | tile::as_B>& B) const {
    const std::uint32_t c = inner_columns(C.at), b = inner_columns(B.at);
    Registers<q / 2>& part = this->part_of(scores);
    begin_products();
    wgmma<E, more>(part.r, descriptor(c), descriptor(b));
#pragma unroll
    for (int k = 1; k < K::n / 16; ++k) {
      const unsigned step = (k / 4 * plane_bytes + k % 4 * 32) / 16;
      wgmma<E, true>(part.r, descriptor(c + step), descriptor(b + step));
    }
    commit_products();
    return {};
  }
};

}  // namespace tilemamba::cuda::sm90
