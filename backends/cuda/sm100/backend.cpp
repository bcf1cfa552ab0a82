// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda/sm100/backend.hpp"

#include "backends/cuda/sm100/kernels.hpp"
#include "backends/cuda/sm100/policy.hpp"
#include "backends/cuda/tma/backend.hpp"

namespace tilemamba::cuda::sm100 {

namespace {

/// Its code is of exactly the architectures that it was compiled for. (12.x has no tcgen05.)
std::string refusal(Capability device) {
  std::string list;
  for (const int number : {TILEMAMBA_CUDA_SM100}) {
    if (device.number == number) return "";
    list += (list.empty() ? "" : " or ") + Capability{number}.text();
  }
  return "this build has tcgen05 for compute capability " + list + ", the device has " + device.text();
}

}  // namespace

const Backend& backend() {
  static const std::unique_ptr<const Backend> instance =
      tma::make_backend({"cuda-sm100", "tcgen05", refusal, policies, kernels_of, false});
  return *instance;
}

}  // namespace tilemamba::cuda::sm100
