// SPDX-License-Identifier: Apache-2.0
/// @file
/// Arithmetic on one value, for host and device: branch-free, so that a loop over it vectorises. Where T stands, the
/// value may be a vector of the compiler's too.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/tile/config.hpp"

namespace tilemamba::tile {

inline constexpr float log2e = 1.44269504088896340736f;
inline constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

template <class Condition, class T>
TILEMAMBA_FN constexpr T select(Condition condition, T yes, T no) {
  return condition ? yes : no;
}

/// Integers of the width of T's elements.
template <class T>
struct IntegersOf {
  using Type = decltype(T{} < T{});
};
template <>
struct IntegersOf<float> {
  using Type = std::int32_t;
};

/// 2^x to about one unit in the last place, and to half of one where x is small; 0 below 2^-126 and for minus infinity.
/// A GPU's instruction is one and a half off, which over thousands of slow decays adds up: it is for code that has no
/// fp32 inputs (sm_90a) or was measured with it.
template <class T>
TILEMAMBA_FN T exp2(T x) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(__HIP_DEVICE_COMPILE__)
  return ::exp2f(x);
#else
  // 2^n 2^f with n the nearest integer, found by adding 1.5 * 2^23; the polynomial is that of Cephes (S. Moshier,
  // exp2f) for |f| <= 1/2. 2^n is applied in two halves, so that 2^127.6 is finite and 2^128 is infinite.
  constexpr float magic = 12582912.0f;
  using Integers = typename IntegersOf<T>::Type;
  const T inside = select(x < -126.0f, T{} - 126.0f, select(x > 129.0f, T{} + 129.0f, x));
  const T shifted = inside + magic;
  const T f = inside - (shifted - magic);
  T fraction = 1.535336188319500e-4f * f + 1.339887440266574e-3f;
  fraction = fraction * f + 9.618437357674640e-3f;
  fraction = fraction * f + 5.550332471162809e-2f;
  fraction = fraction * f + 2.402264791363012e-1f;
  fraction = fraction * f + 6.931472028550421e-1f;
  fraction = fraction * f + 1.0f;
  const Integers n = std::bit_cast<Integers>(shifted) - std::bit_cast<std::int32_t>(magic);
  const Integers half = n >> 1;
  const T low = std::bit_cast<T>((half + 127) << 23);
  const T high = std::bit_cast<T>((n - half + 127) << 23);
  return select(x < -126.0f, T{}, fraction * low * high);
#endif
}

/// value * weight, where a weight of zero removes the value whatever it is: 0 and not NaN for an infinite or undefined
/// value. What another document or the memory beyond a sequence holds must never come through a product.
template <class T>
TILEMAMBA_FN T weigh(T value, T weight) {
  return select(weight == 0.0f, T{}, value * weight);
}

/// v / (1 + exp(-v)).
TILEMAMBA_FN float silu(float v) { return v / (1.0f + exp2(-v * log2e)); }

/// log(1 + exp(v)); the identity above 20, as the published kernels have it.
TILEMAMBA_FN float softplus(float v) { return v > 20.0f ? v : std::log1p(std::exp(v)); }

TILEMAMBA_FN float finite_or_zero(float v) {
  return select(std::fabs(v) <= std::numeric_limits<float>::max(), v, 0.0f);
}

// ------------------------------------------------------------------------------------------------- 16-bit types, by
// their bits

TILEMAMBA_FN float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// Rounds to nearest even; a NaN stays one.
TILEMAMBA_FN std::uint16_t to_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<std::uint16_t>(select((bits & 0x7fffffffu) > 0x7f800000u, (bits >> 16) | 0x40u, rounded));
}

TILEMAMBA_FN float from_f16(std::uint16_t bits) {
  // Shifted into place, the exponent is short by 112; the product with 2^112 makes it right, subnormals included.
  const std::uint32_t magnitude = static_cast<std::uint32_t>(bits & 0x7fffu) << 13;
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
  const std::uint32_t special = magnitude | 0x7f800000u;  // infinity and NaN keep their payload
  const std::uint32_t value = select(magnitude >= 0x0f800000u, special, std::bit_cast<std::uint32_t>(scaled));
  return std::bit_cast<float>(value | (static_cast<std::uint32_t>(bits & 0x8000u) << 16));
}

/// Rounds to nearest even; overflow gives infinity, a NaN stays one.
TILEMAMBA_FN std::uint16_t to_f16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  // Normal: rebase the exponent and round the 13 bits that go. Subnormal: adding 1/2 lets the adder do the rounding.
  const std::uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  const std::uint32_t finite = select(magnitude < 0x38800000u, subnormal, normal);
  const std::uint32_t large = select(magnitude > 0x7f800000u, 0x7e00u, 0x7c00u);
  return static_cast<std::uint16_t>(sign | select(magnitude >= 0x477ff000u, large, finite));
}

}  // namespace tilemamba::tile
