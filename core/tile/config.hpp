// SPDX-License-Identifier: Apache-2.0
/// @file
/// The one word that lets the same text compile for a host and for a device.
#pragma once

#if defined(__CUDACC__) || defined(__HIPCC__)
#define TILEMAMBA_FN __host__ __device__ __forceinline__
#else
#define TILEMAMBA_FN inline __attribute__((always_inline))
#endif
