// SPDX-License-Identifier: Apache-2.0
/// @file
/// The worker of a CPU that multiplies pairs of bf16 numbers (AVX512-BF16) or tiles of them (AMX-BF16), for calls whose
/// x, B and C are bf16: operands of products are bf16, two neighbours along the product's depth in a word; all else is
/// as in worker.hpp.
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

#if defined(__AMX_BF16__)
/// Sets up this thread's tile registers, each of up to 16 rows of 64 bytes. 0 and 1: sums of 16 x 16, side by side. 2,
/// and 3 and 4: the left and right operands of 16 words' depth. 5, and 6 and 7: of 8, for what is left.
inline void configure_tiles() {
  struct alignas(64) Configuration {
    std::uint8_t palette, start_row, reserved[14];
    std::uint16_t row_bytes[16];
    std::uint8_t rows[16];
  };
  static constexpr Configuration configuration = {
      1, 0, {}, {64, 64, 64, 64, 64, 32, 64, 64}, {16, 16, 16, 16, 16, 16, 8, 8}};
  _tile_loadconfig(&configuration);
  // GCC 12 does not know that tiles are loaded from memory: what was stored must be there.
  asm volatile("" ::: "memory");
}

/// A block of out, 16 rows and `across` times 16 columns: out = [out +] left * right. Strides and depth in words.
template <bool add, int across>
void multiply_tiles(float* out, int out_stride, const Pair* left, int left_stride, const Pair* right, int right_stride,
                    int depth) {
  constexpr int bytes = sizeof(Pair);
  if constexpr (add) {
    _tile_loadd(0, out, out_stride * bytes);
    if constexpr (across == 2) _tile_loadd(1, out + 16, out_stride * bytes);
  } else {
    _tile_zero(0);
    if constexpr (across == 2) _tile_zero(1);
  }
  int k = 0;
  for (; k + 16 <= depth; k += 16) {
    _tile_loadd(2, left + k, left_stride * bytes);
    _tile_loadd(3, right + k * right_stride, right_stride * bytes);
    _tile_dpbf16ps(0, 2, 3);
    if constexpr (across == 2) {
      _tile_loadd(4, right + k * right_stride + 16, right_stride * bytes);
      _tile_dpbf16ps(1, 2, 4);
    }
  }
  if (k < depth) {
    _tile_loadd(5, left + k, left_stride * bytes);
    _tile_loadd(6, right + k * right_stride, right_stride * bytes);
    _tile_dpbf16ps(0, 5, 6);
    if constexpr (across == 2) {
      _tile_loadd(7, right + k * right_stride + 16, right_stride * bytes);
      _tile_dpbf16ps(1, 5, 7);
    }
  }
  _tile_stored(0, out, out_stride * bytes);
  if constexpr (across == 2) _tile_stored(1, out + 16, out_stride * bytes);
}
#endif

