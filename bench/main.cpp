// SPDX-License-Identifier: Apache-2.0
/// @file
/// tilemamba_bench: times of the CPU backends, each schedule and policy, with Google Benchmark. README.md tells how to
/// run and read it, core/shapes.hpp what is measured. A name is
///
///     SET/BACKEND/SCHEDULE/POLICY/DTYPE/[MODEL/]B:1/T:4096/H:8/P:64/G:1/N:128        SCHEDULE/POLICY or `automatic`
///
/// Counters: `bytes` and `flop` (of a call: core/workload.hpp), `GFLOP/s`, `token_heads/s` (B T H per second) and,
/// where there is a BLAS, `of_sgemm`: the FLOP/s as a share of sgemm's, measured just before on as many threads. The
/// label of `automatic` is what the planner chose. `sgemm/1024` (`GFLOP/s`) and `memory/copy` (`GB/s`) are what the
/// machine can do at best.
#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>

#include <tilemamba/tilemamba.hpp>

#include "bench/sgemm.hpp"
#include "core/cpu.hpp"
#include "core/golden.hpp"
#include "core/shapes.hpp"
#include "core/workload.hpp"

namespace tilemamba::bench {
namespace {

using benchmark::Counter;
using benchmark::State;

// ------------------------------------------------------------------------------------------------------------- timing

struct Case {
  workload::Row row;
  DType dtype = DType::f32;
  Choice choice;
};

/// The tensors of one shape.
struct Call {
  Call(const workload::Shape& of_shape, DType of_dtype)
      : shape(of_shape), dtype(of_dtype), inputs(shape, dtype), outputs(inputs.arguments(), {}, true) {}
  workload::Shape shape;
  DType dtype;
  workload::Inputs inputs;
  golden::GuardedOutputs outputs;
};

/// A plan with its workspace.
struct Execution {
  explicit Execution(const Case& of) : plan(workload::problem_of(of.row.shape, of.dtype), of.choice) {}
  void run(const Arguments& arguments) const { plan.execute(arguments, workspace.data(), plan.workspace_bytes()); }
  Plan plan;
  golden::GuardedMemory workspace{plan.workspace_bytes()};
};

/// Times one case after the other. What the last one needed is kept: repetitions and the other backends and schedules
/// of a shape find the same tensors, and no more than one shape is in memory.
class Timer {
 public:
  void time(State& state, const Case& of) {
    try {
      prepare(of);
      const Arguments& arguments = call_->outputs.arguments();
      for (auto iteration : state) execution_->run(arguments);
      report(state, of);
    } catch (const Error& error) {
      last_ = nullptr;
      failed_ = true;
      state.SkipWithError(error.what());
    }
  }

  [[nodiscard]] bool failed() const noexcept { return failed_; }

 private:
  void prepare(const Case& of) {
    if (last_ == &of) return;
    execution_.reset();
    if (!call_ || call_->shape != of.row.shape || call_->dtype != of.dtype) {
      call_.reset();
      if (have_blas) sgemm_rate_ = Sgemm().rate();
      call_.emplace(of.row.shape, of.dtype);
    }
    execution_.emplace(of);
    warm_up();
    last_ = &of;
  }

  /// What the first call gave is looked at: a fast wrong answer must not get a time.
  void warm_up() {
    golden::GuardedOutputs& outputs = call_->outputs;
    outputs.poison();
    execution_->run(outputs.arguments());
    if (!outputs.damage().empty() || !execution_->workspace.intact()) {
      throw Error(ErrorCode::backend_failure, "it wrote outside of the memory that it was given");
    }
    if (!workload::all_finite(outputs.arguments().y) || !workload::all_finite(*outputs.arguments().final_states)) {
      throw Error(ErrorCode::backend_failure, "it gave an answer that is not finite");
    }
  }

