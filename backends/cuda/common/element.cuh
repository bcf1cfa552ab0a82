// SPDX-License-Identifier: Apache-2.0
/// @file
/// What tensor cores multiply, as mma.sync sees it.
///
/// A fragment is 16 x 16 elements of a matrix, four pairs in each lane: pair 2 s + h of lane 4 g + t holds elements
/// (g + 8 h, 8 s + 2 t) and the one after it along the product's inner dimension. So it is the a of a product as it
/// stands, and pairs h and 2 + h are the b of eight columns. The pairs of an accumulator lie the same way, which makes
/// a packed accumulator the operand of the next product.
///
/// For fp32 the inner dimension is thereby permuted within eights (the instruction wants t and t + 4 where a pair has 2
/// t and 2 t + 1), the same way for a and b, which changes no sum.
#pragma once

#include <tilemamba/dtype.hpp>

#include "backends/cuda/common/ptx.cuh"

namespace tilemamba::cuda {

/// 16-bit elements.
template <DType type>
struct Half {
  static constexpr DType dtype = type;
  static constexpr int size = 2;
  using Pair = std::uint32_t;

  static TILEMAMBA_DEVICE Pair pack(float low, float high) {
    if constexpr (type == DType::bf16) return pack_bf16(low, high);
    return pack_f16(low, high);
  }
  static TILEMAMBA_DEVICE float2 unpack(Pair v) {
    if constexpr (type == DType::bf16) return {__uint_as_float(v << 16), __uint_as_float(v & 0xffff0000u)};
    return unpack_f16(v);
  }

  /// d += a b
  static TILEMAMBA_DEVICE void mma(float (&d)[4], const Pair (&a)[4], Pair b0, Pair b1) {
    if constexpr (type == DType::bf16) {
      mma_bf16(d, a, b0, b1);
    } else {
      mma_f16(d, a, b0, b1);
    }
  }
};
using Bf16 = Half<DType::bf16>;
using F16 = Half<DType::f16>;

/// fp32 as three tf32 products: each value is split into its leading bits, rounded, and what is left of it. Rounded and
/// not cut, what is left has either sign: the product of two such rests, which is left out, does not always pull the
/// same way, and all but the last bit of a rest is multiplied.
struct F32 {
  static constexpr DType dtype = DType::f32;
  static constexpr int size = 4;
  using Pair = float2;

  static TILEMAMBA_DEVICE Pair pack(float low, float high) { return {low, high}; }
  static TILEMAMBA_DEVICE float2 unpack(Pair v) { return v; }

  static TILEMAMBA_DEVICE float leading(float v) {
    return __uint_as_float((__float_as_uint(v) + 0x1000u) & 0xffffe000u);
  }

  /// The tensor core cuts its sums off instead of rounding them. Over a long sum, above all a state's, that would add
  /// up: so it sums sixteen products, the small ones first, and what they come to is added with rounding.
  static TILEMAMBA_DEVICE void mma(float (&d)[4], const Pair (&a)[4], Pair b0, Pair b1) {
    float sum[4] = {};
    float large[2][4], small[2][4], b_large[2][2], b_small[2][2];
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const float all[4] = {a[2 * s].x, a[2 * s + 1].x, a[2 * s].y, a[2 * s + 1].y};
      const Pair b = s == 0 ? b0 : b1;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        large[s][e] = leading(all[e]);
        small[s][e] = all[e] - large[s][e];
      }
      b_large[s][0] = leading(b.x), b_large[s][1] = leading(b.y);
      b_small[s][0] = b.x - b_large[s][0], b_small[s][1] = b.y - b_large[s][1];
      mma_tf32(sum, small[s], b_large[s][0], b_large[s][1]);
      mma_tf32(sum, large[s], b_small[s][0], b_small[s][1]);
    }
#pragma unroll
    for (int s = 0; s < 2; ++s) mma_tf32(sum, large[s], b_large[s][0], b_large[s][1]);
#pragma unroll
    for (int e = 0; e < 4; ++e) d[e] += sum[e];
  }
};

}  // namespace tilemamba::cuda
