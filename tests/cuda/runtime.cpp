// SPDX-License-Identifier: Apache-2.0
// What lies around the CUDA backend's kernels where the host plays the machine: its run-time library, its device, and
// cuda-sm80, of which only the tables of packed sequences are used.
#include <memory>
#include <string>
#include <utility>

#include "backends/cuda/common/memory.hpp"
#include "backends/cuda/sm80/backend.hpp"
#include "backends/cuda/sm80/kernels.hpp"
#include "tests/cuda/runtime.hpp"

namespace tilemamba {
namespace test::cuda {

namespace {
thread_local std::string fault;
thread_local std::uint64_t seed = 1;
}  // namespace

const std::string& last_fault() { return fault; }
void begin_calls(std::uint64_t first_seed) {
  fault.clear();
  if (first_seed != 0) seed = first_seed;
  forget_launches();
}

}  // namespace test::cuda

namespace cuda {

/// Few multiprocessors: sequences are cut, but not into pieces.
const Machine& machine() {
  static const Machine played = {"", {{"a machine that the host plays", {90}, 6, 227 * 1024, ""}}};
  return played;
}
Probe probe_of(const Machine&, const std::function<std::string(const DeviceFacts&)>&, const std::string& what) {
  return {true, what, {"host"}};
}
std::string in_words(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return "";
  return std::string(what) + ": " + (test::cuda::last_fault().empty() ? "not played" : test::cuda::last_fault());
}
Identity identity(const Device&) { return {}; }
std::unique_ptr<Stopwatch> stopwatch(const Device&, Calls calls, Outcome&) {
  return std::make_unique<Stopwatch>(std::move(calls));
}

namespace sm80 {
namespace {

constexpr char tabulate = 0;

/// It offers nothing.
class Absent : public DeviceBackend {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return "cuda-sm80"; }
  [[nodiscard]] Probe probe() const override { return {}; }
  [[nodiscard]] std::string cannot_address(const Device&) const override { return ""; }
  [[nodiscard]] std::vector<Offer> offers(const Problem&) const override { return {}; }
  [[nodiscard]] std::unique_ptr<Executable> prepare(const Problem&, const Offer&, Outcome& outcome) const override {
    outcome.message = "no such policy";
    return nullptr;
  }
};

}  // namespace

const Backend& backend() {
  static const Absent instance;
  return instance;
}
Kernel tabulate_kernel() { return {&tabulate, 32}; }

}  // namespace sm80
}  // namespace cuda
}  // namespace tilemamba

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void** arguments) {
  using namespace tilemamba;
  using namespace tilemamba::test::cuda;
  if (function == &cuda::sm80::tabulate) {
    static_cast<const kernels::Call*>(arguments[0])->sequences.tabulate();
    return cudaSuccess;
  }
  if (function == nullptr) {
    fault = "a launch of no kernel";
    return cudaErrorLaunchFailure;
  }
  Launch launch{config->gridDim.x, 1, config->blockDim.x, config->dynamicSmemBytes, false};
  for (unsigned k = 0; k < config->numAttrs; ++k) {
    const cudaLaunchAttribute& attribute = config->attrs[k];
    if (attribute.id == cudaLaunchAttributeClusterDimension) launch.cluster = attribute.val.clusterDim.x;
    if (attribute.id == cudaLaunchAttributeProgrammaticStreamSerialization)
      launch.early = attribute.val.programmaticStreamSerializationAllowed != 0;
  }
  fault = run(
      launch, [&] { start(function, arguments[0]); }, seed++);
  return fault.empty() ? cudaSuccess : cudaErrorLaunchFailure;
}

// The constraints are those of the driver's documentation of this function.
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType, cuuint32_t rank, void* data,
                                const cuuint64_t* counts, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* steps, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  using tilemamba::test::cuda::TensorMap;
  static_assert(sizeof(TensorMap) <= sizeof(CUtensorMap));
  TensorMap encoded{static_cast<unsigned char*>(data), {}, {2}, {}, TensorMap::mark};
  bool right = rank == 4 && swizzle == CU_TENSOR_MAP_SWIZZLE_128B && reinterpret_cast<std::uintptr_t>(data) % 16 == 0 &&
               box[0] * 2 <= 128 && box[0] * 2 % 16 == 0;
  for (unsigned k = 0; k < 4 && right; ++k) {
    encoded.counts[k] = counts[k], encoded.box[k] = box[k];
    if (k > 0) encoded.strides[k] = strides[k - 1];
    right = counts[k] > 0 && counts[k] <= std::uint64_t{1} << 32 && box[k] > 0 && box[k] <= 256 && steps[k] == 1 &&
            (k == 0 || (strides[k - 1] % 16 == 0 && strides[k - 1] < std::uint64_t{1} << 40));
  }
  if (!right) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(map, &encoded, sizeof(encoded));
  return CUDA_SUCCESS;
}
