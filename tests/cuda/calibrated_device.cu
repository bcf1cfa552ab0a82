// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/calibration.cuh"

namespace tilemamba::test::cuda {

const Calibrated& device_calibrated() { return calibrated(); }

std::string no_device() {
  int count = 0, major = 0, minor = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) return "there is no CUDA device";
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0) != cudaSuccess)
    return "the CUDA device says nothing of itself";
  return major == 9 && minor == 0 ? "" : "the CUDA device is not of compute capability 9.0";
}

}  // namespace tilemamba::test::cuda
