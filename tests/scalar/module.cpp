// SPDX-License-Identifier: Apache-2.0
// The scalar backend: everything that a backend is, in as few lines as that takes.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>

#include "core/backend.hpp"
#include "kernels/lower.hpp"
#include "kernels/walk.hpp"
#include "tests/scalar/worker.hpp"

namespace tilemamba::scalar {

static_assert(tile::Worker<Worker>);

/// A tile configuration.
struct Policy {
  std::string_view name;
  kernels::Arrangement arrangement;
  int channels;  ///< of a slice of a head
  int workers;   ///< slices of a block
};

/// Small tiles, so that small problems have many chunks, segments and slices.
constexpr std::array policies = {
    Policy{"q16", {Schedule::fused, 16, 3}, 32, 3},
    Policy{"q24", {Schedule::fused, 24, 2}, 256, 1},
    Policy{"q16", {Schedule::staged, 16, 1}, 32, 2},
    Policy{"q64", {Schedule::staged, 64, 1}, 256, 1},
    Policy{"r16", {Schedule::recurrent, 16, kernels::whole_sequence}, 32, 2},
};

class ScalarExecutable : public Executable {
 public:
  ScalarExecutable(const Problem& problem, const Policy& policy) : problem_(problem), policy_(policy) {}

  [[nodiscard]] Outcome run(const Arguments& arguments, void* workspace, void* stream) const noexcept override try {
    if (stream != nullptr) return {ErrorCode::invalid_argument, "it has no streams: pass a null stream"};
    const kernels::Call call = kernels::lower(arguments, problem_, policy_.arrangement, workspace);
    const int channels = std::min(policy_.channels, call.head_dim);
    const kernels::HeadBlocks heads(call, channels, policy_.workers);
    const auto launch = [&]<class Body>(const kernels::Call& c, const kernels::HeadBlocks& h) {
      for (std::int64_t block = 0; block < Body::blocks(c, h); ++block) {
        Worker w{policy_.arrangement.chunk, channels, static_cast<int>(problem_.state), problem_.x};
        Body body(w, h);
        body(w, c, h, block);
        demand(w.under_way.empty(), "a product is under way at the end of a block");
      }
    };
    kernels::walk::run<Worker>(policy_.arrangement.schedule, call, heads, launch);
    return {};
  } catch (const std::exception& fault) {
    return {ErrorCode::backend_failure, fault.what()};
  }

 private:
  Problem problem_;
  Policy policy_;
};

class ScalarBackend : public Backend {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return "scalar"; }
  [[nodiscard]] Probe probe() const override { return {true, "plain loops, for tests", {"host"}}; }
  [[nodiscard]] std::string cannot_address(const Device& device) const override {
    return device.kind == DeviceKind::cpu
               ? ""
               : "it runs on the host and cannot address " +
                     std::string(device.kind == DeviceKind::cuda ? "CUDA" : "HIP") + " memory";
  }
  [[nodiscard]] std::vector<Offer> offers(const Problem& problem) const override {
    std::vector<Offer> result;
    for (const Policy& policy : policies) {
      const kernels::WorkspaceLayout layout(problem, policy.arrangement);
      result.push_back({policy.arrangement.schedule, policy.name, "", layout.bytes});
    }
    return result;
  }
  [[nodiscard]] std::unique_ptr<Executable> prepare(const Problem& problem, const Offer& offer,
                                                    Outcome& outcome) const override {
    for (const Policy& policy : policies) {
      if (policy.name == offer.policy && policy.arrangement.schedule == offer.schedule)
        return std::make_unique<ScalarExecutable>(problem, policy);
    }
    outcome.message = "no such policy";
    return nullptr;
  }
  [[nodiscard]] void* allocate(const Device&, std::size_t bytes) const noexcept override {
    return std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  }
  void release(const Device&, void* memory) const noexcept override { std::free(memory); }
};

}  // namespace tilemamba::scalar

extern "C" __attribute__((visibility("default"))) const tilemamba::Module* tilemamba_backend_module() {
  static const tilemamba::scalar::ScalarBackend backend;
  static const tilemamba::Backend* const backends[] = {&backend};
  static const tilemamba::Module module = {TILEMAMBA_VERSION, backends, 1};
  return &module;
}
