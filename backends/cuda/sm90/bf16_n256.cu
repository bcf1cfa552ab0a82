// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda/sm90/cores.cuh"
#include "backends/cuda/sm90/kernels.hpp"
#include "backends/cuda/tma/instances.cuh"

namespace tilemamba::cuda::sm90 {

Kernels bf16_n256(std::size_t variant) { return find_kernels<Cores, Bf16, 128, 2, 1>(variant); }

}  // namespace tilemamba::cuda::sm90
