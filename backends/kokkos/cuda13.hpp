// SPDX-License-Identifier: Apache-2.0
/// @file
/// Included before everything else in Kokkos 4.7.00 and in what uses it: two functions of CUDA with the parameters that
/// they had before CUDA 13, as that release calls them. (4.7.01 knows the new ones.)
#pragma once

#include <cuda_runtime.h>

#if CUDART_VERSION >= 13000
inline cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
                                            size_t count) {
  return cudaGraphAddDependencies(graph, from, to, nullptr, count);
}
inline cudaError_t cudaMemPrefetchAsync(const void* memory, size_t bytes, int device, cudaStream_t stream) {
  const bool host = device == cudaCpuDeviceId;
  const cudaMemLocation there = {host ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice, host ? 0 : device};
  return cudaMemPrefetchAsync(memory, bytes, there, 0, stream);
}
#endif
