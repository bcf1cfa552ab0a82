// SPDX-License-Identifier: Apache-2.0
/// @file
/// The kernels, which are compiled in files of their own.
#pragma once

#include "backends/cuda/tma/kernels.hpp"

namespace tilemamba::cuda::sm90 {

using namespace tma;

// By type and policy, each in a file of its own; `variant` is an index of `variants`.
[[nodiscard]] Kernels bf16_n64(std::size_t variant);
[[nodiscard]] Kernels bf16_n128(std::size_t variant);
[[nodiscard]] Kernels bf16_n256(std::size_t variant);
[[nodiscard]] Kernels bf16_n512(std::size_t variant);
[[nodiscard]] Kernels f16_n64(std::size_t variant);
[[nodiscard]] Kernels f16_n128(std::size_t variant);
[[nodiscard]] Kernels f16_n256(std::size_t variant);
[[nodiscard]] Kernels f16_n512(std::size_t variant);

[[nodiscard]] inline Kernels kernels_of(DType x, const Policy& policy, std::size_t variant) {
  const bool bf16 = x == DType::bf16;
  switch (policy.state) {
    case 64:
      return bf16 ? bf16_n64(variant) : f16_n64(variant);
    case 128:
      return bf16 ? bf16_n128(variant) : f16_n128(variant);
    case 256:
      return bf16 ? bf16_n256(variant) : f16_n256(variant);
    default:
      return bf16 ? bf16_n512(variant) : f16_n512(variant);
  }
}

}  // namespace tilemamba::cuda::sm90
