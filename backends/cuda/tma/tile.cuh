// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the handles of the text are where the copy engine stages tiles and a warpgroup multiplies. Every product is
/// accumulated transposed, channels along the rows of the instruction, so that the packed accumulators of a state are
/// the next product's operand.
///
/// The text runs in three roles, each with a worker of its own (decays.cuh, scores.cuh, heads.cuh); a vector is
/// registers of one warp where it is made and shared memory where others read it.
#pragma once

#include <type_traits>

#include "backends/cuda/tma/kernels.hpp"
#include "backends/cuda/tma/ptx.cuh"
#include "core/tile/tile.hpp"
#include "kernels/scan_fused.hpp"

namespace tilemamba::cuda::tma {

using tile::N;
using tile::P;
using tile::Part;
using tile::Q;

inline constexpr unsigned plane_bytes = 64 * 128;  ///< 64 rows of 64 elements of 16 bits

inline constexpr unsigned most_bytes = 227 * 1024;  ///< of shared memory, of a block

/// Where the 16-byte piece `piece` of row `row` of a plane lies.
TILEMAMBA_DEVICE unsigned swizzled(unsigned row, unsigned piece) { return row * 128 + ((piece ^ (row & 7)) << 4); }

/// What a block has of a slice's state, and which tokens of a chunk it finishes: of so many blocks in a row, which are
/// in one cluster in the walk, each has its own `columns`; what their columns give to the outputs is added up.
template <int columns, int parts_, bool chained = false>
struct PartOfState {
  static constexpr int parts = parts_;
  static constexpr int own_tokens = q / parts;
  static TILEMAMBA_DEVICE int part() { return parts == 1 ? 0 : static_cast<int>(blockIdx.x % parts); }
  /// `address` of this block's shared memory in the one with part `other`.
  static TILEMAMBA_DEVICE unsigned in_part(unsigned address, int other) {
    return in_block(address, chained ? rank_in_cluster() - part() + other : other);
  }
  static TILEMAMBA_DEVICE int first_column() { return part() * columns; }
  static TILEMAMBA_DEVICE int first_token() { return part() * own_tokens; }
};

/// Addresses of tiles count pieces of 16 bytes, as descriptors do.
template <unsigned uses>
struct SharedTile {
  unsigned at;
};
/// x or z. `fragments`: its transpose as a register operand, fetched ahead.
struct HeadTile {
  unsigned at;
  std::uint32_t fragments[4][4];
};
/// Made by another role, whose barrier says when.
struct SharedOperand {
  unsigned at;
  unsigned ready, parity;
};
template <int count>
struct RegisterOperand {
  std::uint32_t r[count][4];
};
template <int count>
struct Registers {
  float r[count];
};

/// Consecutive elements in each lane of a warp.
template <int each>
struct LaneVector {
  float r[each];
};
template <int each>
struct LaneOrdinals {
  int r[each];
};
struct SharedVector {
  const float* at;
};
/// Weights as the head's worker wants them: see `Weigh` of the element type.
struct SharedWeights {
  const uint2* at;
};
/// Of ordinals of documents, where each began.
struct SharedOrdinals {
  const int* at;
};
struct NoOrdinals {};

/// A tensor that a role does not look at, or that a variant cannot have.
struct NotGiven {
  static constexpr bool given = false;
};

/// What decay_scores reads. The decay from token j to token i is an exponential of a sum; where a block decays all
/// scores (`factors`), only within blocks of 16 tokens. From one of these to another it is a factor of i and one of j,
/// both relative to the end of the block before i's and at most 1.
template <bool factors>
struct DecayTable {
  float column_log[q];  ///< log2(delta_j) - cum_j
};
template <>
struct DecayTable<true> : DecayTable<false> {
  float column_factor[3][q];  ///< [b]_j: 2^(cum at the end of block b - cum_j) delta_j; 0 for another document
};

/// What the decays of one head leave in a stage.
template <bool documents, bool factors>
struct StageDecays {
  float cum[q];
  float entry[q];
  uint2 exit[q / 2];
  DecayTable<factors> table;
};
template <bool factors>
struct StageDecays<true, factors> : StageDecays<false, factors> {
  int document_start[q];  ///< the first token of this one's document; 0 if that is in an earlier chunk
};

/// A weight of two tokens on a pair of x. bf16: x (high + low), an fma, rounded once.
template <class E>
TILEMAMBA_DEVICE std::uint32_t weigh_pair(std::uint32_t x, uint2 weight) {
  if constexpr (E::dtype == DType::bf16) {
    return multiply_add_bf16(x, weight.x, multiply_bf16(x, weight.y));
  } else {
    const float2 v = E::unpack(x);
    return E::pack(v.x * __uint_as_float(weight.x), v.y * __uint_as_float(weight.y));
  }
}

/// Of a pair: what is infinite or undefined becomes zero.
template <class E>
TILEMAMBA_DEVICE std::uint32_t finite_or_zero(std::uint32_t pair) {
  constexpr std::uint32_t exponent = E::dtype == DType::bf16 ? 0x7f80u : 0x7c00u;
  const std::uint32_t low = (pair & exponent) == exponent ? 0u : 0xffffu;
  const std::uint32_t high = (pair >> 16 & exponent) == exponent ? 0u : 0xffff0000u;
  return pair & (low | high);
}

}  // namespace tilemamba::cuda::tma
