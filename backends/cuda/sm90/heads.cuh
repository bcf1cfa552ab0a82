// SPDX-License-Identifier: Apache-2.0
/// @file
/// The worker of a slice of a head: its state stays in registers.
#pragma once

#include "backends/cuda/sm90/descriptor.cuh"
#include "backends/cuda/tma/heads.cuh"

namespace tilemamba::cuda::sm90 {

using namespace tma;

template <class K>
struct HeadWorker : HeadFragments<K> {
  using E = typename K::E;
  static constexpr int n = K::n;
  using Base = HeadFragments<K>;
  using Base::map;
  using Outputs = typename Base::Outputs;
  template <class R, class C>
  struct State : Registers<n / 2> {
    State() = default;
    TILEMAMBA_DEVICE explicit State(const HeadWorker&) {}
  };
  struct [[nodiscard]] Token {};

  template <class F>
  TILEMAMBA_DEVICE void map(State<P, N>& S, F f, const tile::Same<State<P, N>>& other) const {
#pragma unroll
    for (int k = 0; k < n / 2; ++k) S.r[k] = f(S.r[k], other.tile.r[k]);
  }

  /// y^T = S_in C^T
  TILEMAMBA_DEVICE Token mma_ABt(tile::Set<Outputs> outputs, const SharedTile<tile::as_A>& C,
                                 const RegisterOperand<n / 16>& S) const {
    Registers<q / 2>& y = Base::part_of(outputs.target);
    const std::uint32_t c = inner_columns(C.at);
    begin_products();
    wgmma<E, false, false>(y.r, S.r[0], descriptor(c));
#pragma unroll
    for (int k = 1; k < n / 16; ++k) {
      wgmma<E, false, true>(y.r, S.r[k], descriptor(c + (k / 4 * plane_bytes + k % 4 * 32) / 16));
    }
    commit_products();
    return {};
  }
  /// S += weighted^T B
  TILEMAMBA_DEVICE Token mma_AtB(tile::Add<State<P, N>> S, const RegisterOperand<q / 16>& weighted,
                                 const SharedTile<tile::as_Bt | tile::as_B>& B) const {
    const std::uint32_t b = inner_rows(K::parts > 1 || K::features.chained ? B.at & 0x3fff : B.at);
    begin_products();
#pragma unroll
    for (int k = 0; k < q / 16; ++k) wgmma<E, true, true>(S.target.r, weighted.r[k], descriptor(b + k * 2048 / 16));
    commit_products();
    return {};
  }
  /// y^T += x^T decayed^T of the block's own tokens; if these are all, D x too
  TILEMAMBA_DEVICE Token mma_AB(tile::Add<Outputs> y, const SharedOperand& decayed,
                                const RegisterOperand<q / 16>& x) const {
    if constexpr (K::parts == 1) this->add_skips(y.target, x);
    const std::uint32_t d = inner_columns(decayed.at);
    wait_phase(decayed.ready, decayed.parity);
    begin_products();
#pragma unroll
    for (int k = 0; k < q / 16; ++k) {
      if constexpr (K::parts == 1) {
        wgmma<E, false, true>(y.target.r, x.r[k], descriptor(d + k * 32 / 16));
      } else {
        wgmma<E, false, true>(y.target.within.r, x.r[k], descriptor(d + k * 32 / 16));
      }
    }
    commit_products();
    return {};
  }
  template <class... Later>
  TILEMAMBA_DEVICE void wait(const Token&, const Later&...) const {
    wait_products<static_cast<int>(sizeof...(Later))>();
  }
};

}  // namespace tilemamba::cuda::sm90
