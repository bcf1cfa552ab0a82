// SPDX-License-Identifier: Apache-2.0
// The HIP module: a member for each kind of device. libamdhip64 is linked to; where it is missing the module cannot be
// loaded, and the loader's word on that is the reason that users read.
#include <exception>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/hip/capability.hpp"
#include "backends/hip/device_facts.hpp"
#include "backends/hip/kernels.hpp"
#include "core/backend.hpp"

namespace tilemamba::hip {

namespace {

const std::vector<std::string>& compiled() {
  static const std::vector<std::string> list = {TILEMAMBA_HIP_MACHINE_CODE};
  return list;
}

/// A problem made ready to run on its device.
class HipExecutable : public Executable {
 public:
  HipExecutable(const Problem& problem, const Policy& policy, const Kernels& kernels,
                const kernels::Arrangement& arrangement)
      : problem_(problem), policy_(policy), kernels_(kernels), arrangement_(arrangement) {}

  /// What a first launch would do otherwise: the kernels are loaded and may have their local memory. @returns why not,
  /// or "".
  [[nodiscard]] std::string load() const {
    const Current current(problem_.device.index);
    if (current.failure() != hipSuccess) return in_words(current.failure(), "making the device current");
    // As much as there is: other problems' plans share the kernels and may need more than this one.
    const unsigned most = machine().devices[static_cast<std::size_t>(problem_.device.index)].most_local_memory;
    std::vector<Kernel> all(kernels_.begin(), kernels_.end());
    all.push_back(tabulate_kernel());
    for (const Kernel& kernel : all) {
      if (kernel.function == nullptr) continue;
      hipFuncAttributes attributes{};
      hipError_t error = hipFuncGetAttributes(&attributes, kernel.function);
      if (error == hipSuccess) {
        error =
            hipFuncSetAttribute(kernel.function, hipFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(most));
      }
      (void)hipGetLastError();
      if (error != hipSuccess) return in_words(error, "loading a kernel");
    }
    return "";
  }

  [[nodiscard]] Outcome run(const Arguments& arguments, void* workspace, void* stream) const noexcept override try {
    const Current current(problem_.device.index);
    hipError_t error = current.failure();
    const Call call = kernels::lower(arguments, problem_, arrangement_, workspace);
    each_launch(call, problem_, policy_,
                [&](Step step, std::int64_t blocks, const HeadBlocks& heads, int column_blocks) {
                  if (blocks == 0 || error != hipSuccess) return;
                  const Kernel kernel = step == Step::tabulate ? tabulate_kernel() : kernel_of(kernels_, step);
                  Call its_call = call;
                  HeadBlocks its_heads = heads;
                  void* list[] = {&its_call, &its_heads, &column_blocks};
                  error = hipLaunchKernel(kernel.function, dim3(static_cast<unsigned>(blocks)),
                                          dim3(static_cast<unsigned>(kernel.shape.threads)), list,
                                          kernel.shape.bytes(problem_), static_cast<hipStream_t>(stream));
                });
    if (error == hipSuccess) return {};
    (void)hipGetLastError();
    return {ErrorCode::backend_failure, in_words(error, "a launch")};
  } catch (const std::exception& fault) {
    return {ErrorCode::backend_failure, fault.what()};
  }

 private:
  Problem problem_;
  Policy policy_;
  Kernels kernels_;
  kernels::Arrangement arrangement_;
};

template <class Target>
class HipBackend : public Backend {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return Kind<Target>::member; }

  [[nodiscard]] Probe probe() const override {
    Probe result{false, machine().failure, {}};
    for (std::size_t i = 0; i < machine().devices.size(); ++i) {
      const DeviceFacts& device = machine().devices[i];
      const std::string called = "hip:" + std::to_string(i) + ", " + device.name;
      if (const std::string why = refusal(device); why.empty()) {
        result.can_run = true;
        result.devices.push_back(called + ", " + device.architecture);
      } else {
        result.reason += (result.reason.empty() ? "" : "; ") + called + ": " + why;
      }
    }
    if (result.can_run && result.reason.empty()) result.reason = Kind<Target>::what;
    return result;
  }

  [[nodiscard]] std::string cannot_address(const Device& device) const override {
    if (device.kind != DeviceKind::hip) return "it runs on AMD GPUs and cannot address that device's memory";
    const auto& devices = machine().devices;
    if (device.index < 0 || device.index >= static_cast<int>(devices.size())) {
      return "there is no device hip:" + std::to_string(device.index) + "; devices: " + std::to_string(devices.size());
    }
    return refusal(devices[static_cast<std::size_t>(device.index)]);
  }

  [[nodiscard]] std::vector<Offer> offers(const Problem& problem) const override {
    const DeviceFacts& device = facts(problem);
    std::vector<Offer> result;
    for (std::size_t i = 0; i < policies_of<Target>.size(); ++i) {
      const Policy& policy = policies_of<Target>[i];
      if (policy.x != problem.x) continue;
      const kernels::WorkspaceLayout layout(problem, arrangement_of(problem, policy, device.compute_units));
      result.push_back({policy.schedule, policy.name,
                        why_not_policy(problem, policy, kernels_of<Target>(i), layout, device), layout.bytes});
    }
    return result;
  }

