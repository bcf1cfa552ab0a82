// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda/sm100/cores.cuh"
#include "backends/cuda/sm100/kernels.hpp"
#include "backends/cuda/tma/instances.cuh"

namespace tilemamba::cuda::sm100 {

Kernels bf16_n256(std::size_t variant) { return find_kernels<Cores, Bf16, 128, 2>(variant); }

}  // namespace tilemamba::cuda::sm100
