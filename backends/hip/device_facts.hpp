// SPDX-License-Identifier: Apache-2.0
/// @file
/// The devices of this machine, and being current on one of them.
#pragma once

#include <hip/hip_runtime_api.h>

#include <string>
#include <vector>

namespace tilemamba::hip {

struct DeviceFacts {
  std::string name;          ///< "AMD Instinct MI210"
  std::string architecture;  ///< "gfx90a:sramecc+:xnack-"
  int wave = 0;
  int compute_units = 0;
  unsigned most_local_memory = 0;  ///< that a block may have
  std::string failure;             ///< why nothing is known of it
};
struct Machine {
  std::string failure;  ///< why there are no devices
  std::vector<DeviceFacts> devices;
};
/// Looked at once.
[[nodiscard]] const Machine& machine();

/// A device is current while this lives, and what was current before is so again afterwards.
class Current {
 public:
  explicit Current(int device) {
    failure_ = hipGetDevice(&before_);
    if (failure_ == hipSuccess && before_ != device) failure_ = hipSetDevice(device);
    changed_ = failure_ == hipSuccess && before_ != device;
  }
  ~Current() {
    if (changed_) (void)hipSetDevice(before_);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  [[nodiscard]] hipError_t failure() const { return failure_; }

 private:
  hipError_t failure_ = hipSuccess;
  int before_ = 0;
  bool changed_ = false;
};

/// Empty for success.
[[nodiscard]] std::string in_words(hipError_t error, const char* what);

}  // namespace tilemamba::hip