  [[nodiscard]] std::unique_ptr<Executable> prepare(const Problem& problem, const Offer& offer,
                                                    Outcome& outcome) const override try {
    for (std::size_t i = 0; i < policies_of<Target>.size(); ++i) {
      const Policy& policy = policies_of<Target>[i];
      if (policy.name != offer.policy || policy.schedule != offer.schedule || policy.x != problem.x) continue;
      auto executable = std::make_unique<HipExecutable>(problem, policy, kernels_of<Target>(i),
                                                        arrangement_of(problem, policy, facts(problem).compute_units));
      outcome.message = executable->load();
      if (!outcome.message.empty()) return nullptr;
      return executable;
    }
    outcome.message = "it has no policy " + std::string(offer.policy);
    return nullptr;
  } catch (const std::exception& fault) {
    outcome.message = fault.what();
    return nullptr;
  }

  [[nodiscard]] void* allocate(const Device& device, std::size_t bytes) const noexcept override {
    const Current current(device.index);
    void* memory = nullptr;
    if (current.failure() == hipSuccess && hipMalloc(&memory, bytes) == hipSuccess) return memory;
    (void)hipGetLastError();
    return nullptr;
  }
  /// Waits for whatever still uses the memory.
  void release(const Device& device, void* memory) const noexcept override {
    const Current current(device.index);
    (void)hipFree(memory);
  }
  [[nodiscard]] Identity identity(const Device& device) const override {
    int driver = 0;
    if (hipDriverGetVersion(&driver) != hipSuccess) return {};
    const DeviceFacts& its = machine().devices[static_cast<std::size_t>(device.index)];
    return {its.name + ", " + its.architecture, "HIP " + std::to_string(driver)};
  }
  [[nodiscard]] Device home() const noexcept override { return {DeviceKind::hip, 0}; }
  [[nodiscard]] Outcome upload(const Device& device, void* to, const void* from,
                               std::size_t bytes) const noexcept override {
    return copy(device, to, from, bytes, hipMemcpyHostToDevice);
  }
  [[nodiscard]] Outcome download(const Device& device, void* to, const void* from,
                                 std::size_t bytes) const noexcept override {
    return copy(device, to, from, bytes, hipMemcpyDeviceToHost);
  }
  [[nodiscard]] std::unique_ptr<Stopwatch> stopwatch(const Device&, Calls, Outcome& outcome) const override {
    outcome = {ErrorCode::unsupported, "times on AMD GPUs are not measured yet"};
    return nullptr;
  }
  [[nodiscard]] bool proven() const noexcept override { return false; }

 private:
  static std::string refusal(const DeviceFacts& device) {
    return device.failure.empty() ? why_not<Target>(compiled(), device.architecture, device.wave) : device.failure;
  }

  /// Empty: the policy can run the problem there.
  static std::string why_not_policy(const Problem& problem, const Policy& policy, const Kernels& kernels,
                                    const kernels::WorkspaceLayout& layout, const DeviceFacts& device) {
    if (!suits(policy, problem)) {
      return "its state has " + std::to_string(policy.out.columns()) + " columns, N is " +
             std::to_string(problem.state) +
             (policy.x == DType::f32 ? " (in fp32 no more than 256 fit into a block's local memory)" : "");
    }
    unsigned bytes = 0;
    for (const Kernel& kernel : kernels) bytes = std::max(bytes, kernel.shape.bytes(problem));
    if (bytes > device.most_local_memory) {
      return "a block needs " + std::to_string(bytes) + " bytes of local memory, the device gives " +
             std::to_string(device.most_local_memory);
    }
    const std::int64_t most_blocks = (layout.slots + problem.sequences()) * problem.heads *
                                     kernels::divide_up<std::int64_t>(problem.head_dim, policy.out.channels) *
                                     kernels::divide_up<std::int64_t>(problem.state, policy.state.state);
    // The runtime counts threads in 32 bits.
    const std::int64_t most_threads = std::int64_t{1} << 32;
    if (most_blocks >= most_threads / 1024) return "more blocks than a launch may have (2^22)";
    return "";
  }

  /// Returns when it is done, after all that was launched on the device before.
  static Outcome copy(const Device& device, void* to, const void* from, std::size_t bytes,
                      hipMemcpyKind kind) noexcept {
    const Current current(device.index);
    hipError_t error = current.failure();
    if (error == hipSuccess) error = hipDeviceSynchronize();
    if (error == hipSuccess && bytes > 0) error = hipMemcpy(to, from, bytes, kind);
    (void)hipGetLastError();
    return {ErrorCode::backend_failure, in_words(error, "copying to or from the device")};
  }

  /// Of a device that can be addressed.
  static const DeviceFacts& facts(const Problem& problem) {
    return machine().devices[static_cast<std::size_t>(problem.device.index)];
  }
};

}  // namespace

}  // namespace tilemamba::hip

extern "C" __attribute__((visibility("default"))) const tilemamba::Module* tilemamba_backend_module() {
  using namespace tilemamba;
#if defined(TILEMAMBA_HIP_CDNA)
  static const hip::HipBackend<hip::Cdna> cdna;
#endif
#if defined(TILEMAMBA_HIP_RDNA)
  static const hip::HipBackend<hip::Rdna> rdna;
#endif
  static const Backend* const backends[] = {
#if defined(TILEMAMBA_HIP_CDNA)
    &cdna,
#endif
#if defined(TILEMAMBA_HIP_RDNA)
    &rdna,
#endif
  };
  static const Module module = {TILEMAMBA_VERSION, backends, std::size(backends)};
  return &module;
}
