// SPDX-License-Identifier: Apache-2.0
/// @file
/// The element types of tensors.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tilemamba {

enum class DType : std::uint8_t { f32, f16, bf16, i32 };

[[nodiscard]] constexpr std::size_t size_of(DType dtype) noexcept {
  return dtype == DType::f32 || dtype == DType::i32 ? 4 : 2;
}

}  // namespace tilemamba
