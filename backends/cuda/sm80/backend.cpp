// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda/sm80/backend.hpp"

#include <exception>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include "backends/cuda/common/memory.hpp"
#include "backends/cuda/sm80/kernels.hpp"

namespace tilemamba::cuda::sm80 {

namespace {

/// Blocks of the slices of heads that a tiling makes.
kernels::HeadBlocks head_blocks(const kernels::Call& call, const Tiling& tiling) {
  return {call, tiling.channels, tiling.workers};
}

/// See Features in tile.cuh.
bool is_plain(const kernels::Call& call) {
  const auto size = static_cast<std::int64_t>(size_of(call.x.dtype));
  const auto aligned = [&](const kernels::TokenView& view) {
    const std::int64_t strides = view.batch_stride | view.token_stride | view.head_stride;
    return ((reinterpret_cast<std::uintptr_t>(view.data) | static_cast<std::uintptr_t>(strides * size)) & 15) == 0;
  };
  const bool nothing_more = !call.seq_idx.given && !call.z.given && !call.chunk_states.given;
  return nothing_more && call.sequences.cut.period == 0 && call.y.dtype == call.x.dtype &&
         call.y.width * size % 16 == 0 && aligned(call.x) && aligned(call.B) && aligned(call.C) && aligned(call.y);
}

/// A problem made ready to run on its device.
class Sm80Executable : public Executable {
 public:
  Sm80Executable(const Problem& problem, const Policy& policy, const Kernels& kernels,
                 const kernels::Arrangement& arrangement)
      : problem_(problem), policy_(policy), kernels_(kernels), arrangement_(arrangement) {}

  /// What a first launch would do otherwise: the kernels are loaded and may have their shared memory. @returns why not,
  /// or "".
  [[nodiscard]] std::string load() const {
    const Current current(problem_.device.index);
    if (current.failure() != cudaSuccess) return in_words(current.failure(), "making the device current");
    // As much as there is: other problems' plans share the kernels and may need more than this one.
    const auto most =
        static_cast<int>(machine().devices[static_cast<std::size_t>(problem_.device.index)].most_shared_memory);
    for (const Kernel& kernel :
         {kernels_.any.states, kernels_.any.outputs, kernels_.plain.states, kernels_.plain.outputs,
          kernels_.tf32.states, kernels_.tf32.outputs, tabulate_kernel()}) {
      if (kernel.function == nullptr) continue;
      cudaFuncAttributes attributes{};
      cudaError_t error = cudaFuncGetAttributes(&attributes, kernel.function);
      if (error == cudaSuccess) {
        error = cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     most - static_cast<int>(attributes.sharedSizeBytes));
      }
      if (error != cudaSuccess) {
        (void)cudaGetLastError();
        return in_words(error, "loading a kernel");
      }
    }
    return "";
  }

