// SPDX-License-Identifier: Apache-2.0
/// @file
/// The worker of a slice of a head: its state stays in tensor memory, and passes through registers to be decayed and
/// narrowed.
#pragma once

#include "backends/cuda/sm100/products.cuh"
#include "backends/cuda/tma/heads.cuh"

namespace tilemamba::cuda::sm100 {

template <class K>
struct HeadWorker : HeadFragments<K>, Products<K> {
  using E = typename K::E;
  static_assert(K::n == n);
  using Base = HeadFragments<K>;
  using Base::get, Base::put, Base::map, Base::weigh;
  using Token = sm100::Token;

  template <class R, class C>
  struct State {
    unsigned column = StateAt::at;
    State() = default;
    TILEMAMBA_DEVICE explicit State(const HeadWorker&) : column(MoreAt::at) {}
  };
  /// An operand in tensor memory.
  template <class At>
  struct Placed {};
  /// What has been collected of y; products have their part in tensor memory.
  struct Outputs : Base::Outputs {};

  template <class R, class C, unsigned use, Part part = Part::full>
  using Operand = std::conditional_t<
      std::is_same_v<C, N>, Placed<EnteringAt>,
      std::conditional_t<use == tile::as_At, Placed<WeightedAt>, typename Base::template Operand<R, C, use>>>;
  template <class R, class C, Part part = Part::full>
  using Accumulator = Outputs;

  /// Where this warp's rows of a tile of the head are.
  [[nodiscard]] TILEMAMBA_DEVICE unsigned own(unsigned column) const {
    return in_lane(this->tensor + column, 16 * this->worker + 32 * this->warp);
  }

  // -------------------------------------------------------------------------------------------------------------------
  // states
  TILEMAMBA_DEVICE void load(Registers<n / 2>& here, const State<P, N>& S) const {
    load_fragments(here.r, own(S.column));
    wait_tensor_loads();
  }
  TILEMAMBA_DEVICE void store(const State<P, N>& S, const Registers<n / 2>& here) const {
    store_fragments(own(S.column), here.r);
    wait_tensor_stores();
  }
  TILEMAMBA_DEVICE void get(State<P, N>& S, const States& view, std::int64_t batch, std::int64_t index,
                            const tile::Slice& slice) const {
    Registers<n / 2> here;
    Base::get(here, view, batch, index, slice);
    store(S, here);
  }
  template <class View>
  TILEMAMBA_DEVICE void put(const View& view, std::int64_t batch, std::int64_t index, const tile::Slice& slice,
                            const State<P, N>& S) const {
    Registers<n / 2> here;
    load(here, S);
    Base::put(view, batch, index, slice, here);
  }
  TILEMAMBA_DEVICE void zero(State<P, N>& S) const {
    Registers<n / 2> here;
    Base::zero(here);
    store(S, here);
  }
  // What happens for every chunk, by halves: for all of it there are no registers.
  TILEMAMBA_DEVICE void decay(State<P, N>& S, float factor) const {
    by_halves([&](int columns) {
      Registers<n / 4> here;
      load_fragments(here.r, own(S.column + columns));
      wait_tensor_loads();
      Base::decay(here, factor);
      store_fragments(own(S.column + columns), here.r);
    });
    wait_tensor_stores();
  }
  template <class F>
  TILEMAMBA_DEVICE void chained_scan(State<P, N>& S, std::int64_t index, std::int64_t count, F f) const {
    Registers<n / 2> here;
    load(here, S);
    Base::chained_scan(here, index, count, f);
    store(S, here);
  }
  template <class F>
  TILEMAMBA_DEVICE void map(State<P, N>& S, F f, const tile::Same<State<P, N>>& other) const {
    by_halves([&](int columns) {
      Registers<n / 4> here, its;
      load_fragments(here.r, own(S.column + columns));
      load_fragments(its.r, own(other.tile.column + columns));
      wait_tensor_loads();
#pragma unroll
      for (int k = 0; k < n / 4; ++k) here.r[k] = f(here.r[k], its.r[k]);
      store_fragments(own(S.column + columns), here.r);
    });
    wait_tensor_stores();
  }
  TILEMAMBA_DEVICE void operand(Placed<EnteringAt>&, const State<P, N>& S) const {
    by_halves([&](int columns) {
      Registers<n / 4> here;
      load_fragments(here.r, own(S.column + columns));
      wait_tensor_loads();
      RegisterOperand<n / 32> out;
      Base::operand(out, here);
      store_operand(own(EnteringAt::at + columns / 2), out.r);
    });
  }

