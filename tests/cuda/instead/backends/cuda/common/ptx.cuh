// SPDX-License-Identifier: Apache-2.0
/// @file
/// The wrappers of backends/cuda/common/ptx.cuh for a machine that the host plays.
#pragma once

#include "core/tile/config.hpp"
#include "tests/cuda/instead/words.hpp"

#define TILEMAMBA_DEVICE inline

namespace tilemamba::cuda {

namespace machine = test::cuda;

/// The block's own, whichever block asks.
struct SharedMemory {
  operator unsigned char*() const { return machine::shared_memory(); }
};
inline constexpr SharedMemory shared_memory;

inline unsigned shared_address(unsigned offset) { return machine::shared_address() + offset; }

inline float flushed(float v) { return std::fabs(v) < 0x1p-126f ? std::copysign(0.0f, v) : v; }
inline float exp2_flushed(float x) { return flushed(std::exp2(flushed(x))); }

inline std::uint32_t pack_bf16(float low, float high) {
  return tile::to_bf16(low) | static_cast<std::uint32_t>(tile::to_bf16(high)) << 16;
}
inline std::uint32_t pack_f16(float low, float high) {
  return tile::to_f16(low) | static_cast<std::uint32_t>(tile::to_f16(high)) << 16;
}
inline float2 unpack_f16(std::uint32_t v) {
  return {tile::from_f16(static_cast<std::uint16_t>(v)), tile::from_f16(static_cast<std::uint16_t>(v >> 16))};
}

inline void ldmatrix(std::uint32_t (&r)[4], unsigned address) { machine::load_matrices(r, address, false); }
inline void ldmatrix_transposed(std::uint32_t (&r)[4], unsigned address) { machine::load_matrices(r, address, true); }

inline float load_shared(unsigned address) {
  float v;
  machine::read_shared(address, &v, sizeof(v));
  return v;
}
inline float2 load_shared_pair(unsigned address) {
  float2 v;
  machine::read_shared(address, &v, sizeof(v));
  return v;
}

inline void meet(int id, int threads) { machine::meet_some(id, threads); }

inline void mma_bf16(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  machine::multiply_here(d, a, {b0, b1}, DType::bf16);
}
inline void mma_f16(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  machine::multiply_here(d, a, {b0, b1}, DType::f16);
}
inline void mma_tf32(float (&d)[4], const float (&a)[4], float b0, float b1) {
  const auto bits = [](float v) { return std::bit_cast<std::uint32_t>(v); };
  machine::multiply_here(d, {bits(a[0]), bits(a[1]), bits(a[2]), bits(a[3])}, {bits(b0), bits(b1)}, DType::f32);
}

}  // namespace tilemamba::cuda
