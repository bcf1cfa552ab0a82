// SPDX-License-Identifier: Apache-2.0
/// @file
/// Arithmetic on one value, for host and device: branch-free, so that a loop over it vectorises.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/tile/config.hpp"

namespace tilemamba::tile {

inline constexpr float log2e = 1.44269504088896340736f;
inline constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

template <class T>
TILEMAMBA_FN constexpr T select(bool condition, T yes, T no) {
  return condition ? yes : no;
}

/// 2^x to about one unit in the last place; 0 below 2^-126 and for minus infinity.
TILEMAMBA_FN float exp2(float x) {
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
  return ::exp2f(x);
#else
  // 2^n 2^f with n the nearest integer, found by adding 1.5 * 2^23; the polynomial is that of Cephes (S. Moshier,
  // exp2f) for |f| <= 1/2. 2^n is applied in two halves, so that 2^127.6 is finite and 2^128 is infinite.
  constexpr float magic = 12582912.0f;
  const float inside = select(x < -126.0f, -126.0f, select(x > 129.0f, 129.0f, x));
  const float shifted = inside + magic;
  const float f = inside - (shifted - magic);
  float fraction = 1.535336188319500e-4f;
  fraction = fraction * f + 1.339887440266574e-3f;
  fraction = fraction * f + 9.618437357674640e-3f;
  fraction = fraction * f + 5.550332471162809e-2f;
  fraction = fraction * f + 2.402264791363012e-1f;
  fraction = fraction * f + 6.931472028550421e-1f;
  fraction = fraction * f + 1.0f;
  const std::int32_t n = std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(magic);
  const std::int32_t half = n >> 1;
  const float low = std::bit_cast<float>((half + 127) << 23);
  const float high = std::bit_cast<float>((n - half + 127) << 23);
  return select(x < -126.0f, 0.0f, fraction * low * high);
#endif
}

/// value * weight, where a weight of zero removes the value whatever it is: 0 and not NaN for an infinite or undefined
/// value. What another document or the memory beyond a sequence holds must never come through a product.
TILEMAMBA_FN float weigh(float value, float weight) { return select(weight == 0.0f, 0.0f, value * weight); }

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
