// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda/sm80/instances.cuh"

namespace tilemamba::cuda::sm80 {

Kernels bf16_staged(std::size_t policy) { return find_kernels<Bf16, Schedule::staged>(policy); }

}  // namespace tilemamba::cuda::sm80
