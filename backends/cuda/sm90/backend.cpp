// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda/sm90/backend.hpp"

#include "backends/cuda/sm90/kernels.hpp"
#include "backends/cuda/sm90/policy.hpp"
#include "backends/cuda/tma/backend.hpp"

namespace tilemamba::cuda::sm90 {

const Backend& backend() {
  static const std::unique_ptr<const Backend> instance =
      tma::make_backend({"cuda-sm90", wgmma, policies, kernels_of, true});
  return *instance;
}

}  // namespace tilemamba::cuda::sm90
