// SPDX-License-Identifier: Apache-2.0
/// @file
/// Maps of tensors for the copy engine, which moves boxes of 64 columns.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>

#include "backends/cuda/tma/kernels.hpp"

namespace tilemamba::cuda::tma {

using EncodeMap = decltype(&cuTensorMapEncodeTiled);

/// The driver's function; null where it has none.
[[nodiscard]] inline EncodeMap find_encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found) !=
          cudaSuccess ||
      found != cudaDriverEntryPointSuccess) {
    (void)cudaGetLastError();
    return nullptr;
  }
  return reinterpret_cast<EncodeMap>(function);
}

/// All that a map follows from.
struct MapOf {
  EncodeMap encode = nullptr;
  CUtensorMapDataType type{};
  void* data = nullptr;
  std::array<cuuint64_t, 4> counts{};
  std::array<cuuint64_t, 3> bytes{};  ///< from one to the next along each dimension but the first
  std::array<cuuint32_t, 4> box{};

  bool operator==(const MapOf&) const = default;
};

/// Encodes a map, unless it is one of this thread's last: calls come with the same tensors again and again.
/// @returns whether there is one.
[[nodiscard]] inline bool encode(const MapOf& of, CUtensorMap& map) {
  struct Known {
    MapOf of;
    CUtensorMap map;
  };
  thread_local std::array<Known, 16> all;
  Known& known = all[reinterpret_cast<std::uintptr_t>(of.data) / 256 % all.size()];
  if (known.of != of) {
    constexpr cuuint32_t steps[] = {1, 1, 1, 1};
    known.of = {};
    if (of.encode(&known.map, of.type, of.counts.size(), of.data, of.counts.data(), of.bytes.data(), of.box.data(),
                  steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
      return false;
    known.of = of;
  }
  map = known.map;
  return true;
}

/// A map of a 16-bit tensor (B,T,heads,width) whose heads are looked at `columns` columns and `tokens` tokens at a
/// time.
[[nodiscard]] inline Map make_map(EncodeMap encoder, const kernels::TokenView& view, std::int64_t heads, int columns,
                                  int tokens, const Problem& problem) {
  Map map{};
  map.by_hand = true;
  constexpr std::int64_t size = 2, line = 16;
  // What is looked at beyond a head's width must be zeros and not its neighbour.
  const bool together = view.head_stride == view.width && view.width % columns == 0;
  map.columns_of_head = together ? view.width : 0;
  const std::int64_t extents[] = {together ? view.width * heads : view.width, problem.tokens, together ? 1 : heads,
                                  problem.batch};
  const std::int64_t strides[] = {view.token_stride, view.head_stride, view.batch_stride};
  MapOf of{encoder,   view.dtype == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
           view.data, {},
           {},        {64, static_cast<cuuint32_t>(tokens), 1, 1}};
  for (std::size_t k = 0; k < of.counts.size(); ++k) of.counts[k] = static_cast<cuuint64_t>(extents[k]);
  for (std::size_t k = 0; k < of.bytes.size(); ++k) {
    // Nobody steps along an extent of one; any stride will do there.
    const std::int64_t stride =
        extents[k + 1] == 1 ? kernels::divide_up(extents[0] * size, line) * line : strides[k] * size;
    if (stride % line != 0 || stride <= 0) return map;
    of.bytes[k] = static_cast<cuuint64_t>(stride);
  }
  if (reinterpret_cast<std::uintptr_t>(view.data) % line != 0) return map;
  map.by_hand = !encode(of, map.map);
  return map;
}

/// The kernels step along dt in 32 bits.
[[nodiscard]] inline bool near(const kernels::TokenView& dt) {
  return dt.token_stride >= 0 && dt.token_stride * static_cast<std::int64_t>(size_of(dt.dtype)) <= 0xffffffff;
}

}  // namespace tilemamba::cuda::tma
