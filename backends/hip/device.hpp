// SPDX-License-Identifier: Apache-2.0
/// @file
/// The machine as HIP's compiler knows it: one wrapper for each thing that C++ has no word for. The tests have another
/// machine of this form, whose lanes are run one after the other by the host.
#pragma once

#include <hip/hip_runtime.h>

#include <bit>
#include <cstdint>
#include <type_traits>

#include <tilemamba/dtype.hpp>

#include "backends/hip/fragment.hpp"
#include "core/tile/scalar.hpp"

#define TILEMAMBA_DEVICE __device__ __forceinline__

namespace tilemamba::hip {

extern __shared__ __align__(16) unsigned char local_memory[];

template <class Target_>
struct Device {
  using Target = Target_;
  /// gfx90a takes subnormal halves in products as zeros (PyTorch's notes on numerical
  /// accuracy tell of it): fp16 is then multiplied in two parts of bf16.
#if defined(__gfx90a__)
  static constexpr bool multiplies_subnormal_halves = false;
#else
  static constexpr bool multiplies_subnormal_halves = true;
#endif

  static TILEMAMBA_DEVICE int lane() { return static_cast<int>(threadIdx.x) % Target::wave; }
  /// Known to the compiler to be the same for all lanes.
  static TILEMAMBA_DEVICE int wave() {
    return __builtin_amdgcn_readfirstlane(static_cast<int>(threadIdx.x) / Target::wave);
  }
  static TILEMAMBA_DEVICE std::int64_t block() { return blockIdx.x; }

  // Local memory, named by offsets from the block's; T is as strictly aligned as it is large.
  template <class T>
  static TILEMAMBA_DEVICE T load(unsigned offset) {
    T value;
    __builtin_memcpy(&value, __builtin_assume_aligned(local_memory + offset, sizeof(T)), sizeof(T));
    return value;
  }
  template <class T>
  static TILEMAMBA_DEVICE void store(unsigned offset, T value) {
    __builtin_memcpy(__builtin_assume_aligned(local_memory + offset, sizeof(T)), &value, sizeof(T));
  }

  // Memory of the device: said to be that, since a pointer that was chosen among several could be anything.
  using Quad = std::uint32_t __attribute__((ext_vector_type(4), may_alias));
  template <class T>
  using Stored = std::conditional_t<sizeof(T) == sizeof(Quad), Quad, T>;
  template <class T>
  static TILEMAMBA_DEVICE T read(const T* from) {
    return __builtin_bit_cast(T, *(const __attribute__((address_space(1))) Stored<T>*)from);
  }
  template <class T>
  static TILEMAMBA_DEVICE void write(T* to, T value) {
    *(__attribute__((address_space(1))) Stored<T>*)to = __builtin_bit_cast(Stored<T>, value);
  }

  /// The lanes of the block meet, and see what the others wrote.
  static TILEMAMBA_DEVICE void meet() { __syncthreads(); }
  /// The same for the lanes of a wave. They are never apart, and local memory serves a wave's requests in order; what
  /// is left to do is to keep the compiler from reordering them.
  static TILEMAMBA_DEVICE void meet_wave() {
    __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
    __builtin_amdgcn_wave_barrier();
  }

  /// What the compiler derived from this before is not worth keeping in registers.
  static TILEMAMBA_DEVICE void forget([[maybe_unused]] int& value) {
#if defined(__HIP_DEVICE_COMPILE__)
    asm volatile("" : "+v"(value));
#endif
  }
  /// What comes later in the text is not to be begun before: there are no registers for it.
  static TILEMAMBA_DEVICE void in_order() { __builtin_amdgcn_sched_barrier(0); }

  /// The value of the lane `distance` below or above; a lane without such a neighbour gets its own.
  template <class T>
  static TILEMAMBA_DEVICE T from_below(T value, int distance) {
    return of_lane(value, lane() < distance ? lane() : lane() - distance);
  }
  template <class T>
  static TILEMAMBA_DEVICE T from_above(T value, int distance) {
    return of_lane(value, lane() + distance < Target::wave ? lane() + distance : lane());
  }
  /// The value of the lane 16 above or below, in a wave of 32.
  static TILEMAMBA_DEVICE std::uint32_t of_other_half(std::uint32_t value) {
#if defined(__gfx1100__) || !defined(__HIP_DEVICE_COMPILE__)
    return __builtin_amdgcn_permlanex16(value, value, 0x76543210u, 0xfedcba98u, false, false);
#else
    return value;
#endif
  }

  /// 2^x to about one unit in the last place; 0 below 2^-126 and for minus infinity.
  static TILEMAMBA_DEVICE float exp2(float x) { return __builtin_amdgcn_exp2f(x); }

  template <DType type>
  static TILEMAMBA_DEVICE std::uint16_t narrow(float value) {
    if constexpr (type == DType::bf16) return tile::to_bf16(value);
    return std::bit_cast<std::uint16_t>(static_cast<_Float16>(value));
  }
  template <DType type>
  static TILEMAMBA_DEVICE float widen(std::uint16_t bits) {
    if constexpr (type == DType::bf16) return tile::from_bf16(bits);
    return static_cast<float>(std::bit_cast<_Float16>(bits));
  }

  /// d += a b, by all lanes of a wave.
  template <DType type>
  static TILEMAMBA_DEVICE void multiply([[maybe_unused]] Sum<Target>& d,
                                        [[maybe_unused]] const Operand<Target, type>& a,
                                        [[maybe_unused]] const Operand<Target, type>& b) {
#if defined(__HIP_DEVICE_COMPILE__)
    using Floats = float __attribute__((ext_vector_type(Target::sum)));
    using Halves = _Float16 __attribute__((ext_vector_type(Target::operand)));
    using Shorts = short __attribute__((ext_vector_type(Target::operand)));
    Floats sum = __builtin_bit_cast(Floats, d);
    if constexpr (Target::wave == 64) {
#if defined(__gfx90a__) || defined(__gfx942__)
      if constexpr (type == DType::bf16) {
        sum = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(__builtin_bit_cast(Shorts, a), __builtin_bit_cast(Shorts, b),
                                                        sum, 0, 0, 0);
      } else if constexpr (type == DType::f16) {
        sum = __builtin_amdgcn_mfma_f32_16x16x16f16(__builtin_bit_cast(Halves, a), __builtin_bit_cast(Halves, b), sum,
                                                    0, 0, 0);
      } else {
        TILEMAMBA_UNROLL
        for (int s = 0; s < 4; ++s)
          sum = __builtin_amdgcn_mfma_f32_16x16x4f32(std::bit_cast<float>(a.r[s]), std::bit_cast<float>(b.r[s]), sum, 0,
                                                     0, 0);
      }
#endif
    } else {
#if defined(__gfx1100__)
      if constexpr (type == DType::bf16) {
        sum = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(__builtin_bit_cast(Shorts, a), __builtin_bit_cast(Shorts, b),
                                                          sum);
      } else {
        sum = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(__builtin_bit_cast(Halves, a), __builtin_bit_cast(Halves, b),
                                                         sum);
      }
#endif
    }
    d = __builtin_bit_cast(Sum<Target>, sum);
#endif
  }

 private:
  template <class T>
  static TILEMAMBA_DEVICE T of_lane(T value, int its) {
    return std::bit_cast<T>(__builtin_amdgcn_ds_bpermute(its * 4, std::bit_cast<int>(value)));
  }
};

}  // namespace tilemamba::hip
