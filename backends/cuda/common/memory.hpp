// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory of a device, for workspaces of the one-call form and for programs that bring their tensors there.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

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

/// From which workspaces of the one-call form come; it keeps some of what is given back. Null where there is none.
[[nodiscard]] inline cudaMemPool_t pool_of(int device) noexcept try {
  constexpr std::uint64_t most_kept = std::uint64_t{256} << 20;
  static std::mutex mutex;
  static auto& pools = *new std::vector<cudaMemPool_t>(machine().devices.size());  // calls may come until the very end
  const std::lock_guard lock(mutex);
  cudaMemPool_t& pool = pools.at(static_cast<std::size_t>(device));
  if (pool == nullptr) {
    cudaMemPoolProps wanted{};
    wanted.allocType = cudaMemAllocationTypePinned;
    wanted.location = {cudaMemLocationTypeDevice, device};
    auto kept = most_kept;
    if (cudaMemPoolCreate(&pool, &wanted) != cudaSuccess ||
        cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept) != cudaSuccess) {
      (void)cudaGetLastError();
      pool = nullptr;
    }
  }
  return pool;
} catch (const std::exception&) {
  return nullptr;
}

[[nodiscard]] inline void* borrow(const Device& device, std::size_t bytes, void* stream) noexcept {
  const cudaMemPool_t pool = pool_of(device.index);
  if (pool == nullptr) return allocate(device, bytes);
  const Current current(device.index);
  void* memory = nullptr;
  if (current.failure() == cudaSuccess &&
      cudaMallocFromPoolAsync(&memory, bytes, pool, static_cast<cudaStream_t>(stream)) == cudaSuccess) {
    return memory;
  }
  (void)cudaGetLastError();
  return nullptr;
}

inline void give_back(const Device& device, void* memory, void* stream) noexcept {
  if (pool_of(device.index) == nullptr) return release(device, memory);
  const Current current(device.index);
  (void)cudaFreeAsync(memory, static_cast<cudaStream_t>(stream));
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
