// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda/tma/backend.hpp"

#include <algorithm>
#include <exception>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "backends/cuda/common/device.hpp"
#include "backends/cuda/common/memory.hpp"
#include "backends/cuda/sm80/backend.hpp"
#include "backends/cuda/sm80/kernels.hpp"
#include "backends/cuda/tma/maps.hpp"

namespace tilemamba::cuda::tma {

namespace {

/// Empty: the device is of this generation.
std::string refusal(const Generation& generation, const DeviceFacts& device) {
  return device.refusal.empty() ? why_not(generation.instructions, device.capability) : device.refusal;
}

/// Of a device that can be addressed.
const DeviceFacts& facts(const Device& device) { return machine().devices[static_cast<std::size_t>(device.index)]; }

/// Loads a kernel, which then may have its shared memory.
cudaError_t load(const Kernel& kernel) {
  cudaFuncAttributes attributes{};
  const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel.function);
  if (error != cudaSuccess) return error;
  return cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(kernel.shared_bytes));
}

cudaLaunchAttribute cluster_of(int blocks) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = static_cast<unsigned>(blocks);
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  return attribute;
}

/// How many clusters of so many blocks the device (it is current) runs at once: a cluster lies within one group of
/// multiprocessors, and what is over there stays idle. Where the policy is a second choice at best, an estimate does.
int clusters_of(int blocks, const Generation& generation, const Problem& problem, const Policy& policy,
                const DeviceFacts& device) {
  const int most = std::max(1, device.multiprocessors / blocks);
  if (blocks == 1 || problem.state <= policy.state / 2) return most;
  static std::mutex mutex;
  static std::map<std::pair<int, int>, int> known;  // by device and size of the cluster
  const std::lock_guard lock(mutex);
  const auto [entry, is_new] = known.try_emplace({problem.device.index, blocks}, most);
  if (!is_new) return entry->second;
  const Kernel kernel = generation.kernels(DType::bf16, policy, 0).walk;
  cudaLaunchAttribute attribute = cluster_of(blocks);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(most * blocks));
  config.blockDim = dim3(static_cast<unsigned>(kernel.threads));
  config.dynamicSmemBytes = kernel.shared_bytes;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  if (load(kernel) == cudaSuccess &&
      cudaOccupancyMaxActiveClusters(&clusters, kernel.function, &config) == cudaSuccess && clusters > 0) {
    entry->second = clusters;
  }
  (void)cudaGetLastError();  // the launch will say what is wrong
  return entry->second;
}

/// A problem made ready to run on its device.
class WalkExecutable : public Executable {
 public:
  WalkExecutable(const Generation& generation, const Problem& problem, const Policy& policy, const Cutting& cutting)
      : problem_(problem),
        policy_(policy),
        padded_(padded(problem, policy)),
        cutting_(cutting),
        kernels_(generation.kernels(problem.x, policy,
                                    cutting.chained > 1 ? chained_variant
                                    : cutting.scored    ? scored_variant
                                                        : variant_of(problem))),
        encode_(find_encoder()) {}

  /// What a first launch would do otherwise: the kernels are loaded and may have their shared memory. @returns why not,
  /// or "".
  [[nodiscard]] std::string load() const {
    if (encode_ == nullptr) return "the driver has no cuTensorMapEncodeTiled";
    for (const Kernel& kernel : {kernels_.score_chunks, kernels_.sum_segments, kernels_.walk}) {
      if (kernel.function == nullptr) continue;
      const cudaError_t error = tma::load(kernel);
      if (error == cudaSuccess) continue;
      (void)cudaGetLastError();
      return in_words(error, "loading a kernel");
    }
    return "";
  }

