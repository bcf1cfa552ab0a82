// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda/sm80/kernels.hpp"
#include "kernels/call.hpp"

namespace tilemamba::cuda::sm80 {
namespace {

__global__ void tabulate(const __grid_constant__ kernels::Call call) { call.sequences.tabulate(); }

}  // namespace

Kernel tabulate_kernel() { return {reinterpret_cast<const void*>(&tabulate), 1}; }

}  // namespace tilemamba::cuda::sm80