  void report(State& state, const Case& of) const {
    const Plan& plan = execution_->plan;
    const double flop = workload::useful_flop(plan.problem());
    const auto token_heads = static_cast<double>(of.row.shape.batch * of.row.shape.tokens * of.row.shape.heads);
    state.counters["bytes"] = workload::minimal_bytes(plan.problem());
    state.counters["flop"] = flop;
    state.counters["GFLOP/s"] = Counter(flop * 1e-9, Counter::kIsIterationInvariantRate);
    state.counters["token_heads/s"] = Counter(token_heads, Counter::kIsIterationInvariantRate);
    if (have_blas) state.counters["of_sgemm"] = Counter(flop / sgemm_rate_, Counter::kIsIterationInvariantRate);
    if (of.choice.schedule == Schedule::automatic) {
      state.SetLabel(std::string(name(plan.schedule())) + "/" + std::string(plan.policy()));
    }
  }

  std::optional<Call> call_;
  std::optional<Execution> execution_;
  const Case* last_ = nullptr;  ///< what `execution_` is ready for
  double sgemm_rate_ = 0;       ///< FLOP/s
  bool failed_ = false;
};

// ------------------------------------------------------------------------------------------------------- what to time

struct CpuBackend {
  std::string name;
  int threads = 0;
  std::string level;  ///< of instructions
};

/// The backends that can run on the CPU, as they say themselves: "cpu, 2 threads, x86-64-v4".
std::vector<CpuBackend> cpu_backends() {
  std::vector<CpuBackend> found;
  for (const BackendInfo& info : backends()) {
    int threads = 0;
    if (!info.can_run || std::sscanf(info.devices.front().c_str(), "cpu, %d thread", &threads) != 1) continue;
    found.push_back({info.name, threads, info.devices.front().substr(info.devices.front().rfind(' ') + 1)});
  }
  return found;
}

std::string name_of(const Case& of) {
  const workload::Shape& shape = of.row.shape;
  std::string text = std::string(of.row.set) + "/" + of.choice.backend + "/" + std::string(name(of.choice.schedule));
  if (!of.choice.policy.empty()) text += "/" + of.choice.policy;
  text += "/" + std::string(name(of.dtype));
  if (!of.row.model.empty()) text += "/" + std::string(of.row.model);
  const auto add = [&](const char* size, std::int64_t value) { text += size + std::to_string(value); };
  add("/B:", shape.batch);
  add("/T:", shape.tokens);
  add("/H:", shape.heads);
  add("/P:", shape.head_dim);
  add("/G:", shape.groups);
  add("/N:", shape.state);
  return text;
}

/// Every schedule and policy of a backend for one shape, and the planner's choice.
std::vector<Case> cases_of(const workload::Row& row, DType dtype, const std::string& backend) {
  std::vector<Case> cases;
  for (const Candidate& candidate : candidates(workload::problem_of(row.shape, dtype))) {
    if (candidate.backend != backend || !candidate.refusal.empty()) continue;
    cases.push_back({row, dtype, {backend, candidate.schedule, candidate.policy}});
  }
  cases.push_back({row, dtype, {backend, Schedule::automatic, ""}});
  return cases;
}

void add_sgemm() {
  if (!have_blas) return;
  benchmark::RegisterBenchmark("sgemm/1024",
                               [](State& state) {
                                 Sgemm sgemm;
                                 sgemm.multiply();
                                 for (auto iteration : state) sgemm.multiply();
                                 state.counters["flop"] = Sgemm::flop;
                                 state.counters["GFLOP/s"] =
                                     Counter(Sgemm::flop * 1e-9, Counter::kIsIterationInvariantRate);
                               })
      ->Unit(benchmark::kMicrosecond)
      ->UseRealTime();
}

/// Copies what no cache holds, a share a thread. GB/s: of the bytes read plus the bytes written.
void add_copy(int threads) {
  benchmark::RegisterBenchmark("memory/copy",
                               [threads](State& state) {
                                 const std::size_t share = (std::size_t{256} << 20) / static_cast<std::size_t>(threads);
                                 const std::size_t bytes = share * static_cast<std::size_t>(threads);
                                 const golden::GuardedMemory from(bytes);  // filled, so that all pages are there
                                 const golden::GuardedMemory to(bytes);
                                 for (auto iteration : state) {
                                   std::vector<std::jthread> workers;
                                   for (int i = 0; i < threads; ++i) {
                                     const std::size_t begin = static_cast<std::size_t>(i) * share;
                                     workers.emplace_back([begin, share, &from, &to] {
                                       std::memcpy(to.data() + begin, from.data() + begin, share);
                                     });
                                   }
                                 }
                                 const double moved = 2.0 * static_cast<double>(bytes);
                                 state.counters["bytes"] = moved;
                                 state.counters["GB/s"] = Counter(moved * 1e-9, Counter::kIsIterationInvariantRate);
                               })
      ->Unit(benchmark::kMicrosecond)
      ->UseRealTime();
}

void add_cases(Timer& timer, const std::vector<CpuBackend>& measured, std::int64_t max_tokens) {
  for (const workload::Row& row : workload::rows(max_tokens)) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const CpuBackend& backend : measured) {
        for (const Case& of : cases_of(row, dtype, backend.name)) {
          benchmark::RegisterBenchmark(name_of(of).c_str(), [&timer, of](State& state) { timer.time(state, of); })
              ->Unit(benchmark::kMicrosecond)
              ->UseRealTime();
        }
      }
    }
  }
}

