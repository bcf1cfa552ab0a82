// SPDX-License-Identifier: Apache-2.0
/// @file
/// The worker of a CPU that multiplies pairs of bf16 numbers (AVX512-BF16), for calls whose x, B and C are bf16:
/// operands of products are bf16, two neighbours along the product's depth in a word; all else is as in worker.hpp.
#pragma once

#if defined(__AVX512BF16__)

#include <immintrin.h>

#include <bit>
#include <cstring>

#include "backends/kokkos/worker.hpp"

namespace tilemamba::kokkos {

/// Two bf16 numbers; the one that comes first is in the low half.
struct Pair {
  std::uint32_t bits;
};
using Pairs = MatrixOf<Pair>;
/// Neighbours of a row in a word.
struct RowPairs : Pairs {};
/// Neighbours of a column in a word.
struct ColumnPairs : Pairs {};

template <>
struct Operands<Pair> {
  static constexpr int elements = 2;
  template <class Lanes>
  TILEMAMBA_FN static void multiply_add(Lanes& sum, Pair left, const Lanes& right) {
    const __m512i both = _mm512_set1_epi32(static_cast<int>(left.bits));
    sum = std::bit_cast<Lanes>(
        _mm512_dpbf16_ps(std::bit_cast<__m512>(sum), std::bit_cast<__m512bh>(both), std::bit_cast<__m512bh>(right)));
  }
};

using Halves __attribute__((vector_size(64))) = std::uint16_t;

/// Words of one row and its successor: low halves from `first`.
template <class Lanes>
TILEMAMBA_FN void put_pairs(Pair* to, const Lanes& first, const Lanes& second) {
  const auto halves =
      std::bit_cast<Halves>(_mm512_cvtne2ps_pbh(std::bit_cast<__m512>(second), std::bit_cast<__m512>(first)));
  const Halves pairs = __builtin_shufflevector(halves, halves, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23,
                                               8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  std::memcpy(to, &pairs, sizeof(pairs));
}

/// 16 numbers of a row.
template <class Lanes>
TILEMAMBA_FN void put_lanes(const RowPairs& tile, int row, int column, const Lanes& from) {
  _mm256_store_si256(reinterpret_cast<__m256i*>(&tile.at(row, column / 2)),
                     std::bit_cast<__m256i>(_mm512_cvtneps_pbh(std::bit_cast<__m512>(from))));
}
template <class Lanes>
TILEMAMBA_FN void get_lanes(Lanes& to, const ColumnPairs& tile, int row, int column) {
  using Bits = typename tile::IntegersOf<Lanes>::Type;
  Lanes pairs;
  std::memcpy(&pairs, &tile.at(row / 2, column), sizeof(Lanes));
  const auto bits = std::bit_cast<Bits>(pairs);
  to = std::bit_cast<Lanes>(row % 2 == 0 ? bits << 16 : bits & static_cast<int>(0xffff0000u));
}
TILEMAMBA_FN float element(const ColumnPairs& tile, int row, int column) {
  const std::uint32_t bits = tile.at(row / 2, column).bits;
  return std::bit_cast<float>(row % 2 == 0 ? bits << 16 : bits & 0xffff0000u);
}

template <class Space>
struct Bf16Worker : Worker<Space> {
  using Base = Worker<Space>;
  using Base::Base;
  using Token = typename Base::Token;
  using Trim = typename Base::Trim;
  using Lanes = typename Base::Block::Vector;
  using Half __attribute__((may_alias)) = std::uint16_t;
  static constexpr int lanes = Base::Block::lanes;

  template <class Axis>
  using Vector = typename Base::template Vector<Axis>;
  template <class Axis>
  using Ordinals = typename Base::template Ordinals<Axis>;
  template <class Row, class Column>
  using Plain = typename Base::template Plain<Row, Column>;
  template <class Row, class Column>
  using State = typename Base::template State<Row, Column>;

  // ------------------------------------------------------------------------------------------------------------------
  // types
  template <class Row, class Column>
  struct InRows : RowPairs {
    InRows() = default;
    TILEMAMBA_FN explicit InRows(Bf16Worker& w)
        : RowPairs{w.template take<Pair>(w.template extent<Row>(), w.template extent<Column>() / 2)} {}
  };
  template <class Row, class Column>
  struct InColumns : ColumnPairs {
    InColumns() = default;
    TILEMAMBA_FN explicit InColumns(Bf16Worker& w)
        : ColumnPairs{w.template take<Pair>(w.template extent<Row>() / 2, w.template extent<Column>())} {}
  };
  /// Lies the other way round, neighbours of a row in a word.
  template <class Row, class Column>
  using Transposed = InColumns<Column, Row>;
  /// B: its products run over tokens and over the state.
  template <class Row, class Column>
  struct Both : InColumns<Row, Column> {
    InRows<Row, Column> rows;
    Transposed<Row, Column> transposed;
    Both() = default;
    TILEMAMBA_FN explicit Both(Bf16Worker& w) : InColumns<Row, Column>(w), rows(w), transposed(w) {}
  };
  /// x itself, or a copy with something changed.
  template <class Row, class Column>
  struct CopyOrAlias : ColumnPairs {
    Pair* own = nullptr;
    CopyOrAlias() = default;
    TILEMAMBA_FN explicit CopyOrAlias(Bf16Worker& w) : ColumnPairs(InColumns<Row, Column>(w)), own(data) {}
  };

  template <class Row, class Column, unsigned uses>
  using Shared = std::conditional_t<
      (uses & tile::as_Bt) != 0, Both<Row, Column>,
      std::conditional_t<(uses & tile::as_A) != 0, InRows<Row, Column>,
                         std::conditional_t<(uses & tile::as_B) != 0, InColumns<Row, Column>, Plain<Row, Column>>>>;
  template <class Row, class Column, unsigned use, Part part = Part::full>
  using Operand = std::conditional_t<
      use == tile::as_A, InRows<Row, Column>,
      std::conditional_t<use == tile::as_Bt, Transposed<Row, Column>,
                         std::conditional_t<use == tile::as_B, CopyOrAlias<Row, Column>, InColumns<Row, Column>>>>;

  // ------------------------------------------------------------------------------------------------------------------
  // from memory
  using Base::get;
  TILEMAMBA_FN void get(InRows<Q, N>& out, const tile::TokenView& view, const tile::Tokens& tokens,
                        const tile::Slice& slice) const {
    const auto* from = static_cast<const Half*>(view.data) + view.offset(tokens, slice.head, slice.channel);
    this->each(out.height, [&](int i) {
      auto* to = reinterpret_cast<Half*>(&out.at(i, 0));
      const int width = i < tokens.count ? view.width : 0;
      for (int n = 0; n < width; ++n) to[n] = from[i * view.token_stride + n];
      for (int n = width; n < 2 * out.width; ++n) to[n] = 0;
    });
  }
  TILEMAMBA_FN void get(Both<Q, N>& out, const tile::TokenView& view, const tile::Tokens& tokens,
                        const tile::Slice& slice) const {
    get(out.rows, view, tokens, slice);
    this->template turn<Pair>(out.transposed, out.rows);
    this->each(out.height, [&](int i) {
      stack(out, i, reinterpret_cast<Half*>(&out.rows.at(2 * i, 0)),
            reinterpret_cast<Half*>(&out.rows.at(2 * i + 1, 0)), out.width);
    });
  }
  TILEMAMBA_FN void get(InColumns<Q, P>& out, const tile::TokenView& view, const tile::Tokens& tokens,
                        const tile::Slice& slice) const {
    const std::int64_t origin = view.offset(tokens, slice.head, slice.channel);
    const auto* from = static_cast<const Half*>(view.data) + origin;
    const int width = least(2 * out.width, view.width - slice.channel);
    this->each((tokens.count + 1) / 2, [&](int i) {
      const Half* const first = from + 2 * i * view.token_stride;
      for (int row = 0; row < 2; ++row) {
        this->fetch_soon(view, origin + (2 * out.height + 2 * i + row) * view.token_stride, width);
      }
      if (2 * i + 1 < tokens.count) return stack(out, i, first, first + view.token_stride, least(out.width, width));
      for (int p = 0; p < least(out.width, width); ++p) out.at(i, p).bits = first[p];
    });
    this->template pad<Pair>(out, (tokens.count + 1) / 2, least(out.width, width));
  }
  /// Row i of words from two rows of numbers.
  TILEMAMBA_FN static void stack(const Pairs& out, int i, const Half* first, const Half* second, int width) {
    for (int p = 0; p < width; ++p) {
      out.at(i, p).bits = static_cast<std::uint32_t>(first[p]) | static_cast<std::uint32_t>(second[p]) << 16;
    }
  }
  TILEMAMBA_FN void get(Transposed<P, N>& out, const tile::StateView& view, std::int64_t batch, std::int64_t index,
                        const tile::Slice& slice) const {
    const std::int64_t origin = view.offset(batch, index, slice);
    const int channels = least(out.width, view.channels - slice.channel);
    with_loads(view.data, view.dtype, [&](const auto& load) {
      this->each(out.height, out.width, [&](int n, int p) {
        const auto value = [&](int column) {
          return p < channels && column < view.width ? load(origin + p * view.channel_stride + column) : 0.0f;
        };
        out.at(n, p) = pair(value(2 * n), value(2 * n + 1));
      });
    });
  }
  TILEMAMBA_FN static Pair pair(float first, float second) {
    return {tile::to_bf16(first) | static_cast<std::uint32_t>(tile::to_bf16(second)) << 16};
  }

  // ------------------------------------------------------------------------------------------------------------------
  // elementwise
  using Base::weigh;
  TILEMAMBA_FN void weigh(InColumns<Q, P>& out, const InColumns<Q, P>& x, const Vector<Q>& weights) const {
    this->each(out.height, out.width / lanes, [&](int i, int piece) {
      Lanes row[2];
      for (int k = 0; k < 2; ++k) {
        get_lanes(row[k], x, 2 * i + k, piece * lanes);
        row[k] = tile::weigh(row[k], Lanes{} + weights.data[2 * i + k]);
      }
      put_pairs(&out.at(i, piece * lanes), row[0], row[1]);
    });
  }
  TILEMAMBA_FN void operand(Transposed<P, N>& out, const State<P, N>& source) const {
    this->each(out.height, out.width / lanes, [&](int n, int piece) {
      put_pairs(&out.at(n, piece * lanes), this->lanes_at(&source.at(2 * n, piece * lanes)),
                this->lanes_at(&source.at(2 * n + 1, piece * lanes)));
    });
  }
  template <class F>
  TILEMAMBA_FN void operand_if(bool condition, CopyOrAlias<Q, P>& out, const InColumns<Q, P>& source,
                               const F& f) const {
    out.data = condition ? out.own : source.data;
    if (!condition) return;
    this->each(out.height, out.width, [&](int i, int p) {
      out.at(i, p) = pair(f(element(source, 2 * i, p)), f(element(source, 2 * i + 1, p)));
    });
  }
  TILEMAMBA_FN void keep_last(Both<Q, N>& B, const Ordinals<Q>& document) const {
    const int kept = this->last(document);
    if (document.data[0] == kept) return;
    this->each(B.height, B.width, [&](int i, int n) {
      if (document.data[2 * i] != kept) B.at(i, n).bits &= 0xffff0000u;
      if (document.data[2 * i + 1] != kept) B.at(i, n).bits &= 0x0000ffffu;
    });
  }

  // ------------------------------------------------------------------------------------------------------------------
  // products
  TILEMAMBA_FN Token mma_ABt(tile::Set<Plain<Q, Q>> scores, const InRows<Q, N>& C, const Both<Q, N>& B) const {
    return this->template product<false, Trim::upper_result, Pair>(scores.target, this->template rows_of<Pair>(C),
                                                                   B.transposed);
  }
  TILEMAMBA_FN Token mma_ABt(tile::Set<Plain<Q, P>> y, const InRows<Q, N>& C, const Transposed<P, N>& S) const {
    return this->template product<false, Trim::none, Pair>(y.target, this->template rows_of<Pair>(C), S);
  }
  TILEMAMBA_FN Token mma_AB(tile::Add<Plain<Q, P>> y, const InRows<Q, Q>& decayed, const CopyOrAlias<Q, P>& x) const {
    return this->template product<true, Trim::upper_left, Pair>(y.target, this->template rows_of<Pair>(decayed), x);
  }
  TILEMAMBA_FN Token mma_AtB(tile::Add<State<P, N>> S, const InColumns<Q, P>& weighted, const Both<Q, N>& B) const {
    return this->template product<true, Trim::none, Pair>(S.target, this->template columns_of<Pair>(B), weighted);
  }
};

}  // namespace tilemamba::kokkos

#endif
