// SPDX-License-Identifier: Apache-2.0
/// @file
/// The devices of this machine, and being current on one of them.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>
#include <vector>

#include "backends/cuda/common/capability.hpp"
#include "core/backend.hpp"

namespace tilemamba::cuda {

struct DeviceFacts {
  std::string name;
  Capability capability{};
  int multiprocessors = 0;
  unsigned most_shared_memory = 0;  ///< that a block may have
  std::string refusal;              ///< why this build's code does not run on it; empty: it does
};

struct Machine {
  std::string failure;  ///< why there are no devices
  std::vector<DeviceFacts> devices;
};

/// Looked at once. The driver is loaded by the run-time library, which is part of this module; a machine may have none.
[[nodiscard]] const Machine& machine();

/// What a backend finds here: its devices, in words, and why the others are none of its own. `refusal` is empty for a
/// device that it runs on; `what` says what it is, where there is nothing to be said of other devices.
[[nodiscard]] Probe probe_of(const Machine& machine, const std::function<std::string(const DeviceFacts&)>& refusal,
                             const std::string& what);

/// A device is current while this lives, and what was current before is so again afterwards.
class Current {
 public:
  explicit Current(int device) {
    failure_ = cudaGetDevice(&before_);
    if (failure_ == cudaSuccess && before_ != device) failure_ = cudaSetDevice(device);
    changed_ = failure_ == cudaSuccess && before_ != device;
  }
  ~Current() {
    if (changed_) (void)cudaSetDevice(before_);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  [[nodiscard]] cudaError_t failure() const { return failure_; }

 private:
  cudaError_t failure_ = cudaSuccess;
  int before_ = 0;
  bool changed_ = false;
};

/// Empty for success.
[[nodiscard]] std::string in_words(cudaError_t error, const char* what);

}  // namespace tilemamba::cuda
