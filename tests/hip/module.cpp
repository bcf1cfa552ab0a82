// SPDX-License-Identifier: Apache-2.0
// The HIP backend's text on the machine that the host plays, as two backends for tests: what a device would run, down
// to the lanes, under every test that a backend must pass.
#include <cstdlib>
#include <exception>
#include <iterator>
#include <utility>

#include "core/backend.hpp"
#include "tests/hip/calls.hpp"

namespace tilemamba::test {
namespace {

/// Few: sequences are cut, but not into pieces.
constexpr int compute_units = 6;

template <class Target, std::size_t index>
std::string run_policy(const kernels::Call& call, const Problem& problem) {
  constexpr hip::Policy policy = hip::policies_of<Target>[index];
  return play<StandIn<Target>, policy.schedule, policy.x, policy.out, policy.state>(call, problem);
}

template <class Target>
std::string run(std::size_t wanted, const kernels::Call& call, const Problem& problem) {
  std::string fault;
  [&]<std::size_t... index>(std::index_sequence<index...>) {
    ((index == wanted ? void(fault = run_policy<Target, index>(call, problem)) : void()), ...);
  }
  (std::make_index_sequence<hip::policies_of<Target>.size()>{});
  return fault;
}

template <class Target>
class StandInExecutable : public Executable {
 public:
  StandInExecutable(const Problem& problem, std::size_t policy) : problem_(problem), policy_(policy) {}
  [[nodiscard]] Outcome run(const Arguments& arguments, void* workspace, void* stream) const noexcept override try {
    if (stream != nullptr) return {ErrorCode::invalid_argument, "it has no streams: pass a null stream"};
    const hip::Policy& policy = hip::policies_of<Target>[policy_];
    const kernels::Arrangement arrangement = hip::arrangement_of(problem_, policy, compute_units);
    return {ErrorCode::backend_failure,
            test::run<Target>(policy_, kernels::lower(arguments, problem_, arrangement, workspace), problem_)};
  } catch (const std::exception& fault) {
    return {ErrorCode::backend_failure, fault.what()};
  }

 private:
  Problem problem_;
  std::size_t policy_;
};

template <class Target>
class StandInBackend : public Backend {
 public:
  explicit StandInBackend(const char* name) : name_(name) {}
  [[nodiscard]] std::string_view name() const noexcept override { return name_; }
  [[nodiscard]] Probe probe() const override { return {true, "AMD's lanes played by the host, for tests", {"host"}}; }
  [[nodiscard]] std::string cannot_address(const Device& device) const override {
    return device.kind == DeviceKind::cpu ? "" : "it runs on the host";
  }
  [[nodiscard]] std::vector<Offer> offers(const Problem& problem) const override {
    std::vector<Offer> result;
    for (const hip::Policy& policy : hip::policies_of<Target>) {
      if (policy.x != problem.x) continue;
      const kernels::WorkspaceLayout layout(problem, hip::arrangement_of(problem, policy, compute_units));
      result.push_back(
          {policy.schedule, policy.name, hip::suits(policy, problem) ? "" : "its state is too narrow", layout.bytes});
    }
    return result;
  }
  [[nodiscard]] std::unique_ptr<Executable> prepare(const Problem& problem, const Offer& offer,
                                                    Outcome& outcome) const override {
    const auto& policies = hip::policies_of<Target>;
    for (std::size_t i = 0; i < policies.size(); ++i) {
      if (policies[i].name == offer.policy && policies[i].schedule == offer.schedule && policies[i].x == problem.x)
        return std::make_unique<StandInExecutable<Target>>(problem, i);
    }
    outcome.message = "no such policy";
    return nullptr;
  }
  [[nodiscard]] void* allocate(const Device&, std::size_t bytes) const noexcept override {
    return std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  }
  void release(const Device&, void* memory) const noexcept override { std::free(memory); }

 private:
  const char* name_;
};

}  // namespace
}  // namespace tilemamba::test

extern "C" __attribute__((visibility("default"))) const tilemamba::Module* tilemamba_backend_module() {
  using namespace tilemamba;
  static const test::StandInBackend<hip::Cdna> cdna("lanes-cdna");
  static const test::StandInBackend<hip::Rdna> rdna("lanes-rdna");
  static const Backend* const backends[] = {&cdna, &rdna};
  static const Module module = {TILEMAMBA_VERSION, backends, std::size(backends)};
  return &module;
}