  [[nodiscard]] Outcome run(const Arguments& arguments, void* workspace, void* stream) const noexcept override try {
    kernels::Call lowered = kernels::lower(arguments, padded_, arrangement_of(cutting_), workspace);
    lowered.head_dim = static_cast<int>(problem_.head_dim);
    const bool packed = lowered.sequences.cu_seqlens != nullptr;
    Job job{{},
            lowered,
            {},
            {},
            {lowered, channels_of_slice, policy_workers},
            packed ? kernels::Sequence{} : lowered.sequences[0],
            lowered.sequences.cut.chunks(problem_.tokens),
            {}};
    kernels::Call& call = job.call;
    if (!packed) {
      job.walks = {static_cast<int>(cutting_.units), static_cast<int>(call.sequences.count) * job.heads.count,
                   static_cast<int>(job.first_row.units), static_cast<int>(cutting_.dealt)};
    }
    static_cast<kernels::StateView&>(job.initial_states) = call.initial_states;
    static_cast<kernels::StateView&>(job.entry_states) = call.entry_states;
    job.entry_states.as_registers = true;
    if (!near(call.dt))
      return {ErrorCode::unsupported, "dt: its stride from token to token must be positive and below 4 GiB"};
    if (call.sequences.count == 0) return {};
    make_maps(job);

    const Current current(problem_.device.index);
    cudaError_t error = current.failure();
    const auto launch = [&](const void* function, int threads, unsigned shared_bytes, std::int64_t blocks,
                            void* parameter, bool early, int cluster = 1) {
      if (blocks == 0 || error != cudaSuccess) return;
      cudaLaunchConfig_t config{};
      config.gridDim = dim3(static_cast<unsigned>(blocks));
      config.blockDim = dim3(static_cast<unsigned>(threads));
      config.dynamicSmemBytes = shared_bytes;
      config.stream = static_cast<cudaStream_t>(stream);
      cudaLaunchAttribute attributes[2]{};
      config.attrs = attributes;
      if (early) {
        cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
        attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute.val.programmaticStreamSerializationAllowed = 1;
      }
      if (cluster > 1) attributes[config.numAttrs++] = cluster_of(cluster);
      void* list[] = {parameter};
      error = cudaLaunchKernelExC(&config, function, list);
    };
    // A chain hands states on: it has no slots.
    const std::int64_t blocks = job.heads.count,
                       walks = packed ? call.sequences.most_units() * blocks : job.walks.count(),
                       sums = packed || cutting_.chained > 1 ? call.sequences.slots * blocks : job.walks.sums();
    if (packed) launch(sm80::tabulate_kernel().function, sm80::tabulate_kernel().threads, 0, 1, &call, false);
    launch(kernels_.sum_segments.function, kernels_.sum_segments.threads, kernels_.sum_segments.shared_bytes,
           sums * policy_.sum_parts, &job, false);
    job.follows = sums > 0;
    const std::int64_t scored = call.sequences.chunks * call.groups;
    launch(kernels_.score_chunks.function, kernels_.score_chunks.threads, kernels_.score_chunks.shared_bytes,
           std::min<std::int64_t>(scored, 2 * facts(problem_.device).multiprocessors), &job, job.follows);
    job.follows = job.follows || scored > 0;
    launch(kernels_.walk.function, kernels_.walk.threads, kernels_.walk.shared_bytes, walks * policy_.parts, &job,
           job.follows || !packed, policy_.parts * cutting_.chained);
    if (error == cudaSuccess) return {};
    (void)cudaGetLastError();
    return {ErrorCode::backend_failure, in_words(error, "a launch")};
  } catch (const std::exception& fault) {
    return {ErrorCode::backend_failure, fault.what()};
  }

 private:
  void make_maps(Job& job) const {
    if (problem_.tokens == 0) return;  // nobody looks at them
    const kernels::Call& call = job.call;
    const auto of_heads = [&](const kernels::TokenView& view) {
      return make_map(encode_, view, problem_.heads, channels_of_slice, q, problem_);
    };
    // Each block of a cluster finishes some of the tokens.
    const auto of_outputs = [&](const kernels::TokenView& view) {
      return make_map(encode_, view, problem_.heads, channels_of_slice, q / policy_.parts, problem_);
    };
    const auto of_groups = [&](const kernels::TokenView& view) {
      return make_map(encode_, view, problem_.groups, static_cast<int>(padded_.state), q, problem_);
    };
    job.maps = {of_heads(call.x), call.z.given ? of_outputs(call.z) : Map{}, of_groups(call.B), of_groups(call.C),
                problem_.y == problem_.x ? of_outputs(call.y) : Map{}};
  }

  Problem problem_;
  Policy policy_;
  Problem padded_;
  Cutting cutting_;
  Kernels kernels_;
  EncodeMap encode_;
};

