// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda/sm80/instances.cuh"

namespace tilemamba::cuda::sm80 {

Kernels f16_staged(std::size_t policy) { return find_kernels<F16, Schedule::staged>(policy); }

}  // namespace tilemamba::cuda::sm80
