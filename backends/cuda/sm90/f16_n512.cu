// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda/sm90/instances.cuh"

namespace tilemamba::cuda::sm90 {

Kernels f16_n512(std::size_t variant) { return find_kernels<F16, 128, 4>(variant); }

}  // namespace tilemamba::cuda::sm90