  TILEMAMBA_DEVICE void weigh(Placed<WeightedAt>&, const HeadTile& x, const SharedWeights& weights) const {
    RegisterOperand<q / 16> out;
    Base::weigh(out, x, weights);
    store_operand(own(WeightedAt::at), out.r);
  }

  // -------------------------------------------------------------------------------------------------------------------
  // y
  /// The state's part, collected.
  TILEMAMBA_DEVICE void weigh(Outputs& y, const SharedVector& weights) const {
    load_fragments(Base::part_of(y).r, own(OutputsAt::at));
    wait_tensor_loads();
    Base::weigh(y, weights);
  }
  /// The chunk's own part.
  TILEMAMBA_DEVICE void collect(Outputs& y, const HeadTile& x) {
    Registers<Base::own> within;
    load_fragments(within.r, own(OutputsAt::at));
    wait_tensor_loads();
#pragma unroll
    for (int k = 0; k < Base::own; ++k) {
      if constexpr (K::parts == 1) {
        y.r[k] += within.r[k];
      } else {
        y.within.r[k] += within.r[k];
      }
    }
    Base::collect(y, x);
    // What stores fp32 outputs must not keep what it was derived from.
    if constexpr (K::features.wide) this->warp = forgotten(this->warp);
  }

  // -------------------------------------------------------------------------------------------------------------------
  // products
  /// y^T = S_in C^T
  TILEMAMBA_DEVICE Token mma_ABt(tile::Set<Outputs>, const SharedTile<tile::as_A>& C, const Placed<EnteringAt>&) {
    const std::uint64_t c = inner_columns(C.at * 16);
    return issue(from_state, [&](unsigned head) {
      product_of_tensor<false>(head + OutputsAt::at, head + EnteringAt::at, c, instruction<q, false>);
#pragma unroll
      for (int k = 1; k < n / 16; ++k) {
        product_of_tensor<true>(head + OutputsAt::at, head + EnteringAt::at + 8 * k,
                                further(c, k / 4 * plane_bytes + k % 4 * 32), instruction<q, false>);
      }
    });
  }
  /// S += weighted^T B
  TILEMAMBA_DEVICE Token mma_AtB(tile::Add<State<P, N>> S, const Placed<WeightedAt>&,
                                 const SharedTile<tile::as_Bt | tile::as_B>& B) {
    const std::uint64_t b = inner_rows(B.at * 16);
    return issue(advance, [&](unsigned head) {
#pragma unroll
      for (int k = 0; k < q / 16; ++k) {
        product_of_tensor<true>(head + S.target.column, head + WeightedAt::at + 8 * k, further(b, k * 2048),
                                instruction<n, true>);
      }
    });
  }
  /// y^T = x^T decayed^T of the block's own tokens; if these are all, D x to what has been collected
  TILEMAMBA_DEVICE Token mma_AB(tile::Add<Outputs> y, const SharedOperand& decayed, const RegisterOperand<q / 16>& x) {
    store_operand(own(InputsAt::at), x.r);
    if constexpr (K::parts == 1) this->add_skips(y.target, x);
    const std::uint64_t d = inner_columns(decayed.at * 16);
    wait_phase(decayed.ready, decayed.parity);
    return issue(within, [&](unsigned head) {
      product_of_tensor<false>(head + OutputsAt::at, head + InputsAt::at, d, instruction<K::own_tokens, false>);
#pragma unroll
      for (int k = 1; k < q / 16; ++k) {
        product_of_tensor<true>(head + OutputsAt::at, head + InputsAt::at + 8 * k, further(d, k * 32),
                                instruction<K::own_tokens, false>);
      }
    });
  }

 private:
  template <class F>
  TILEMAMBA_DEVICE static void by_halves(F f) {
    f(0);
    f(n / 2);
  }
  template <unsigned columns, bool inner_rows>
  static constexpr std::uint32_t instruction =
      InstructionDescriptor{E::dtype == DType::bf16, inner_rows, columns}.bits();

  /// `products`: from where the head's lanes begin. Other addresses follow from it, each time anew: there are more than
  /// registers.
  template <class F>
  TILEMAMBA_DEVICE Token issue(Product product, F products) {
    return Products<K>::issue(product + this->worker, this->worker, this->warp,
                              [&] { products(in_lane(this->tensor, 16 * forgotten(this->worker))); });
  }
};

}  // namespace tilemamba::cuda::sm100
