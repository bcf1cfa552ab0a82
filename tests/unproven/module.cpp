// SPDX-License-Identifier: Apache-2.0
// Two backends for the tests of proofs: `novel`, which nobody has run, and `settled`, which is proven, of one family.
// Both are the yardstick itself; TILEMAMBA_TEST_FAULT says what `novel` gets wrong. TILEMAMBA_TEST_LOG names a file for
// a line about each problem that it is made ready for: the process, TILEMAMBA_UNPROVEN as it is there, and how many
// files are open beyond the usual three.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "core/backend.hpp"
#include "core/reference.hpp"

namespace tilemamba::unproven {

constexpr std::size_t workspace_bytes = 256;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void write(const MutableTensor& tensor, const std::vector<double>& values) {
  for (std::size_t k = 0; k < values.size(); ++k) {
    std::int64_t rest = static_cast<std::int64_t>(k), offset = 0;
    for (int d = tensor.rank - 1; d >= 0; --d) {
      offset += rest % tensor.shape[d] * tensor.strides[d];
      rest /= tensor.shape[d];
    }
    reference::store(tensor.dtype, tensor.data, offset, values[k]);
  }
}

class Yardstick : public Executable {
 public:
  Yardstick(const Problem& problem, std::string fault) : problem_(problem), fault_(std::move(fault)) {}

  [[nodiscard]] Outcome run(const Arguments& arguments, void* workspace, void*) const noexcept override {
    if (fault_ == "fails") return {ErrorCode::backend_failure, "out of ink"};
    if (fault_ == "crashes") (void)raise(SIGSEGV);
    if (fault_ == "is ended") (void)raise(SIGTERM);
    if (fault_ == "exits") _exit(7);
    if (fault_ == "hangs") {
      for (;;) pause();
    }
    if (fault_ == "spills") static_cast<std::byte*>(workspace)[workspace_bytes] = std::byte{1};
    reference::Answer answer = reference::recurrence(arguments, problem_.options);
    if (fault_ == "is wrong") answer.y[answer.y.size() / 2] += 100;
    // One row, of problems with a second chunk only, which is lost in the norm of all of y.
    const std::int64_t row = (problem_.tokens - 1) * problem_.heads * problem_.head_dim;
    if (fault_ == "loses a row" && problem_.tokens > 64) std::fill_n(answer.y.begin() + row, problem_.head_dim, 0.0);
    if (fault_ == "loses states" && problem_.initial_states)
      std::fill(answer.final_states.begin(), answer.final_states.end(), 0.0);
    static int calls = 0;
    if (fault_ == "varies" && ++calls % 2 == 0) answer.y.front() *= 1.01;
    write(arguments.y, answer.y);
    if (arguments.final_states) write(*arguments.final_states, answer.final_states);
    if (arguments.chunk_states) write(*arguments.chunk_states, answer.chunk_states);
    return {};
  }

 private:
  Problem problem_;
  std::string fault_;
};

void log() {
  const std::string file = variable("TILEMAMBA_TEST_LOG");
  if (file.empty()) return;
  int open_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    if (std::stoi(entry.path().filename()) > 2) ++open_files;
  }
  --open_files;  // of the folder itself
  const std::string line =
      std::to_string(getpid()) + " " + variable("TILEMAMBA_UNPROVEN") + " " + std::to_string(open_files) + "\n";
  const int descriptor = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (::write(descriptor, line.data(), line.size()) < 0) std::abort();
  close(descriptor);
}

class TestBackend : public Backend {
 public:
  TestBackend(std::string_view name, bool proven) : name_(name), proven_(proven) {}
  [[nodiscard]] std::string_view name() const noexcept override { return name_; }
  [[nodiscard]] Probe probe() const override { return {true, "for tests of proofs", {"host"}}; }
  [[nodiscard]] bool proven() const noexcept override { return proven_; }
  [[nodiscard]] std::string cannot_address(const Device& device) const override {
    return device.kind == DeviceKind::cpu ? "" : "it runs on the host";
  }
  [[nodiscard]] Identity identity(const Device&) const override {
    return {"as played by tests", variable("TILEMAMBA_TEST_DRIVER")};
  }
  [[nodiscard]] std::vector<Offer> offers(const Problem& problem) const override {
    const std::string refusal = problem.state > 64 ? "it holds 64 columns of a state" : "";
    return {{Schedule::fused, "first", refusal, workspace_bytes},
            {Schedule::fused, "second", refusal, workspace_bytes}};
  }
  [[nodiscard]] std::unique_ptr<Executable> prepare(const Problem& problem, const Offer&, Outcome&) const override {
    if (proven_) return std::make_unique<Yardstick>(problem, "");
    log();
    return std::make_unique<Yardstick>(problem, variable("TILEMAMBA_TEST_FAULT"));
  }
  [[nodiscard]] void* allocate(const Device&, std::size_t bytes) const noexcept override {
    return std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  }
  void release(const Device&, void* memory) const noexcept override { std::free(memory); }

 private:
  std::string_view name_;
  bool proven_;
};

}  // namespace tilemamba::unproven

extern "C" __attribute__((visibility("default"))) const tilemamba::Module* tilemamba_backend_module() {
  static const tilemamba::unproven::TestBackend novel("novel", false), settled("settled", true);
  static const tilemamba::Backend* const backends[] = {&novel, &settled};
  static const tilemamba::Module module = {TILEMAMBA_VERSION, backends, 2};
  return &module;
}
