// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory of a device, for workspaces of the one-call form and for programs that bring their tensors there.
#pragma once

#include "backends/cuda/common/device.hpp"

namespace tilemamba::cuda {

[[nodiscard]] inline void* allocate(const Device& device, std::size_t bytes) noexcept {
  const Current current(device.index);
  void* memory = nullptr;
  if (current.failure() == cudaSuccess && cudaMalloc(&memory, bytes) == cudaSuccess) return memory;
  (void)cudaGetLastError();
  return nullptr;
}

/// Waits for whatever still uses the memory.
inline void release(const Device& device, void* memory) noexcept {
  const Current current(device.index);
  (void)cudaFree(memory);
}

/// Returns when it is done, after all that was launched on the device before.
[[nodiscard]] inline Outcome copy(const Device& device, void* to, const void* from, std::size_t bytes,
                                  cudaMemcpyKind kind) noexcept {
  const Current current(device.index);
  cudaError_t error = current.failure();
  if (error == cudaSuccess) error = cudaDeviceSynchronize();
  if (error == cudaSuccess && bytes > 0) error = cudaMemcpy(to, from, bytes, kind);
  (void)cudaGetLastError();
  return {ErrorCode::backend_failure, in_words(error, "copying to or from the device")};
}

}  // namespace tilemamba::cuda