template <class Space>
struct Bf16Worker : Worker<Space> {
  using Base = Worker<Space>;
  using Base::Base;
  using Token = typename Base::Token;
  using Trim = typename Base::Trim;
  using Lanes = typename Base::Block::Vector;
  using Half __attribute__((may_alias)) = std::uint16_t;
  static constexpr int lanes = Base::Block::lanes;
  static constexpr int state_padding = 2 * padding;  // whole vectors of words

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
  /// B: its products run over the state (`over_state`) and over tokens (`over_tokens`); the others lead there.
  template <class Row, class Column>
  struct Both {
    InRows<Row, Column> rows;
    InColumns<Row, Column> columns;
    Transposed<Row, Column> over_state;
    InRows<Column, Row> over_tokens;
    Both() = default;
    TILEMAMBA_FN explicit Both(Bf16Worker& w) : rows(w), columns(w), over_state(w), over_tokens(w) {}
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
    this->each(out.columns.height, [&](int i) {
      stack(out.columns, i, reinterpret_cast<Half*>(&out.rows.at(2 * i, 0)),
            reinterpret_cast<Half*>(&out.rows.at(2 * i + 1, 0)), out.columns.width);
    });
    this->template turn<Pair>(out.over_state, out.rows);
    this->template turn<Pair>(out.over_tokens, out.columns);
  }
  TILEMAMBA_FN void get(InColumns<Q, P>& out, const tile::TokenView& view, const tile::Tokens& tokens,
                        const tile::Slice& slice) const {
    const std::int64_t origin = view.offset(tokens, slice.head, slice.channel);
    const auto* from = static_cast<const Half*>(view.data) + origin;
    const int width = least(out.width, view.width - slice.channel);
    this->each((tokens.count + 1) / 2, [&](int i) {
      const Half* const first = from + 2 * i * view.token_stride;
      if (2 * i + 1 < tokens.count) return stack(out, i, first, first + view.token_stride, width);
      for (int p = 0; p < width; ++p) out.at(i, p).bits = first[p];
    });
    this->template pad<Pair>(out, (tokens.count + 1) / 2, width);
    this->fetch_soon(view, origin + 2 * out.height * view.token_stride, tokens.count, width);
  }
  /// Row i of words from two rows of numbers.
  TILEMAMBA_FN static void stack(const Pairs& out, int i, const Half* first, const Half* second, int width) {
    for (int p = 0; p < width; ++p) {
      out.at(i, p).bits = static_cast<std::uint32_t>(first[p]) | static_cast<std::uint32_t>(second[p]) << 16;
    }
  }
  TILEMAMBA_FN void get(Transposed<P, N>& out, const tile::StateView& view, std::int64_t batch, std::int64_t index,
                        const tile::Slice& slice) const {
    this->each_square(view, batch, index, slice, [&](int n, int p, const Lanes* rows) {
      for (int k = 0; k < lanes; k += 2) put_pairs(&out.at((n + k) / 2, p), rows[k], rows[k + 1]);
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
    this->each(B.over_tokens.height, B.over_tokens.width, [&](int n, int i) {
      std::uint32_t& bits = B.over_tokens.at(n, i).bits;
      if (document.data[2 * i] != kept) bits &= 0xffff0000u;
      if (document.data[2 * i + 1] != kept) bits &= 0x0000ffffu;
    });
  }

  // ------------------------------------------------------------------------------------------------------------------
  // products
#if defined(__AMX_BF16__)
  /// out = [out +] left * right, left lying in rows.
  template <bool add, Trim trim>
  Token multiply(const Matrix& out, const RowPairs& left, const Pairs& right) const {
    configure_tiles();
    for (int row = 0; row < out.height; row += 16) {
      const int width = trim == Trim::upper_result ? row + 16 : out.width;
      const int depth = trim == Trim::upper_left ? (row + 16) / 2 : right.height;
      for (int column = 0; column < width; column += 32) {
        const auto block = column + 32 <= width ? multiply_tiles<add, 2> : multiply_tiles<add, 1>;
        block(&out.at(row, column), out.width, &left.at(row, 0), left.width, right.data + column, right.width, depth);
      }
    }
    _tile_release();
    return {};
  }
#else
  template <bool add, Trim trim>
  Token multiply(const Matrix& out, const RowPairs& left, const Pairs& right) const {
    return this->template product<add, trim, Pair>(out, this->template rows_of<Pair>(left), right);
  }
#endif
  TILEMAMBA_FN Token mma_ABt(tile::Set<Plain<Q, Q>> scores, const InRows<Q, N>& C, const Both<Q, N>& B) const {
    return multiply<false, Trim::upper_result>(scores.target, C, B.over_state);
  }
  TILEMAMBA_FN Token mma_ABt(tile::Set<Plain<Q, P>> y, const InRows<Q, N>& C, const Transposed<P, N>& S) const {
    return multiply<false, Trim::none>(y.target, C, S);
  }
  TILEMAMBA_FN Token mma_AB(tile::Add<Plain<Q, P>> y, const InRows<Q, Q>& decayed, const CopyOrAlias<Q, P>& x) const {
    return multiply<true, Trim::upper_left>(y.target, decayed, x);
  }
  TILEMAMBA_FN Token mma_AtB(tile::Add<State<P, N>> S, const InColumns<Q, P>& weighted, const Both<Q, N>& B) const {
    return multiply<true, Trim::none>(S.target, B.over_tokens, weighted);
  }
};

}  // namespace tilemamba::kokkos

#endif
