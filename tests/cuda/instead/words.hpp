// SPDX-License-Identifier: Apache-2.0
/// @file
/// The words of CUDA C++ that the kernels' text uses, for a machine that the host plays.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/tile/scalar.hpp"
#include "tests/cuda/machine.hpp"

#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
#define threadIdx (::tilemamba::test::cuda::thread_index())
#define blockIdx (::tilemamba::test::cuda::block_index())
#define blockDim (::tilemamba::test::cuda::block_size())
#define gridDim (::tilemamba::test::cuda::grid_size())

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

inline float __uint_as_float(unsigned v) { return std::bit_cast<float>(v); }
inline unsigned __float_as_uint(float v) { return std::bit_cast<unsigned>(v); }
inline float __fmul_rn(float a, float b) { return a * b; }
template <class A, class B>
constexpr auto min(A a, B b) {
  using T = std::common_type_t<A, B>;
  return static_cast<T>(b) < static_cast<T>(a) ? static_cast<T>(b) : static_cast<T>(a);
}
template <class A, class B>
constexpr auto max(A a, B b) {
  using T = std::common_type_t<A, B>;
  return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(b) : static_cast<T>(a);
}
template <class T>
T __ldg(const T* from) {
  return *from;
}

inline void __syncwarp() { tilemamba::test::cuda::meet_warp(); }
inline void __syncthreads() { (void)tilemamba::test::cuda::meet_block(0); }
inline int __syncthreads_or(int vote) { return tilemamba::test::cuda::meet_block(vote); }

template <class T>
T __shfl_sync(unsigned, T value, int from) {
  return std::bit_cast<T>(tilemamba::test::cuda::of_lane(std::bit_cast<std::uint32_t>(value), from % 32));
}
template <class T>
T __shfl_up_sync(unsigned, T value, int distance) {
  return std::bit_cast<T>(
      tilemamba::test::cuda::of_lane(std::bit_cast<std::uint32_t>(value), tilemamba::test::cuda::lane() - distance));
}
template <class T>
T __shfl_down_sync(unsigned, T value, int distance) {
  return std::bit_cast<T>(
      tilemamba::test::cuda::of_lane(std::bit_cast<std::uint32_t>(value), tilemamba::test::cuda::lane() + distance));
}
