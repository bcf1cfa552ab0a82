// SPDX-License-Identifier: Apache-2.0
/// @file
/// The wrappers of backends/cuda/sm90/ptx.cuh for a machine that the host plays.
#pragma once

#include "backends/cuda/common/element.cuh"

namespace tilemamba::cuda::sm90 {

inline void begin_products() { machine::begin_products(); }
inline void commit_products() { machine::commit_products(); }
template <int pending>
void wait_products() {
  machine::wait_products(pending);
}
inline std::uint64_t two_words(std::uint32_t low, std::uint32_t high) { return std::uint64_t{high} << 32 | low; }

template <class E, bool transposed, bool accumulate, int registers>
void wgmma(float (&d)[registers], const std::uint32_t (&a)[4], std::uint64_t b) {
  machine::multiply({d, 2 * registers, a, 0, b, E::dtype, accumulate, transposed});
}
template <class E, bool accumulate>
void wgmma(float (&d)[32], std::uint64_t a, std::uint64_t b) {
  machine::multiply({d, 64, nullptr, a, b, E::dtype, accumulate, false});
}

}  // namespace tilemamba::cuda::sm90
