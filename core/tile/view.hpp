// SPDX-License-Identifier: Apache-2.0
/// @file
/// Where things lie in memory, as the algorithm's text names them. A backend that loads in another way (tensor maps,
/// say) keeps its own views under the same names. Strides count elements; every offset is 64-bit.
#pragma once

#include <cstdint>

#include <tilemamba/dtype.hpp>

#include "core/tile/config.hpp"
#include "core/tile/scalar.hpp"

namespace tilemamba::tile {

/// The tokens of one chunk.
struct Tokens {
  std::int64_t batch;  ///< row of the (B,T) grid
  std::int64_t first;  ///< token in that row
  int count;           ///< 0 to Q
  bool begins;         ///< the first chunk of its sequence
};

/// Which part of a head a worker holds.
struct Slice {
  int head;
  int group;
  int channel;  ///< first of its channels
};

/// x, z, y (B,T,H,P); B, C (B,T,G,N); dt (B,T,H) with width 1; seq_idx (B,T) with width 1.
struct TokenView {
  void* data = nullptr;
  DType dtype = DType::f32;
  bool given = false;
  std::int64_t batch_stride = 0, token_stride = 0, head_stride = 0;
  int width = 1;  ///< elements of the last dimension, contiguous

  [[nodiscard]] TILEMAMBA_FN std::int64_t offset(const Tokens& tokens, int head, int column) const {
    return tokens.batch * batch_stride + tokens.first * token_stride + head * head_stride + column;
  }
};

/// States: (index, H, P, N), the index being a batch row, a sequence, a chunk or a segment; chunk_states (batch, index,
/// H,P,N).
struct StateView {
  void* data = nullptr;
  DType dtype = DType::f32;
  bool given = false;
  std::int64_t batch_stride = 0, index_stride = 0, head_stride = 0, channel_stride = 0;
  int channels = 0, width = 0;

  [[nodiscard]] TILEMAMBA_FN std::int64_t offset(std::int64_t batch, std::int64_t index, const Slice& slice) const {
    return batch * batch_stride + index * index_stride + slice.head * head_stride + slice.channel * channel_stride;
  }
};

/// A, dt_bias, D of shape (H): channel_stride 0. D of shape (H,P): channel_stride 1.
struct HeadView {
  const void* data = nullptr;
  DType dtype = DType::f32;
  bool given = false;
  std::int64_t head_stride = 0, channel_stride = 0;
  int width = 1;
};

/// fp32 vectors of the workspace, one for each head (or group) and chunk: (H, chunk, length), contiguous.
struct ChunkVectors {
  float* data = nullptr;
  std::int64_t head_stride = 0;
  int length = 0;

  [[nodiscard]] TILEMAMBA_FN float* at(std::int64_t chunk, int head) const {
    return data + head * head_stride + chunk * length;
  }
};

[[nodiscard]] TILEMAMBA_FN float load(const void* data, DType dtype, std::int64_t index) {
  switch (dtype) {
    case DType::f32:
      return static_cast<const float*>(data)[index];
    case DType::f16:
      return from_f16(static_cast<const std::uint16_t*>(data)[index]);
    case DType::bf16:
      return from_bf16(static_cast<const std::uint16_t*>(data)[index]);
    case DType::i32:
      return static_cast<float>(static_cast<const std::int32_t*>(data)[index]);
  }
  return 0.0f;
}

TILEMAMBA_FN void store(void* data, DType dtype, std::int64_t index, float value) {
  switch (dtype) {
    case DType::f32:
      static_cast<float*>(data)[index] = value;
      break;
    case DType::f16:
      static_cast<std::uint16_t*>(data)[index] = to_f16(value);
      break;
    case DType::bf16:
      static_cast<std::uint16_t*>(data)[index] = to_bf16(value);
      break;
    case DType::i32:
      static_cast<std::int32_t*>(data)[index] = static_cast<std::int32_t>(value);
      break;
  }
}

/// The value of a view for one head (and channel); `missing` where the tensor was not given.
[[nodiscard]] TILEMAMBA_FN float value(const HeadView& view, int head, int channel = 0, float missing = 0.0f) {
  return view.given ? load(view.data, view.dtype, head * view.head_stride + channel * view.channel_stride) : missing;
}

}  // namespace tilemamba::tile