/// Why a policy cannot run a problem; empty: it can.
std::string refusal(const Problem& problem, const Policy& policy, const kernels::WorkspaceLayout& layout) {
  if (problem.x == DType::f32) return "it multiplies 16-bit types; x is fp32";
  if (problem.state > policy.state)
    return "its state has " + std::to_string(policy.state) + " columns, N is " + std::to_string(problem.state);
  if (problem.state % 8 != 0)
    return "the copy engine moves 16 bytes: N must be a multiple of 8, it is " + std::to_string(problem.state);
  if (problem.head_dim % 8 != 0)
    return "the copy engine moves 16 bytes: P must be a multiple of 8, it is " + std::to_string(problem.head_dim);
  const std::int64_t slices = kernels::divide_up<std::int64_t>(problem.head_dim, channels_of_slice) * problem.heads;
  if ((layout.slots + problem.sequences()) * slices * policy.parts > std::numeric_limits<int>::max())
    return "more blocks than a grid may have (2^31 - 1)";
  return "";
}

class WalkBackend : public DeviceBackend {
 public:
  explicit WalkBackend(const Generation& generation) : generation_(generation) {}

  [[nodiscard]] std::string_view name() const noexcept override { return generation_.name; }
  [[nodiscard]] bool proven() const noexcept override { return generation_.proven; }

  [[nodiscard]] Probe probe() const override {
    return probe_of(
        machine(), [this](const DeviceFacts& device) { return refusal(generation_, device); },
        std::string(generation_.instructions.name) +
            " and TMA for 16-bit types and N up to 512; the rest as cuda-sm80");
  }

  [[nodiscard]] std::string cannot_address(const Device& device) const override {
    if (std::string why = sm80::backend().cannot_address(device); !why.empty()) return why;
    return refusal(generation_, facts(device));
  }

  [[nodiscard]] std::vector<Offer> offers(const Problem& problem) const override {
    std::vector<Offer> result;
    const Current current(problem.device.index);
    // In an order that no length decides: a packed sequence's is not known, and under batch_invariant it takes what it
    // would take alone. (There the staged schedule would be faster up to about 1K tokens, and two to three times slower
    // at 16K.)
    for (const Policy& policy : generation_.policies) {
      const kernels::WorkspaceLayout layout(padded(problem, policy), arrangement_of(cut(problem, policy)));
      result.push_back({Schedule::fused, policy.name, refusal(problem, policy, layout), layout.bytes});
    }
    // What these kernels are not made for: fp32, other schedules, larger states.
    for (Offer& offer : sm80::backend().offers(problem)) result.push_back(std::move(offer));
    return result;
  }

  [[nodiscard]] std::unique_ptr<Executable> prepare(const Problem& problem, const Offer& offer,
                                                    Outcome& outcome) const override try {
    for (const Policy& policy : generation_.policies) {
      if (policy.name != offer.policy || offer.schedule != Schedule::fused) continue;
      const Current current(problem.device.index);
      outcome.message = in_words(current.failure(), "making the device current");
      if (!outcome.message.empty()) return nullptr;
      auto executable = std::make_unique<WalkExecutable>(generation_, problem, policy, cut(problem, policy));
      outcome.message = executable->load();
      if (!outcome.message.empty()) return nullptr;
      return executable;
    }
    return sm80::backend().prepare(problem, offer, outcome);
  } catch (const std::exception& fault) {
    outcome.message = fault.what();
    return nullptr;
  }

 private:
  [[nodiscard]] Cutting cut(const Problem& problem, const Policy& policy) const {
    AtOnce at_once{};
    for (int blocks = 1; blocks <= most_blocks_of_cluster; ++blocks) {
      if (blocks == 1 || blocks == policy.parts || (blocks % policy.parts == 0 && may_chain(problem)))
        at_once[blocks] = clusters_of(blocks, generation_, problem, policy, facts(problem.device));
    }
    return cutting_of(problem, policy, at_once);
  }

  Generation generation_;
};

}  // namespace

std::unique_ptr<const Backend> make_backend(const Generation& generation) {
  return std::make_unique<WalkBackend>(generation);
}

}  // namespace tilemamba::cuda::tma
