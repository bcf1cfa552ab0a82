// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda/common/device.hpp"

#include <dlfcn.h>

namespace tilemamba::cuda {

namespace {

/// Why there are no devices to count.
std::string why_none(cudaError_t error, int driver) {
  bool installed = driver != 0;
  if (!installed) {
    void* const library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    installed = library != nullptr;
    if (installed) dlclose(library);
  }
  const bool none = error == cudaErrorNoDevice || error == cudaSuccess;
  const bool too_old = error == cudaErrorInsufficientDriver;
  if (installed && !none && !too_old) return in_words(error, "asking the driver for its devices");
  return why_none(DriverFacts{installed, driver, too_old}, CUDART_VERSION);
}

Machine look(const Compiled& compiled) {
  Machine found;
  int count = 0, driver = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  (void)cudaDriverGetVersion(&driver);
  (void)cudaGetLastError();
  if (error != cudaSuccess || count == 0) {
    found.failure = why_none(error, driver);
    return found;
  }
  for (int i = 0; i < count; ++i) {
    DeviceFacts device;
    cudaDeviceProp properties{};
    if (const cudaError_t failed = cudaGetDeviceProperties(&properties, i); failed != cudaSuccess) {
      device.refusal = in_words(failed, "asking for the properties of the device");
    } else {
      device.name = properties.name;
      device.capability = {properties.major * 10 + properties.minor};
      device.multiprocessors = properties.multiProcessorCount;
      device.most_shared_memory = static_cast<unsigned>(properties.sharedMemPerBlockOptin);
      device.refusal = why_not(compiled, device.capability, driver);
    }
    found.devices.push_back(device);
  }
  return found;
}

}  // namespace

const Machine& machine() {
  static const Machine found = look({{TILEMAMBA_CUDA_MACHINE_CODE}, {TILEMAMBA_CUDA_PTX}, CUDART_VERSION});
  return found;
}

Probe probe_of(const Machine& machine, const std::function<std::string(const DeviceFacts&)>& refusal,
               const std::string& what) {
  Probe result{false, machine.failure, {}};
  for (std::size_t i = 0; i < machine.devices.size(); ++i) {
    const DeviceFacts& device = machine.devices[i];
    const std::string called = "cuda:" + std::to_string(i) + ", " + device.name;
    if (const std::string why = refusal(device); why.empty()) {
      result.can_run = true;
      result.devices.push_back(called + ", compute capability " + device.capability.text());
    } else {
      result.reason += (result.reason.empty() ? "" : "; ") + called + ": " + why;
    }
  }
  if (result.can_run && result.reason.empty()) result.reason = what;
  return result;
}

std::string in_words(cudaError_t error, const char* what) {
  return error == cudaSuccess ? std::string()
                              : std::string(what) + ": " + cudaGetErrorName(error) + ", " + cudaGetErrorString(error);
}

}  // namespace tilemamba::cuda