// -------------------------------------------------------------------------------------------------------- the program

constexpr const char* usage =
    "tilemamba_bench [--max_tokens=4096] [Google Benchmark's options]\n"
    "\n"
    "Times every schedule and policy of the CPU backends. Sets: sizes, tokens, models, grid (B 4, T from 1024 to\n"
    "--max_tokens). OMP_NUM_THREADS gives the threads, TILEMAMBA_CPU_ISA the level of instructions. Backends that "
    "take\n"
    "one thread only are measured where OMP_NUM_THREADS is 1. Unless said otherwise, --benchmark_min_time is 0.1.\n"
    "For example: --benchmark_filter='^tokens/kokkos-openmp/.*/f32/'\n"
    "\n";

void print_help() {
  std::fputs(usage, stdout);
  benchmark::PrintDefaultHelp();
}

/// Takes --max_tokens=N out of the arguments. @return N, 4096 if it is not there; nothing if it is no number.
std::optional<std::int64_t> take_max_tokens(std::vector<char*>& arguments) {
  constexpr std::string_view flag = "--max_tokens=";
  std::int64_t value = 4096;
  for (auto at = arguments.begin(); at != arguments.end(); ++at) {
    const std::string_view argument = *at;
    if (!argument.starts_with(flag)) continue;
    const char* const end = argument.data() + argument.size();
    const auto [stop, error] = std::from_chars(argument.data() + flag.size(), end, value);
    if (error != std::errc() || stop != end) return std::nullopt;
    arguments.erase(at);
    break;
  }
  return value;
}

int run(int argc, char** argv) {
  std::vector<char*> arguments(argv, argv + argc);
  const std::optional<std::int64_t> max_tokens = take_max_tokens(arguments);
  if (!max_tokens) {
    std::fputs("tilemamba_bench: --max_tokens takes a number of tokens\n", stderr);
    return 2;
  }
  std::string min_time = "--benchmark_min_time=0.1";  // the first of its kind, so that a later one counts
  arguments.insert(std::next(arguments.begin()), min_time.data());
  int count = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  benchmark::Initialize(&count, arguments.data(), print_help);
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 2;

  std::vector<CpuBackend> measured = cpu_backends();
  int threads = 0;
  for (const CpuBackend& backend : measured) threads = std::max(threads, backend.threads);
  std::erase_if(measured, [&](const CpuBackend& backend) { return backend.threads != threads; });
  if (measured.empty()) {
    std::fputs("tilemamba_bench: no backend can run on this CPU; `tilemamba info` says why\n", stderr);
    return 1;
  }
  benchmark::AddCustomContext("tilemamba", std::string(version()));
  benchmark::AddCustomContext("compiler", TILEMAMBA_COMPILER);
  benchmark::AddCustomContext("cpu", processor_name());
  benchmark::AddCustomContext("cpu_level", measured.front().level);
  benchmark::AddCustomContext("threads", std::to_string(threads));
  if (have_blas) benchmark::AddCustomContext("blas", std::string(blas));
  Timer timer;
  add_sgemm();
  add_copy(threads);
  add_cases(timer, measured, *max_tokens);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return timer.failed() ? 1 : 0;
}

}  // namespace
}  // namespace tilemamba::bench

int main(int argc, char** argv) {
  try {
    return tilemamba::bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tilemamba_bench: %s\n", error.what());
    return 1;
  }
}
