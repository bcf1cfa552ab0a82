// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory of a device, for workspaces of the one-call form and for programs that bring their tensors there; what
/// backends have in common.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "backends/cuda/common/device.hpp"
#include "backends/cuda/common/stopwatch.hpp"

namespace tilemamba::cuda {

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

/// What is the same for all backends of these devices: their memory, and the time that calls take.
class DeviceBackend : public Backend {
 public:
  [[nodiscard]] void* allocate(const Device& device, std::size_t bytes) const noexcept override {
    const Current current(device.index);
    void* memory = nullptr;
    if (current.failure() == cudaSuccess && cudaMalloc(&memory, bytes) == cudaSuccess) return memory;
    (void)cudaGetLastError();
    return nullptr;
  }
  /// Waits for whatever still uses the memory.
  void release(const Device& device, void* memory) const noexcept override {
    const Current current(device.index);
    (void)cudaFree(memory);
  }
  [[nodiscard]] void* borrow(const Device& device, std::size_t bytes, void* stream) const noexcept override {
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
  void give_back(const Device& device, void* memory, void* stream) const noexcept override {
    if (pool_of(device.index) == nullptr) return release(device, memory);
    const Current current(device.index);
    (void)cudaFreeAsync(memory, static_cast<cudaStream_t>(stream));
  }

  [[nodiscard]] Identity identity(const Device& device) const override { return cuda::identity(device); }
  [[nodiscard]] std::unique_ptr<Stopwatch> stopwatch(const Device& device, Calls calls,
                                                     Outcome& outcome) const override {
    return cuda::stopwatch(device, std::move(calls), outcome);
  }

  [[nodiscard]] Device home() const noexcept override { return {DeviceKind::cuda, 0}; }
  [[nodiscard]] Outcome upload(const Device& device, void* to, const void* from,
                               std::size_t bytes) const noexcept override {
    return copy(device, to, from, bytes, cudaMemcpyHostToDevice);
  }
  [[nodiscard]] Outcome download(const Device& device, void* to, const void* from,
                                 std::size_t bytes) const noexcept override {
    return copy(device, to, from, bytes, cudaMemcpyDeviceToHost);
  }

 private:
  static Outcome copy(const Device& device, void* to, const void* from, std::size_t bytes,
                      cudaMemcpyKind kind) noexcept {
    const Current current(device.index);
    cudaError_t error = current.failure();
    if (error == cudaSuccess) error = cudaDeviceSynchronize();
    if (error == cudaSuccess && bytes > 0) error = cudaMemcpy(to, from, bytes, kind);
    (void)cudaGetLastError();
    return {ErrorCode::backend_failure, in_words(error, "copying to or from the device")};
  }
};

}  // namespace tilemamba::cuda
