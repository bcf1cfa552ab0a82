// SPDX-License-Identifier: Apache-2.0
/// @file
/// What tcgen05.mma is told of its operands, in numbers: plain C++, so that tests can hold every field against the
/// documents without a device.
///
/// Sources: PTX ISA 8.8, "Tensor Memory" (addresses), "Data Path Layout Organization" (layout F), "Shared Memory
/// Descriptor" and "Instruction descriptor" of the fifth generation's instructions; CUTLASS 4.2,
/// cute/arch/mma_sm100_desc.hpp (the same fields as bit fields) and cute/atom/mma_traits_sm100.hpp (make_umma_desc: the
/// canonical layouts and their strides).
#pragma once

#include <cstdint>

#include "core/tile/config.hpp"

namespace tilemamba::cuda::sm100 {

// -------------------------------------------------------------------------------------------------------------------
// tensor memory: 128 lanes of 512 columns of 32 bits

inline constexpr unsigned most_columns = 512;

/// Bits 16 to 31 of an address are the lane, 0 to 15 the column.
[[nodiscard]] TILEMAMBA_FN constexpr unsigned in_lane(unsigned address, unsigned lane) {
  return address + (lane << 16);
}

/// Layout F, that of M = 64: row r of a product's result, and of an operand in tensor memory, lies in lane
/// 32 (r / 16) + r % 16 from the lane on that the address names, 0 or 16; the operand's and the result's must be the
/// same. Warp w of a warpgroup reaches lanes 32 w to 32 w + 31: its 16 rows are the warp's own.
[[nodiscard]] TILEMAMBA_FN constexpr unsigned lane_of_row(unsigned row) { return 32 * (row / 16) + row % 16; }

/// Of 512 columns an allocation is a power of two, and at least 32.
[[nodiscard]] constexpr unsigned allocated_columns(unsigned used) {
  unsigned columns = 32;
  while (columns < used) columns *= 2;
  return columns;
}

// -------------------------------------------------------------------------------------------------------------------
// operands in shared memory: planes of 64 rows of 128 bytes with the 128-byte swizzle, 1024-byte aligned

/// Bytes as descriptors have them: 18 bits of them, in units of 16. What a cluster's address has above is gone.
[[nodiscard]] TILEMAMBA_FN constexpr std::uint64_t encoded(unsigned bytes) { return (bytes & 0x3ffff) >> 4; }

struct SharedDescriptor {
  unsigned start;            ///< bits 0-13: where the matrix begins
  unsigned leading_bytes;    ///< bits 16-29: rows along the inner dimension: from plane to plane of 64; else unused, 1
  unsigned stride_bytes;     ///< bits 32-45: from one group of eight rows to the next
  unsigned version = 1;      ///< bits 46-48: the fixed 0b001
  unsigned base_offset = 0;  ///< bits 49-51: patterns begin at multiples of 1024 bytes
  unsigned leading_absolute = 0;  ///< bit 52: leading_bytes is a distance
  unsigned swizzle = 2;           ///< bits 61-63: 128 bytes, in pieces of 16

  [[nodiscard]] TILEMAMBA_FN constexpr std::uint64_t bits() const {
    return encoded(start) | encoded(leading_bytes) << 16 | encoded(stride_bytes) << 32 |
           static_cast<std::uint64_t>(version) << 46 | static_cast<std::uint64_t>(base_offset) << 49 |
           static_cast<std::uint64_t>(leading_absolute) << 52 | static_cast<std::uint64_t>(swizzle) << 61;
  }
};

/// Rows along the product's outer dimension, columns along its inner one ("K-major"): the next 16 of these are 32 bytes
/// on, the next 64 a plane.
[[nodiscard]] TILEMAMBA_FN constexpr std::uint64_t inner_columns(unsigned address) {
  return SharedDescriptor{address, 16, 1024}.bits();
}
/// Rows along the inner dimension ("MN-major"): the next 16 of these are 2048 bytes on. Planes, 8192 bytes apart,
/// follow each other along the outer.
[[nodiscard]] TILEMAMBA_FN constexpr std::uint64_t inner_rows(unsigned address) {
  return SharedDescriptor{address, 8192, 1024}.bits();
}
/// A descriptor of what lies so many bytes (a multiple of 16) on. No carry leaves the 14 bits: 256 KiB is more than
/// there is.
[[nodiscard]] TILEMAMBA_FN constexpr std::uint64_t further(std::uint64_t descriptor, unsigned bytes) {
  return descriptor + (bytes >> 4);
}

// -------------------------------------------------------------------------------------------------------------------
// the instruction

struct InstructionDescriptor {
  bool bf16;            ///< bits 7-9 of a, 10-12 of b: 0 fp16, 1 bf16
  bool b_inner_rows;    ///< bit 16 of b: 0 K-major, 1 MN-major; bit 15 is a's, always K-major here
  unsigned columns;     ///< bits 17-22: N / 8
  unsigned rows = 64;   ///< bits 24-28: M / 16
  unsigned result = 1;  ///< bits 4-5: fp32

  /// All other bits are 0: dense, nothing negated, nothing saturated, no shift.
  [[nodiscard]] TILEMAMBA_FN constexpr std::uint32_t bits() const {
    const unsigned type = bf16 ? 1 : 0;
    return result << 4 | type << 7 | type << 10 | (b_inner_rows ? 1u : 0u) << 16 | columns / 8 << 17 | rows / 16 << 24;
  }
};

}  // namespace tilemamba::cuda::sm100
