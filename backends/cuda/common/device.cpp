// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda/common/device.hpp"

#include <dlfcn.h>

namespace tilemamba::cuda {

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

namespace {

/// Why there are no devices to count.
std::string why_none(cudaError_t error) {
  int driver = 0;
  (void)cudaDriverGetVersion(&driver);
  if (driver == 0) {
    void* const library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (library == nullptr) return "there is no NVIDIA driver on this machine (libcuda.so.1)";
    dlclose(library);
  }
  if (error == cudaErrorInsufficientDriver) {
    return "the NVIDIA driver is too old: it is made for CUDA " + version_text(driver) + ", this build needs " +
           version_text(CUDART_VERSION);
  }
  if (error == cudaErrorNoDevice || error == cudaSuccess)
    return "there is an NVIDIA driver but no device that it shows";
  return in_words(error, "asking the driver for its devices");
}

Machine look(const Compiled& compiled) {
  Machine found;
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  (void)cudaGetLastError();
  if (error != cudaSuccess || count == 0) {
    found.failure = why_none(error);
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
      device.refusal = why_not(compiled, device.capability);
    }
    found.devices.push_back(device);
  }
  return found;
}

}  // namespace

const Machine& machine() {
  static const Machine found = look({{TILEMAMBA_CUDA_MACHINE_CODE}, {TILEMAMBA_CUDA_PTX}});
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
