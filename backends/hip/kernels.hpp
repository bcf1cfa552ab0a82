// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the host knows of the kernels, which are compiled in files of their own.
#pragma once

#include "backends/hip/launches.hpp"

namespace tilemamba::hip {

struct Kernel {
  const void* function = nullptr;
  Shape shape;
};
/// The kernels of a policy, by step; those that it has not are null.
using Kernels = std::array<Kernel, 6>;
[[nodiscard]] inline const Kernel& kernel_of(const Kernels& kernels, Step step) {
  return kernels[static_cast<std::size_t>(step)];
}

/// Of `policies_of<Target>[policy]`, whose type this is. A file for each kind of device and type.
template <class Target, DType type>
[[nodiscard]] Kernels kernels_for(std::size_t policy);

template <class Target>
[[nodiscard]] Kernels kernels_of(std::size_t policy) {
  switch (policies_of<Target>[policy].x) {
    case DType::bf16:
      return kernels_for<Target, DType::bf16>(policy);
    case DType::f16:
      return kernels_for<Target, DType::f16>(policy);
    default:
      return kernels_for<Target, DType::f32>(policy);
  }
}

/// Fills the tables of packed sequences: one block of one thread.
[[nodiscard]] Kernel tabulate_kernel();

}  // namespace tilemamba::hip
