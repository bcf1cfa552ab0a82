// SPDX-License-Identifier: Apache-2.0
// The CUDA backends on the machine that the host plays, as backends for tests: what a device would run, host code and
// kernels, under every test that a backend must pass.
#include <iterator>

#include "backends/cuda/sm100/backend.hpp"
#include "backends/cuda/sm90/backend.hpp"
#include "core/backend.hpp"
#include "tests/cuda/runtime.hpp"

namespace tilemamba::test::cuda {
namespace {

/// Each call on a machine of its own.
class PlayedExecutable : public Executable {
 public:
  explicit PlayedExecutable(std::unique_ptr<Executable> its) : its_(std::move(its)) {}
  [[nodiscard]] Outcome run(const Arguments& arguments, void* workspace, void* stream) const noexcept override {
    if (stream != nullptr) return {ErrorCode::invalid_argument, "it has no streams: pass a null stream"};
    begin_calls();
    return its_->run(arguments, workspace, nullptr);
  }

 private:
  std::unique_ptr<Executable> its_;
};

class Played : public Backend {
 public:
  Played(const char* name, const Backend& its) : name_(name), its_(its) {}
  [[nodiscard]] std::string_view name() const noexcept override { return name_; }
  [[nodiscard]] Probe probe() const override { return {true, "an NVIDIA GPU played by the host, for tests", {"host"}}; }
  [[nodiscard]] std::string cannot_address(const Device& device) const override {
    return device.kind == DeviceKind::cpu ? "" : "it runs on the host";
  }
  [[nodiscard]] std::vector<Offer> offers(const Problem& problem) const override { return its_.offers(problem); }
  [[nodiscard]] std::unique_ptr<Executable> prepare(const Problem& problem, const Offer& offer,
                                                    Outcome& outcome) const override {
    std::unique_ptr<Executable> made = its_.prepare(problem, offer, outcome);
    if (made == nullptr) return nullptr;
    return std::make_unique<PlayedExecutable>(std::move(made));
  }
  [[nodiscard]] void* allocate(const Device& device, std::size_t bytes) const noexcept override {
    return its_.allocate(device, bytes);
  }
  void release(const Device& device, void* memory) const noexcept override { its_.release(device, memory); }

 private:
  const char* name_;
  const Backend& its_;
};

}  // namespace
}  // namespace tilemamba::test::cuda

extern "C" __attribute__((visibility("default"))) const tilemamba::Module* tilemamba_backend_module() {
  using namespace tilemamba;
  static const test::cuda::Played sm90("lanes-sm90", cuda::sm90::backend()),
      sm100("lanes-sm100", cuda::sm100::backend());
  static const Backend* const backends[] = {&sm90, &sm100};
  static const Module module = {TILEMAMBA_VERSION, backends, std::size(backends)};
  return &module;
}
