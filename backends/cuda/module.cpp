// SPDX-License-Identifier: Apache-2.0
// The CUDA module: one member for each generation of tensor cores. The CUDA run-time library is linked in and hidden;
// it loads the driver when it is first asked for something.
#include <iterator>

#include "backends/cuda/sm80/backend.hpp"
#if defined(TILEMAMBA_CUDA_SM100)
#include "backends/cuda/sm100/backend.hpp"
#endif
#if defined(TILEMAMBA_CUDA_SM90)
#include "backends/cuda/sm90/backend.hpp"
#endif

extern "C" __attribute__((visibility("default"))) const tilemamba::Module* tilemamba_backend_module() {
  static const tilemamba::Backend* const backends[] = {
#if defined(TILEMAMBA_CUDA_SM100)
    &tilemamba::cuda::sm100::backend(),
#endif
#if defined(TILEMAMBA_CUDA_SM90)
    &tilemamba::cuda::sm90::backend(),
#endif
    &tilemamba::cuda::sm80::backend(),
  };
  static const tilemamba::Module module = {TILEMAMBA_VERSION, backends, std::size(backends)};
  return &module;
}
