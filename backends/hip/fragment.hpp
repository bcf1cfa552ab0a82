// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a lane holds of the matrices of a product, and how one becomes another. M is the machine: device.hpp, or the
/// tests' own.
#pragma once

#include <bit>
#include <cstdint>

#include <tilemamba/dtype.hpp>

#include "backends/hip/target.hpp"

namespace tilemamba::hip {

/// So many 32-bit words that are moved at once.
template <int count>
struct [[gnu::may_alias]] Words {
  std::uint32_t r[count];
};

/// A lane's part of a sum.
template <class Target>
struct Sum {
  float r[Target::sum];
};

/// A lane's part of an operand: 16-bit elements two a word, the first in the low half.
template <class Target, DType type>
struct Operand : Words<Target::operand*(type == DType::f32 ? 4 : 2) / 4> {};

/// A sum in the type of operands, its elements in the order of the sum's.
template <class Target, DType type>
struct Packed : Words<Target::sum*(type == DType::f32 ? 4 : 2) / 4> {};

template <class M, DType type>
struct Fragments {
  using Target = typename M::Target;
  using Sum = hip::Sum<Target>;
  using Operand = hip::Operand<Target, type>;
  using Packed = hip::Packed<Target, type>;
  static constexpr int size = type == DType::f32 ? 4 : 2;

  template <int count>
  static TILEMAMBA_FN float element(const Words<count>& words, int e) {
    if constexpr (size == 4) return std::bit_cast<float>(words.r[e]);
    return M::template widen<type>(static_cast<std::uint16_t>(words.r[e / 2] >> (e % 2 * 16)));
  }
  /// The words of the elements that f(e) gives.
  template <class Fragment, class F>
  static TILEMAMBA_FN Fragment made_of(F f) {
    Fragment fragment;
    constexpr int words = static_cast<int>(sizeof(Fragment) / 4);
    TILEMAMBA_UNROLL
    for (int k = 0; k < words; ++k) {
      if constexpr (size == 4) {
        fragment.r[k] = std::bit_cast<std::uint32_t>(f(k));
      } else {
        fragment.r[k] = M::template narrow<type>(f(2 * k)) |
                        static_cast<std::uint32_t>(M::template narrow<type>(f(2 * k + 1))) << 16;
      }
    }
    return fragment;
  }

  /// Infinities and what is no number become zeros.
  template <int count>
  static TILEMAMBA_FN Words<count> finite_or_zero(Words<count> words) {
    constexpr std::uint32_t exponent = type == DType::f32 ? 0x7f800000u : type == DType::bf16 ? 0x7f80u : 0x7c00u;
    TILEMAMBA_UNROLL
    for (std::uint32_t& word : words.r) {
      if constexpr (size == 4) {
        word = (word & exponent) == exponent ? 0u : word;
      } else {
        constexpr std::uint32_t high = exponent << 16;
        word =
            ((word & exponent) == exponent ? 0u : word & 0xffffu) | ((word & high) == high ? 0u : word & 0xffff0000u);
      }
    }
    return words;
  }

  static TILEMAMBA_FN Packed pack(const Sum& sum) {
    return made_of<Packed>([&](int r) { return sum.r[r]; });
  }

  /// The operand whose lines are a sum's columns, and whose inner dimension are its rows.
  static TILEMAMBA_FN Operand arrange(const Packed& packed, int lane) {
    Operand operand;
    if constexpr (Target::sum == Target::operand) {
      TILEMAMBA_UNROLL
      for (int k = 0; k < static_cast<int>(sizeof(Operand) / 4); ++k) operand.r[k] = packed.r[k];
    } else {  // even rows are in the low half of the wave, odd ones in the high half
      const bool high = lane >= 16;
      TILEMAMBA_UNROLL
      for (int k = 0; k < static_cast<int>(sizeof(Packed) / 4); ++k) {
        const std::uint32_t mine = packed.r[k], theirs = M::of_other_half(mine);
        const std::uint32_t even = high ? theirs : mine, odd = high ? mine : theirs;
        operand.r[2 * k] = size == 4 ? even : (even & 0xffffu) | odd << 16;
        operand.r[2 * k + 1] = size == 4 ? odd : even >> 16 | (odd & 0xffff0000u);
      }
    }
    return operand;
  }
  static TILEMAMBA_FN Operand arrange(const Sum& sum, int lane) { return arrange(pack(sum), lane); }

  /// The other way round: of an operand, the elements that this lane has of a sum.
  static TILEMAMBA_FN Sum spread(const Operand& operand, int lane) {
    Sum sum;
    TILEMAMBA_UNROLL
    for (int r = 0; r < Target::sum; ++r) {
      if constexpr (Target::sum == Target::operand) {
        sum.r[r] = element(operand, r);
      } else {
        sum.r[r] = lane >= 16 ? element(operand, 2 * r + 1) : element(operand, 2 * r);
      }
    }
    return sum;
  }

