// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda/common/stopwatch.hpp"

#include <algorithm>
#include <utility>

namespace tilemamba::cuda {

namespace {

class GraphStopwatch : public Stopwatch {
 public:
  GraphStopwatch(const Device& device, Calls calls) : Stopwatch(std::move(calls)), device_(device) {}

  ~GraphStopwatch() override {
    const Current current(device_.index);
    if (graph_ != nullptr) (void)cudaGraphExecDestroy(graph_);
    if (begin_ != nullptr) (void)cudaEventDestroy(begin_);
    if (end_ != nullptr) (void)cudaEventDestroy(end_);
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
    (void)cudaGetLastError();
  }

  /// As many calls in a graph as take a millisecond together, as far as one call tells.
  [[nodiscard]] Outcome prepare() {
    constexpr double long_enough = 1e-3;
    constexpr std::size_t most_calls = 64;
    const Current current(device_.index);
    failed(current.failure(), "making the device current") ||
        failed(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream") ||
        failed(cudaEventCreate(&begin_), "making an event") || failed(cudaEventCreate(&end_), "making an event");
    double rough = 0;
    if (!outcome_.message.empty() || !capture(1) || !replay(rough) || !replay(rough)) return outcome_;
    (void)cudaGraphExecDestroy(std::exchange(graph_, nullptr));
    const auto count = static_cast<std::size_t>(long_enough / std::max(rough, long_enough / most_calls));
    if (!capture(std::clamp<std::size_t>(count, 1, most_calls)) || !replay(rough)) return outcome_;
    return {};
  }

  [[nodiscard]] Outcome time(double& seconds, std::size_t& count) noexcept override {
    const Current current(device_.index);
    if (failed(current.failure(), "making the device current") || !replay(seconds)) return outcome_;
    seconds /= static_cast<double>(count_);
    count = count_;
    return {};
  }

 private:
  /// Keeps the first failure.
  bool failed(cudaError_t error, const char* what) {
    if (error == cudaSuccess) return false;
    (void)cudaGetLastError();
    if (outcome_.message.empty()) outcome_ = {ErrorCode::backend_failure, in_words(error, what)};
    return true;
  }

  bool capture(std::size_t count) {
    if (failed(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capturing a graph")) return false;
    for (std::size_t i = 0; i < count && outcome_.message.empty(); ++i) outcome_ = calls_(i, stream_);
    cudaGraph_t graph = nullptr;
    if (!failed(cudaStreamEndCapture(stream_, &graph), "capturing a graph") && outcome_.message.empty()) {
      failed(cudaGraphInstantiate(&graph_, graph, 0), "making a graph ready");
    }
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
    count_ = count;
    return outcome_.message.empty();
  }

  bool replay(double& seconds) {
    float milliseconds = 0;
    if (failed(cudaEventRecord(begin_, stream_), "recording an event") ||
        failed(cudaGraphLaunch(graph_, stream_), "launching a graph") ||
        failed(cudaEventRecord(end_, stream_), "recording an event") ||
        failed(cudaEventSynchronize(end_), "calls in a graph") ||
        failed(cudaEventElapsedTime(&milliseconds, begin_, end_), "reading events")) {
      return false;
    }
    seconds = 1e-3 * static_cast<double>(milliseconds);
    return true;
  }

  Device device_;
  Outcome outcome_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  cudaGraphExec_t graph_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace

Identity identity(const Device& device) {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) return {};
  return {machine().devices[static_cast<std::size_t>(device.index)].name, "CUDA " + version_text(driver)};
}

std::unique_ptr<Stopwatch> stopwatch(const Device& device, Calls calls, Outcome& outcome) {
  auto made = std::make_unique<GraphStopwatch>(device, std::move(calls));
  outcome = made->prepare();
  if (!outcome.message.empty()) return nullptr;
  return made;
}

}  // namespace tilemamba::cuda