  [[nodiscard]] Outcome run(const Arguments& arguments, void* workspace, void* stream) const noexcept override try {
    const Current current(problem_.device.index);
    cudaError_t error = current.failure();
    PlainCall plain_call;
    kernels::Call& call = plain_call;
    call = kernels::lower(arguments, problem_, arrangement_, workspace);
    if (problem_.head_dim % 16 == 0 && problem_.state % 16 == 0) call.entry_states.channel_stride = stride_of_blocks;
    const bool tf32 = problem_.options.allow_tf32 && call.x.dtype == DType::f32;
    const bool plain = kernels_.plain.outputs.function != nullptr && is_plain(call);
    const Kernels::Two& kernels = tf32 ? kernels_.tf32 : plain ? kernels_.plain : kernels_.any;
    const auto launch = [&](const Kernel& kernel, std::int64_t blocks, auto... arguments_of_kernel) {
      if (blocks == 0 || error != cudaSuccess) return;
      void* list[] = {&plain_call, &arguments_of_kernel...};
      error = cudaLaunchKernel(kernel.function, dim3(static_cast<unsigned>(blocks)),
                               dim3(static_cast<unsigned>(kernel.threads)), list, kernel.bytes(problem_),
                               static_cast<cudaStream_t>(stream));
    };
    const auto& sequences = call.sequences;
    const kernels::HeadBlocks out = head_blocks(call, policy_.out), state = head_blocks(call, policy_.state);
    const int column_blocks = static_cast<int>(kernels::divide_up<std::int64_t>(problem_.state, policy_.state.state));
    if (sequences.cu_seqlens != nullptr) launch(tabulate_kernel(), 1);
    const std::int64_t walks = policy_.schedule == Schedule::staged ? sequences.count  // by each its whole sequence
                               : sequences.slots > 0                ? sequences.most_units()
                                                                    : 0;
    launch(kernels.states, walks * state.slices() * column_blocks, state, column_blocks);
    launch(kernels.outputs, sequences.most_units() * out.count, out);
    if (error == cudaSuccess) return {};
    (void)cudaGetLastError();
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

/// Why a policy cannot run a problem on this device; empty: it can.
std::string refusal(const Problem& problem, const Policy& policy, const kernels::WorkspaceLayout& layout,
                    const DeviceFacts& device) {
  if (std::string why = why_not(policy, problem, device.most_shared_memory); !why.empty()) return why;
  // Units of all schedules are at most slots and one more for each sequence; a slice has at least 16 channels, a column
  // block 64 columns.
  const std::int64_t most_blocks = (layout.slots + problem.sequences()) * problem.heads *
                                   kernels::divide_up<std::int64_t>(problem.head_dim, policy.out.channels) *
                                   kernels::divide_up<std::int64_t>(problem.state, policy.state.state);
  if (most_blocks > std::numeric_limits<int>::max()) return "more blocks than a grid may have (2^31 - 1)";
  return "";
}

class Sm80Backend : public DeviceBackend {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return "cuda-sm80"; }

  [[nodiscard]] Probe probe() const override {
    return probe_of(
        machine(), [](const DeviceFacts& device) { return device.refusal; },
        "mma.sync, CUDA " + version_text(CUDART_VERSION));
  }

  [[nodiscard]] std::string cannot_address(const Device& device) const override {
    if (device.kind != DeviceKind::cuda) return "it runs on NVIDIA GPUs and cannot address that device's memory";
    const auto& devices = machine().devices;
    if (device.index < 0 || device.index >= static_cast<int>(devices.size())) {
      return "there is no device cuda:" + std::to_string(device.index) + "; devices: " + std::to_string(devices.size());
    }
    return devices[static_cast<std::size_t>(device.index)].refusal;
  }

  [[nodiscard]] std::vector<Offer> offers(const Problem& problem) const override {
    const DeviceFacts& device = facts(problem);
    std::vector<Offer> result;
    for (const Policy& policy : policies) {
      if (policy.x != problem.x) continue;
      const kernels::WorkspaceLayout layout(problem, arrangement_of(problem, policy, device.multiprocessors));
      result.push_back({policy.schedule, policy.name, refusal(problem, policy, layout, device), layout.bytes});
    }
    return result;
  }

  [[nodiscard]] std::unique_ptr<Executable> prepare(const Problem& problem, const Offer& offer,
                                                    Outcome& outcome) const override try {
    for (std::size_t i = 0; i < policies.size(); ++i) {
      const Policy& policy = policies[i];
      if (policy.name != offer.policy || policy.schedule != offer.schedule || policy.x != problem.x) continue;
      auto executable = std::make_unique<Sm80Executable>(
          problem, policy, kernels_of(i), arrangement_of(problem, policy, facts(problem).multiprocessors));
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

 private:
  /// Of a device that can be addressed.
  static const DeviceFacts& facts(const Problem& problem) {
    return machine().devices[static_cast<std::size_t>(problem.device.index)];
  }
};

}  // namespace

const Backend& backend() {
  static const Sm80Backend instance;
  return instance;
}

}  // namespace tilemamba::cuda::sm80
