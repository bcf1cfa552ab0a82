// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks of a problem beyond those of the public header.
#pragma once

#include <cstdint>
#include <string>

#include <tilemamba/tilemamba.hpp>

namespace tilemamba {

/// The largest sizes that are accepted; all index arithmetic is 64-bit within them.
namespace limits {
inline constexpr std::int64_t batch = 1 << 24;
inline constexpr std::int64_t tokens = (std::int64_t{1} << 31) - 1;  // cu_seqlens is i32
inline constexpr std::int64_t heads = 1 << 16;
inline constexpr std::int64_t head_dim = 256;
inline constexpr std::int64_t state = 512;
}  // namespace limits

/// @throws Error naming the entry of cu_seqlens (in host memory) that is wrong.
void check_cu_seqlens(const Problem& problem, const std::int32_t* entries);

/// The first thing in which a call differs from the problem that was planned, in words; empty if nothing.
[[nodiscard]] std::string difference(const Problem& planned, const Problem& given);

}  // namespace tilemamba
