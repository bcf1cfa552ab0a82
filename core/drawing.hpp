// SPDX-License-Identifier: Apache-2.0
/// @file
/// Values for tensors whose speed is measured.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tilemamba/tilemamba.hpp>

#include "core/tile/view.hpp"

namespace tilemamba {

[[nodiscard]] inline std::int64_t elements(const Layout& layout) {
  std::int64_t count = 1;
  for (int i = 0; i < layout.rank; ++i) count *= layout.shape[static_cast<std::size_t>(i)];
  return count;
}

/// Fills a dense tensor with what `draw()` gives: as many values as make no visible period, and repeats of them. (To
/// draw all of a large tensor takes longer than the calls that are timed.)
template <class Draw>
void fill_drawn(const MutableTensor& tensor, Draw&& draw) {
  constexpr std::int64_t most_drawn = 65537;
  const std::int64_t count = elements(tensor);
  for (std::int64_t i = 0; i < std::min(count, most_drawn); ++i) tile::store(tensor.data, tensor.dtype, i, draw());
  const std::size_t size = size_of(tensor.dtype);
  auto* const data = static_cast<std::byte*>(tensor.data);
  for (std::int64_t i = most_drawn; i < count; i += most_drawn) {
    std::memcpy(data + static_cast<std::size_t>(i) * size, data,
                static_cast<std::size_t>(std::min(most_drawn, count - i)) * size);
  }
}

}  // namespace tilemamba
