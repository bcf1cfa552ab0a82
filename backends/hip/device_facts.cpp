// SPDX-License-Identifier: Apache-2.0
#include "backends/hip/device_facts.hpp"

#include <unistd.h>

namespace tilemamba::hip {

namespace {

Machine look() {
  Machine found;
  // The runtime may end the process where there is no driver to talk to.
  if (access("/dev/kfd", F_OK) != 0) {
    found.failure = "there is no AMD GPU driver on this machine (/dev/kfd)";
    return found;
  }
  int count = 0;
  const hipError_t error = hipGetDeviceCount(&count);
  (void)hipGetLastError();
  if (error != hipSuccess || count == 0) {
    found.failure = error == hipSuccess || error == hipErrorNoDevice
                        ? "there is an AMD GPU driver but no device that it shows"
                        : in_words(error, "asking the driver for its devices");
    return found;
  }
  for (int i = 0; i < count; ++i) {
    DeviceFacts device;
    hipDeviceProp_t properties{};
    device.failure = in_words(hipGetDeviceProperties(&properties, i), "asking for the properties of the device");
    if (device.failure.empty()) {
      device.name = properties.name;
      device.architecture = properties.gcnArchName;
      device.wave = properties.warpSize;
      device.compute_units = properties.multiProcessorCount;
      device.most_local_memory = static_cast<unsigned>(properties.sharedMemPerBlock);
    }
    found.devices.push_back(device);
  }
  return found;
}

}  // namespace

const Machine& machine() {
  static const Machine found = look();
  return found;
}

std::string in_words(hipError_t error, const char* what) {
  return error == hipSuccess ? std::string()
                             : std::string(what) + ": " + hipGetErrorName(error) + ", " + hipGetErrorString(error);
}

}  // namespace tilemamba::hip
