// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda/sm90/backend.hpp"

#include "backends/cuda/sm90/kernels.hpp"
#include "backends/cuda/sm90/policy.hpp"
#include "backends/cuda/tma/backend.hpp"

namespace tilemamba::cuda::sm90 {

namespace {

std::string refusal(Capability device) {
  return device.number == 90 ? "" : "wgmma needs compute capability 9.0, the device has " + device.text();
}

}  // namespace

const Backend& backend() {
  static const std::unique_ptr<const Backend> instance =
      tma::make_backend({"cuda-sm90", "wgmma", refusal, policies, kernels_of, true});
  return *instance;
}

}  // namespace tilemamba::cuda::sm90
