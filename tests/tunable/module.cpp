// SPDX-License-Identifier: Apache-2.0
// A backend for the tests of `tune`, whose policies differ in what tuning must tell apart: the default is slow, others
// are fast and wrong, fail, or write where they must not, and one is fast and right. It is the recurrence, for f32 and
// nothing optional but the final states.
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <thread>
#include <vector>

#include "core/backend.hpp"

namespace tilemamba::tunable {

struct Policy {
  std::string_view name;
  double cost;
};
constexpr std::array policies = {Policy{"slow", 1},     Policy{"wrong", 1}, Policy{"failing", 1},
                                 Policy{"spilling", 1}, Policy{"fast", 1},  Policy{"hopeless", 100}};
constexpr std::size_t workspace_bytes = 256;

void recurrence(const Problem& problem, const Arguments& a) {
  const auto* x = static_cast<const float*>(a.x.data);
  const auto* dt = static_cast<const float*>(a.dt.data);
  const auto* A = static_cast<const float*>(a.A.data);
  const auto* B = static_cast<const float*>(a.B.data);
  const auto* C = static_cast<const float*>(a.C.data);
  auto* y = static_cast<float*>(a.y.data);
  auto* final_states = static_cast<float*>(a.final_states->data);
  for (std::int64_t row = 0; row < problem.batch * problem.heads * problem.head_dim; ++row) {
    const std::int64_t batch = row / problem.head_dim / problem.heads;
    const std::int64_t head = row / problem.head_dim % problem.heads, channel = row % problem.head_dim;
    std::vector<float> state(static_cast<std::size_t>(problem.state));
    for (std::int64_t token = batch * problem.tokens; token < (batch + 1) * problem.tokens; ++token) {
      const std::int64_t of_head = token * problem.heads + head;
      const std::int64_t group = token * problem.groups + head / (problem.heads / problem.groups);
      const float decay = std::exp(dt[of_head] * A[head]);
      const float value = dt[of_head] * x[of_head * problem.head_dim + channel];
      float sum = 0;
      for (std::size_t n = 0; n < state.size(); ++n) {
        const auto at = static_cast<std::size_t>(group * problem.state) + n;
        state[n] = decay * state[n] + value * B[at];
        sum += state[n] * C[at];
      }
      y[of_head * problem.head_dim + channel] = sum;
    }
    std::copy(state.begin(), state.end(), final_states + row * problem.state);
  }
}

class TunableExecutable : public Executable {
 public:
  TunableExecutable(const Problem& problem, std::string_view policy) : problem_(problem), policy_(policy) {}
  [[nodiscard]] Outcome run(const Arguments& arguments, void* workspace, void*) const noexcept override {
    if (policy_ == "failing") return {ErrorCode::backend_failure, "out of ink"};
    recurrence(problem_, arguments);
    if (policy_ == "slow") std::this_thread::sleep_for(std::chrono::milliseconds(20));
    // A single channel: one of those that no sample would have to meet.
    if (policy_ == "wrong") {
      for (std::int64_t i = 1; i < problem_.tokens * problem_.heads * problem_.head_dim; i += problem_.head_dim * 2)
        static_cast<float*>(arguments.y.data)[i] += 1;
    }
    if (policy_ == "spilling") static_cast<std::byte*>(workspace)[workspace_bytes] = std::byte{1};
    return {};
  }

 private:
  Problem problem_;
  std::string_view policy_;
};

class TunableBackend : public Backend {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return "tunable"; }
  [[nodiscard]] Probe probe() const override { return {true, "for tests of tuning", {"host"}}; }
  [[nodiscard]] std::string cannot_address(const Device& device) const override {
    return device.kind == DeviceKind::cpu ? "" : "it runs on the host";
  }
  [[nodiscard]] std::vector<Offer> offers(const Problem& problem) const override {
    const bool fits = problem.x == DType::f32 && problem.dt == DType::f32 && problem.y == DType::f32 &&
                      problem.final_states == DType::f32 && !problem.packed_sequences && !problem.D && !problem.z &&
                      !problem.dt_bias && !problem.initial_states && !problem.seq_idx && !problem.chunk_states &&
                      !problem.options.dt_softplus;
    std::vector<Offer> result;
    for (const Policy& policy : policies) {
      result.push_back(
          {Schedule::fused, policy.name, fits ? "" : "it is for plain f32 only", workspace_bytes, policy.cost});
    }
    return result;
  }
  [[nodiscard]] std::unique_ptr<Executable> prepare(const Problem& problem, const Offer& offer,
                                                    Outcome&) const override {
    return std::make_unique<TunableExecutable>(problem, offer.policy);
  }
  [[nodiscard]] void* allocate(const Device&, std::size_t bytes) const noexcept override {
    return std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  }
  void release(const Device&, void* memory) const noexcept override { std::free(memory); }
};

}  // namespace tilemamba::tunable

extern "C" __attribute__((visibility("default"))) const tilemamba::Module* tilemamba_backend_module() {
  static const tilemamba::tunable::TunableBackend backend;
  static const tilemamba::Backend* const backends[] = {&backend};
  static const tilemamba::Module module = {TILEMAMBA_VERSION, backends, 1};
  return &module;
}
