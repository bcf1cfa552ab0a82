// SPDX-License-Identifier: Apache-2.0
/// @file
/// What kinds of device there are and which lane and register of a wave holds which element of a matrix: arithmetic on
/// plain numbers, so that all of it can be checked without a device.
///
/// A product is d_ij += sum_k a_ik b_jk over 16 x 16 elements each. An operand, a or b, consists of 16 lines (i of a, j
/// of b) of 16 elements along the inner dimension k; in registers a lane has a piece of one line. Of the sum d a lane
/// has some rows (i) of one column (j). So the rows of a sum that was narrowed are the inner dimension of an operand
/// whose lines are its columns: a state, or decayed scores, become the next product's operand without leaving their
/// lanes (CDNA), or by an exchange between two lanes (RDNA).
///
/// Sources: "AMD Instinct MI200" and "MI300 Instruction Set Architecture" (matrix core instructions) and "RDNA3
/// Instruction Set Architecture" (wave matrix multiply accumulate); tests/hip/layouts has the tables that AMD's matrix
/// instruction calculator prints, and the tests compare every element.
#pragma once

#include "core/tile/config.hpp"

/// A loop over registers, which must not be one at run time; and one that must stay a loop.
#if defined(__clang__)
#define TILEMAMBA_UNROLL _Pragma("unroll")
#define TILEMAMBA_NO_UNROLL _Pragma("nounroll")
#else
#define TILEMAMBA_UNROLL
#define TILEMAMBA_NO_UNROLL
#endif

namespace tilemamba::hip {

/// gfx90a, gfx942: v_mfma_f32_16x16x16 of 16-bit types; for fp32 four v_mfma_f32_16x16x4, the s-th of which multiplies
/// element s of every lane.
struct Cdna {
  static constexpr int wave = 64;    ///< lanes
  static constexpr int operand = 4;  ///< elements of an operand that a lane has
  static constexpr int sum = 4;      ///< elements of a sum that a lane has
  static constexpr bool multiplies_fp32 = true;

  /// The line of an operand, and the column of a sum, that a lane has a part of.
  static TILEMAMBA_FN constexpr int line(int lane) { return lane % 16; }
  /// Where along the line its element e is.
  static TILEMAMBA_FN constexpr int inner(int lane, int e) { return lane / 16 * 4 + e; }
  /// The row of its element r of a sum.
  static TILEMAMBA_FN constexpr int row(int lane, int r) { return lane / 16 * 4 + r; }
};

/// gfx1100: v_wmma_f32_16x16x16 of 16-bit types, in waves of 32. Lanes 16 to 31 hold of an operand what lanes 0 to 15
/// do.
struct Rdna {
  static constexpr int wave = 32;
  static constexpr int operand = 16;
  static constexpr int sum = 8;
  static constexpr bool multiplies_fp32 = false;

  static TILEMAMBA_FN constexpr int line(int lane) { return lane % 16; }
  static TILEMAMBA_FN constexpr int inner(int, int e) { return e; }
  static TILEMAMBA_FN constexpr int row(int lane, int r) { return 2 * r + lane / 16; }
};

/// A tile in local memory: `width` elements of `size` bytes a row. Rows are padded by as much as a lane reads of a row
/// at once (8 bytes, or 16): then neither the lanes that read 16 rows side by side nor those that write whole rows meet
/// in a bank more often than their number of bytes makes necessary.
template <class Target, int size, int width>
struct Padded {
  static constexpr int at_once = Target::operand * size < 16 ? Target::operand * size : 16;
  static constexpr int pitch = width * size + at_once;
  static TILEMAMBA_FN constexpr unsigned offset(int row, int column) {
    return static_cast<unsigned>(row * pitch + column * size);
  }
};

}  // namespace tilemamba::hip
