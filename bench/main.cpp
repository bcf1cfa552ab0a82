// SPDX-License-Identifier: Apache-2.0
/// @file
/// tilemamba_bench: times of the CPU backends, or of those of a GPU, each schedule and policy, with Google Benchmark.
/// README.md tells how to run and read it, core/shapes.hpp what is measured. A name is
///
///     SET/BACKEND/SCHEDULE/POLICY/DTYPE/[MODEL/]B:1/T:4096/H:8/P:64/G:1/N:128[/S:8]     SCHEDULE/POLICY or `automatic`
///
/// Counters: `bytes` and `flop` (of a call: core/workload.hpp), `GFLOP/s`, `token_heads/s` (B T H per second),
/// `error_y` and `error_states` (of the first call, on a sample: core/sample.hpp) and, where there is a BLAS,
/// `of_sgemm`: the FLOP/s as a share of sgemm's, measured just before on as many threads. The label of `automatic` is
/// what the planner chose. `sgemm/1024` (`GFLOP/s`) and `memory/copy` (`GB/s`) are what a CPU can do at best.
#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include <tilemamba/tilemamba.hpp>

#include "bench/sgemm.hpp"
#include "core/cpu.hpp"
#include "core/golden.hpp"
#include "core/mirror.hpp"
#include "core/sample.hpp"
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

Problem problem_of(const workload::Row& row, DType dtype, const Device& device) {
  Problem problem = workload::problem_of(row.shape, dtype);
  problem.device = device;
  problem.options.batch_invariant = row.batch_invariant;
  return problem;
}

/// The tensors of one shape: on the host, and where a backend wants them, there in as many copies as no cache holds.
class Call {
 public:
  Call(const Case& of, const Device& device)
      : row_(of.row), dtype_(of.dtype), device_(device), inputs_(of.row.shape, of.dtype, of.row.decay) {
    sample_.emplace(Problem::of(outputs_.arguments()), outputs_.arguments());
    const Problem problem = problem_of(row_, dtype_, device);
    std::optional<Plan> largest;
    for (const Candidate& candidate : candidates(problem)) {
      if (!candidate.refusal.empty() || (largest && candidate.workspace_bytes <= largest->workspace_bytes())) continue;
      largest.emplace(problem, Choice{candidate.backend, candidate.schedule, candidate.policy});
    }
    constexpr double more_than_caches = 512e6;
    constexpr std::size_t most_copies = 16;
    const double bytes = workload::minimal_bytes(problem) + static_cast<double>(largest->workspace_bytes());
    do {
      mirrors_.emplace_back(*largest, outputs_.arguments());
    } while (device.kind != DeviceKind::cpu && mirrors_.size() < most_copies &&
             static_cast<double>(mirrors_.size()) * bytes < more_than_caches);
  }

  [[nodiscard]] bool is_of(const Case& other, const Device& device) const {
    return row_.shape == other.row.shape && row_.decay == other.row.decay && dtype_ == other.dtype &&
           row_.batch_invariant == other.row.batch_invariant && device_ == device;
  }
  [[nodiscard]] std::vector<const Mirror*> mirrors() const {
    std::vector<const Mirror*> all;
    for (const Mirror& mirror : mirrors_) all.push_back(&mirror);
    return all;
  }
  void run(const Plan& plan) const {
    plan.execute(mirrors_.front().arguments(), mirrors_.front().workspace(), plan.workspace_bytes());
  }
  /// What the first call of a plan gave is looked at: a fast wrong answer must not get a time.
  [[nodiscard]] Sample::Errors check(const Plan& plan) {
    Mirror& mirror = mirrors_.front();
    outputs_.poison();
    mirror.poison();
    run(plan);
    mirror.fetch();
    if (!outputs_.damage().empty() || (device_.kind == DeviceKind::cpu && !mirror.intact())) {
      throw Error(ErrorCode::backend_failure, "it wrote outside of the memory that it was given");
    }
    const Arguments& arguments = outputs_.arguments();
    if (!workload::all_finite(arguments.y) || !workload::all_finite(*arguments.final_states)) {
      throw Error(ErrorCode::backend_failure, "it gave an answer that is not finite");
    }
    const Sample::Errors errors = sample_->errors_of(arguments);
    constexpr double broken = 2e-2;  // beyond what any type's rounding explains
    if (!errors.y.within(broken) || !errors.final_states.within(broken)) {
      throw Error(ErrorCode::backend_failure, "it gave a wrong answer");
    }
    return errors;
  }

 private:
  workload::Row row_;
  DType dtype_;
  Device device_;
  workload::Inputs inputs_;
  golden::GuardedOutputs outputs_{inputs_.arguments(), {}, true};
  std::optional<Sample> sample_;
  std::vector<Mirror> mirrors_;
};

