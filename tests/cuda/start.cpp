// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda/tma/kernels.hpp"
#include "tests/cuda/runtime.hpp"

namespace tilemamba::test::cuda {

void start(const void* function, void* parameter) {
  using namespace tilemamba::cuda;
  reinterpret_cast<void (*)(tma::Job)>(const_cast<void*>(function))(*static_cast<const tma::Job*>(parameter));
}

}  // namespace tilemamba::test::cuda
