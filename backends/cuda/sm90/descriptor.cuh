// SPDX-License-Identifier: Apache-2.0
/// @file
/// What wgmma is told of operands in shared memory, which are planes with the 128-byte swizzle. A descriptor's low word
/// is an address / 16 and the distance of planes; it is made once a tile, and constants are added to it.
#pragma once

#include "backends/cuda/sm90/ptx.cuh"

namespace tilemamba::cuda::sm90 {

/// Low words. Rows along the product's outer dimension, columns along its inner one: 16 of these are 32 bytes on.
TILEMAMBA_DEVICE std::uint32_t inner_columns(unsigned at) { return at | (1u << 16); }
/// Rows along the inner dimension: 16 of these are 2048 bytes on. Planes, 8192 bytes apart, follow each other along the
/// outer: where a descriptor has that distance, an address in a cluster has the block's rank, which must be gone.
TILEMAMBA_DEVICE std::uint32_t inner_rows(unsigned at) { return at | (512u << 16); }
/// Rows in groups of eight, 1024 bytes apart, swizzled.
TILEMAMBA_DEVICE std::uint64_t descriptor(std::uint32_t low_word) { return two_words(low_word, 0x40000040u); }

}  // namespace tilemamba::cuda::sm90