/// Times one case after the other. What the last one needed is kept: repetitions and the other backends and schedules
/// of a shape find the same tensors, and no more than one shape is in memory.
class Timer {
 public:
  explicit Timer(const Device& device) : device_(device) {}

  void time(State& state, const Case& of) {
    try {
      prepare(of);
      if (device_.kind == DeviceKind::cpu) {
        for (auto iteration : state) call_->run(*plan_);
      } else {
        // The batch is known only when its time is.
        Timing::Taken taken = timing_->take();
        while (state.KeepRunningBatch(static_cast<benchmark::IterationCount>(taken.calls))) {
          taken = timing_->take();
          state.SetIterationTime(taken.seconds * static_cast<double>(taken.calls));
        }
      }
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
    timing_.reset();
    if (!call_ || !call_->is_of(of, device_)) {
      call_.reset();
      if (have_blas && device_.kind == DeviceKind::cpu) sgemm_rate_ = Sgemm().rate();
      call_.emplace(of, device_);
    }
    const Problem problem = problem_of(of.row, of.dtype, device_);
    plan_.emplace(problem, of.choice);
    errors_ = call_->check(*plan_);
    if (device_.kind != DeviceKind::cpu) timing_.emplace(*plan_, call_->mirrors());
    last_ = &of;
  }

  void report(State& state, const Case& of) const {
    const double flop = workload::useful_flop(plan_->problem());
    const auto token_heads = static_cast<double>(of.row.shape.batch * of.row.shape.tokens * of.row.shape.heads);
    state.counters["bytes"] = workload::minimal_bytes(plan_->problem());
    state.counters["flop"] = flop;
    state.counters["GFLOP/s"] = Counter(flop * 1e-9, Counter::kIsIterationInvariantRate);
    state.counters["token_heads/s"] = Counter(token_heads, Counter::kIsIterationInvariantRate);
    state.counters["error_y"] = errors_.y.relative();
    state.counters["error_states"] = errors_.final_states.relative();
    if (sgemm_rate_ > 0) state.counters["of_sgemm"] = Counter(flop / sgemm_rate_, Counter::kIsIterationInvariantRate);
    if (of.choice.schedule == Schedule::automatic) {
      state.SetLabel(std::string(name(plan_->schedule())) + "/" + std::string(plan_->policy()));
    }
  }

  Device device_;
  std::optional<Call> call_;
  std::optional<Plan> plan_;
  std::optional<Timing> timing_;
  Sample::Errors errors_;
  const Case* last_ = nullptr;  ///< what `plan_` is ready for
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
  if (shape.sequences > 0) add("/S:", shape.sequences);
  return text;
}

/// For one shape every schedule and policy of each backend, on a GPU those left out that it has from one before it, and
/// the planner's choice; of the largest calls on a GPU the planner's choice alone.
std::vector<Case> cases_of(const workload::Row& row, DType dtype, const std::vector<std::string>& backends,
                           const Device& device) {
  const Problem problem = problem_of(row, dtype, device);
  const std::vector<Candidate> all = candidates(problem);
  constexpr std::int64_t large = std::int64_t{1} << 26;
  const bool few = device.kind != DeviceKind::cpu &&
                   row.shape.batch * row.shape.tokens * row.shape.heads * row.shape.head_dim > large;
  std::vector<Case> cases;
  std::set<std::pair<Schedule, std::string>> seen;
  for (const std::string& backend : backends) {
    std::set<std::pair<Schedule, std::string>> of_backend;
    for (const Candidate& candidate : all) {
      if (few || candidate.backend != backend || !candidate.refusal.empty()) continue;
      of_backend.emplace(candidate.schedule, candidate.policy);
      if (device.kind != DeviceKind::cpu && seen.contains({candidate.schedule, candidate.policy})) continue;
      cases.push_back({row, dtype, {backend, candidate.schedule, candidate.policy}});
    }
    seen.merge(of_backend);
    cases.push_back({row, dtype, {backend, Schedule::automatic, ""}});
  }
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

void add_cases(Timer& timer, const std::vector<workload::Row>& rows, const std::vector<DType>& dtypes,
               const std::vector<std::string>& backends, const Device& device) {
  for (const workload::Row& row : rows) {
    for (const DType dtype : dtypes) {
      for (const Case& of : cases_of(row, dtype, backends, device)) {
        auto* const added =
            benchmark::RegisterBenchmark(name_of(of).c_str(), [&timer, of](State& state) { timer.time(state, of); });
        added->Unit(benchmark::kMicrosecond);
        if (device.kind == DeviceKind::cpu) added->UseRealTime();
        if (device.kind != DeviceKind::cpu) added->UseManualTime();
      }
    }
  }
}

// -------------------------------------------------------------------------------------------------------- the program

constexpr const char* usage =
    "tilemamba_bench [--backend=FAMILY] [--max_tokens=4096] [Google Benchmark's options]\n"
    "\n"
    "Times every schedule and policy of the CPU backends. Sets: sizes, tokens, models, grid (B 4, T from 1024 to\n"
    "--max_tokens). OMP_NUM_THREADS gives the threads, TILEMAMBA_CPU_ISA the level of instructions. Backends that "
    "take\n"
    "one thread only are measured where OMP_NUM_THREADS is 1. Unless said otherwise, --benchmark_min_time is 0.1.\n"
    "For example: --benchmark_filter='^tokens/kokkos-openmp/.*/f32/'\n"
    "\n"
    "--backend=cuda: those of the GPU instead, in bf16. Sets: grid, models, off-grid, varlen, slow, invariant. Times\n"
    "are the device's: of replayed graphs, on copies of the tensors that take turns. --benchmark_min_time is 0.02.\n"
    "\n";

void print_help() {
  std::fputs(usage, stdout);
  benchmark::PrintDefaultHelp();
}

/// Takes FLAG=VALUE out of the arguments. @return the value; nothing if it is not there.
std::optional<std::string> take(std::vector<char*>& arguments, std::string_view flag) {
  for (auto at = arguments.begin(); at != arguments.end(); ++at) {
    const std::string_view argument = *at;
    if (!argument.starts_with(flag) || argument.substr(flag.size(), 1) != "=") continue;
    std::string value(argument.substr(flag.size() + 1));
    arguments.erase(at);
    return value;
  }
  return std::nullopt;
}

int fail(const char* why, int code) {
  std::fprintf(stderr, "tilemamba_bench: %s\n", why);
  return code;
}

/// Registers what a CPU's backends can do. @return 0, or the program's exit code.
int add_cpu(Timer& timer, std::int64_t max_tokens) {
  std::vector<CpuBackend> found = cpu_backends();
  int threads = 0;
  for (const CpuBackend& backend : found) threads = std::max(threads, backend.threads);
  std::erase_if(found, [&](const CpuBackend& backend) { return backend.threads != threads; });
  if (found.empty()) return fail("no backend can run on this CPU; `tilemamba info` says why", 1);
  benchmark::AddCustomContext("cpu", processor_name());
  benchmark::AddCustomContext("cpu_level", found.front().level);
  benchmark::AddCustomContext("threads", std::to_string(threads));
  if (have_blas) benchmark::AddCustomContext("blas", std::string(blas));
  add_sgemm();
  add_copy(threads);
  std::vector<std::string> names;
  names.reserve(found.size());
  for (const CpuBackend& backend : found) names.push_back(backend.name);
  add_cases(timer, workload::rows(max_tokens), {DType::f32, DType::bf16}, names, {});
  return 0;
}

/// The same for a GPU: "cuda:0, NVIDIA H200, compute capability 9.0".
int add_gpu(Timer& timer, const std::string& family, const Device& device) {
  std::vector<std::string> names;
  for (const BackendInfo& info : backends()) {
    if ((info.family != family && info.name != family) || !info.can_run) continue;
    const std::string& words = info.devices.front();
    const std::size_t begin = words.find(", ") + 2;
    if (names.empty()) benchmark::AddCustomContext("device", words.substr(begin, words.rfind(", ") - begin));
    names.push_back(info.name);
  }
  add_cases(timer, workload::rows_of_gpus(), {DType::bf16}, names, device);
  return 0;
}

int run(int argc, char** argv) {
  std::vector<char*> arguments(argv, argv + argc);
  const std::string backend = take(arguments, "--backend").value_or("");
  const std::string tokens = take(arguments, "--max_tokens").value_or("4096");
  std::int64_t max_tokens = 0;
  const auto [stop, error] = std::from_chars(tokens.data(), tokens.data() + tokens.size(), max_tokens);
  if (error != std::errc() || stop != tokens.data() + tokens.size()) {
    return fail("--max_tokens takes a number of tokens", 2);
  }
  const Device device = backend.empty() ? Device{} : home_of(backend);
  const bool on_cpu = device.kind == DeviceKind::cpu;
  if (on_cpu && !backend.empty()) return fail("--backend: no GPU that it could run on; `tilemamba info` says why", 1);
  // The first of its kind, so that a later one counts.
  std::string min_time = on_cpu ? "--benchmark_min_time=0.1" : "--benchmark_min_time=0.02";
  arguments.insert(std::next(arguments.begin()), min_time.data());
  int count = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  benchmark::Initialize(&count, arguments.data(), print_help);
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 2;

  benchmark::AddCustomContext("tilemamba", std::string(version()));
  benchmark::AddCustomContext("compiler", TILEMAMBA_COMPILER);
  Timer timer(device);
  if (const int code = on_cpu ? add_cpu(timer, max_tokens) : add_gpu(timer, backend, device); code != 0) return code;
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