  /// Parts of bf16 that an operand must be cut into to be multiplied; 1: none. Where the machine multiplies 16-bit
  /// types only, fp32 is three (8 bits of the value each, and nothing is lost). Where it takes subnormal halves as
  /// zeros, fp16 is two.
  static constexpr int parts = type == DType::f32 && !Target::multiplies_fp32          ? 3
                               : type == DType::f16 && !M::multiplies_subnormal_halves ? 2
                                                                                       : 1;
  /// d += a b, by all lanes of a wave; of parts the products that matter, the small ones first.
  static TILEMAMBA_FN void multiply(Sum& d, const Operand& a, const Operand& b) {
    if constexpr (parts > 1) {
      hip::Operand<Target, DType::bf16> a_parts[parts], b_parts[parts];
      split(a_parts, a);
      split(b_parts, b);
      TILEMAMBA_UNROLL
      for (int place = 2; place >= 0; --place) {
        TILEMAMBA_UNROLL
        for (int i = 0; i < parts; ++i) {
          if (i <= place && place - i < parts) M::template multiply<DType::bf16>(d, a_parts[i], b_parts[place - i]);
        }
      }
    } else {
      M::template multiply<type>(d, a, b);
    }
  }
  template <class Part>
  static TILEMAMBA_FN void split(Part (&of)[parts], const Operand& operand) {
    TILEMAMBA_UNROLL
    for (int k = 0; k < static_cast<int>(sizeof(Part) / 4); ++k) {
      float left[2] = {element(operand, 2 * k), element(operand, 2 * k + 1)};
      TILEMAMBA_UNROLL
      for (Part& part : of) {
        std::uint32_t leading[2];
        TILEMAMBA_UNROLL
        for (int h = 0; h < 2; ++h) {
          leading[h] = std::bit_cast<std::uint32_t>(left[h]) & 0xffff0000u;
          left[h] -= std::bit_cast<float>(leading[h]);
        }
        part.r[k] = leading[0] >> 16 | leading[1];
      }
    }
  }

  // ---------------------------------------------------------------------------------------------------- local memory
  /// An operand whose lines are rows from `row` on of a tile at `base`, its inner dimension columns from `column` on.
  template <class Layout>
  static TILEMAMBA_FN Operand load_rows(unsigned base, int row, int column, int lane) {
    using Piece = Words<Layout::at_once / 4>;
    Operand operand;
    const unsigned at = base + Layout::offset(row + Target::line(lane), column + Target::inner(lane, 0));
    TILEMAMBA_UNROLL
    for (int k = 0; k < static_cast<int>(sizeof(Operand) / sizeof(Piece)); ++k) {
      const auto piece = M::template load<Piece>(at + static_cast<unsigned>(k * Layout::at_once));
      TILEMAMBA_UNROLL
      for (int w = 0; w < Layout::at_once / 4; ++w) operand.r[k * (Layout::at_once / 4) + w] = piece.r[w];
    }
    return operand;
  }
  /// The other way round: lines are columns, the inner dimension rows.
  template <class Layout>
  static TILEMAMBA_FN Operand load_columns(unsigned base, int row, int column, int lane) {
    Operand operand;
    const auto at = [&](int e) {
      return base + Layout::offset(row + Target::inner(lane, e), column + Target::line(lane));
    };
    TILEMAMBA_UNROLL
    for (int k = 0; k < static_cast<int>(sizeof(Operand) / 4); ++k) {
      if constexpr (size == 4) {
        operand.r[k] = M::template load<std::uint32_t>(at(k));
      } else {
        const std::uint32_t low = M::template load<std::uint16_t>(at(2 * k));
        const std::uint32_t high = M::template load<std::uint16_t>(at(2 * k + 1));
        operand.r[k] = low | high << 16;
      }
    }
    return operand;
  }
  /// Writes an operand's lines as rows; of lanes that hold the same, each writes a half.
  template <class Layout>
  static TILEMAMBA_FN void store_rows(unsigned base, int row, int column, int lane, const Operand& operand) {
    using Piece = Words<Layout::at_once / 4>;
    constexpr int words = Layout::at_once / 4, halves = Target::operand == 16 ? 2 : 1;
    constexpr int pieces = static_cast<int>(sizeof(Operand) / sizeof(Piece)) / halves;
    const bool high = halves == 2 && lane >= 16;
    const unsigned at = base + Layout::offset(row + Target::line(lane), column + Target::inner(lane, 0)) +
                        (high ? static_cast<unsigned>(sizeof(Operand) / 2) : 0u);
    TILEMAMBA_UNROLL
    for (int k = 0; k < pieces; ++k) {
      Piece piece;
      TILEMAMBA_UNROLL
      for (int w = 0; w < words; ++w) {
        const int low = k * words + w;
        piece.r[w] = high ? operand.r[(halves - 1) * pieces * words + low] : operand.r[low];
      }
      M::template store<Piece>(at + static_cast<unsigned>(k * Layout::at_once), piece);
    }
  }
};

}  // namespace tilemamba::hip
