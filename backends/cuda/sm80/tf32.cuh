// SPDX-License-Identifier: Apache-2.0
/// @file
/// What tensor cores multiply where a call allows tf32 for fp32.
#pragma once

#include "backends/cuda/common/element.cuh"

namespace tilemamba::cuda {

/// To the nearest value of 11 significant bits, ties away from zero.
TILEMAMBA_DEVICE float round_tf32(float v) {
  std::uint32_t r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(v));
  return __uint_as_float(r);
}

/// fp32 as one tf32 product.
struct Tf32 : F32 {
  static TILEMAMBA_DEVICE void mma(float (&d)[4], const Pair (&a)[4], Pair b0, Pair b1) {
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const float halves[4] = {a[2 * s].x, a[2 * s + 1].x, a[2 * s].y, a[2 * s + 1].y};
      float all[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) all[e] = round_tf32(halves[e]);
      const Pair b = s == 0 ? b0 : b1;
      mma_tf32(d, all, round_tf32(b.x), round_tf32(b.y));
    }
  }
};

}  // namespace tilemamba::cuda
