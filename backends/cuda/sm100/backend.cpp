// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda/sm100/backend.hpp"

#include "backends/cuda/sm100/kernels.hpp"
#include "backends/cuda/sm100/policy.hpp"
#include "backends/cuda/tma/backend.hpp"

namespace tilemamba::cuda::sm100 {

namespace {

/// 10.0 and 10.3 have them, as far as this build was made for each. (12.x has none.)
constexpr int compiled[] = {TILEMAMBA_CUDA_SM100};

}  // namespace

const Backend& backend() {
  static const std::unique_ptr<const Backend> instance =
      tma::make_backend({"cuda-sm100", {"tcgen05", compiled}, policies, kernels_of, false});
  return *instance;
}

}  // namespace tilemamba::cuda::sm100
