// SPDX-License-Identifier: Apache-2.0
#include <hip/hip_runtime.h>

#include "backends/hip/kernels.hpp"

namespace tilemamba::hip {
namespace {

__global__ void tabulate(const Call call) { call.sequences.tabulate(); }

}  // namespace

Kernel tabulate_kernel() { return {reinterpret_cast<const void*>(&tabulate), {1, 0, 0, 0}}; }

}  // namespace tilemamba::hip
