// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <ctime>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/command_line/commands.hpp"
#include "core/command_line/console.hpp"
#include "core/command_line/execution.hpp"
#include "core/command_line/rates.hpp"
#include "core/golden.hpp"
#include "core/workload.hpp"

namespace tilemamba::command_line {
namespace {

using json = nlohmann::ordered_json;

// The published grid: these sizes throughout, T and N vary.
constexpr std::int64_t batch = 4;
constexpr std::int64_t heads = 8;
constexpr std::int64_t head_dim = 64;
constexpr std::int64_t groups = 1;

// ----------------------------------------------------------------------------------------------------------- the floor

/// Seconds below which no implementation comes on a device of these rates: the least bytes and the useful operations.
/// (Other chunks, the states and the decays move it by a few per cent; it is a yardstick, the same for every rival.)
double floor_seconds(const Problem& problem, const Rates& rates) {
  return std::max(workload::minimal_bytes(problem) / rates.copy_bytes_per_second,
                  workload::useful_flop(problem) / rates.matmul_flop_per_second);
}

// ---------------------------------------------------------------------------------------------------------------- rows

struct Row {
  std::int64_t tokens = 0;
  std::int64_t state = 0;
  std::string backend;
  Schedule schedule = Schedule::automatic;
  std::string policy;
  double seconds = 0;  ///< median
  int calls = 0;
  double tokens_per_second = 0;
  std::size_t workspace_bytes = 0;
  double floor_seconds = 0;
};

double timed(Execution& execution) {
  const auto begin = std::chrono::steady_clock::now();
  execution.run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::vector<double> timed_calls(Execution& execution, int repeat) {
  constexpr int usual = 5;
  constexpr double most_seconds = 1;
  std::vector<double> seconds;
  double total = 0;
  const int most = repeat > 0 ? repeat : usual;
  while (static_cast<int>(seconds.size()) < most && (repeat > 0 || total < most_seconds)) {
    seconds.push_back(timed(execution));
    total += seconds.back();
  }
  return seconds;
}

/// The first call warms up, and what it gave is looked at: a fast wrong answer must not get a row.
void require_sound(Execution& execution, const golden::GuardedOutputs& outputs) {
  execution.run();
  execution.fetch();
  require_intact(execution, outputs);
  const Arguments& arguments = outputs.arguments();
  if (workload::all_finite(arguments.y) && workload::all_finite(*arguments.final_states)) return;
  throw Error(ErrorCode::backend_failure,
              fmt::format("{} gave an answer that is not finite", describe(execution.plan())));
}

class Bench {
 public:
  Bench(const BenchRequest& request, const Rates& rates) : request_(request), rates_(rates) {}

  std::vector<Row> rows() {
    std::vector<Row> rows;
    for (std::int64_t tokens = request_.min_tokens; tokens <= request_.max_tokens; tokens *= 2) {
      for (const std::int64_t state : request_.states) {
        progress_.show(fmt::format("T {}, N {}: drawing inputs", tokens, state));
        const workload::Inputs inputs({batch, tokens, heads, head_dim, groups, state}, request_.dtype);
        add_rows(inputs, rows);
      }
    }
    progress_.clear();
    return rows;
  }

 private:
  /// One row per backend and schedule, each with the policy that its planner takes unless one was asked for.
  void add_rows(const workload::Inputs& inputs, std::vector<Row>& rows) {
    golden::GuardedOutputs outputs(inputs.arguments(), {}, true);
    const Problem problem = Problem::of(placed_for(request_.choice, outputs.arguments()));
    for (const Choice& choice : choices_for(problem)) rows.push_back(row_for(problem, choice, outputs));
  }

  std::vector<Choice> choices_for(const Problem& problem) const {
    std::vector<Choice> choices;
    for (const Candidate& candidate : candidates(problem)) {
      const Choice choice{candidate.backend, candidate.schedule, request_.choice.policy};
      const bool wanted = candidate.refusal.empty() &&
                          honours(request_.choice, candidate.backend, candidate.schedule, candidate.policy);
      if (wanted && std::find(choices.begin(), choices.end(), choice) == choices.end()) choices.push_back(choice);
    }
    // Nothing is left: planning as asked gives the library's own words for it.
    if (choices.empty()) choices.push_back(request_.choice);
    return choices;
  }

  Row row_for(const Problem& problem, const Choice& choice, golden::GuardedOutputs& outputs) {
    const Plan plan(problem, choice);
    progress_.show(fmt::format("T {}, N {}: {}", problem.tokens, problem.state, describe(plan)));
    outputs.poison();
    Execution execution(plan, outputs.arguments());
    require_sound(execution, outputs);
    const std::vector<double> seconds = timed_calls(execution, request_.repeat);

    Row row;
    row.tokens = problem.tokens;
    row.state = problem.state;
    row.backend = plan.backend();
    row.schedule = plan.schedule();
    row.policy = plan.policy();
    row.seconds = median(seconds);
    row.calls = static_cast<int>(seconds.size());
    row.tokens_per_second = static_cast<double>(problem.batch * problem.tokens) / row.seconds;
    row.workspace_bytes = plan.workspace_bytes();
    row.floor_seconds = floor_seconds(problem, rates_);
    return row;
  }

  const BenchRequest& request_;
  const Rates& rates_;
  Progress progress_;
};

// ----------------------------------------------------------------------------------------------------------- reporting

std::string device_name(const Rates& rates) { return fmt::format("{}, {} threads", rates.processor, rates.threads); }

std::string as_table(const BenchRequest& request, const Rates& rates, const std::vector<Row>& rows) {
  std::string text = fmt::format(
      "tilemamba {} on {}\nB {}, H {}, P {}, G {}, {}, with D, f32 initial and final states\n"
      "copy    {:.1f} GB/s: {}\nmatmul  {:.1f} GFLOP/s: {}\n"
      "floor   the larger of x, y, B, C, dt once through memory and the four products at these rates\n\n",
      version(), device_name(rates), batch, heads, head_dim, groups, name(request.dtype),
      rates.copy_bytes_per_second * 1e-9, rates.copy_method, rates.matmul_flop_per_second * 1e-9, rates.matmul_method);
  Table table({{"T", true},
               {"N", true},
               {"backend"},
               {"schedule"},
               {"policy"},
               {"ms", true},
               {"calls", true},
               {"tokens/s", true},
               {"workspace bytes", true},
               {"x floor", true}});
  const Row* last = nullptr;
  for (const Row& row : rows) {
    if (last != nullptr && (last->tokens != row.tokens || last->state != row.state)) table.add({});
    last = &row;
    table.add({fmt::format("{}", row.tokens), fmt::format("{}", row.state), row.backend,
               std::string(name(row.schedule)), row.policy, fmt::format("{:.2f}", row.seconds * 1e3),
               fmt::format("{}", row.calls), fmt::format("{:.0f}", row.tokens_per_second),
               fmt::format("{}", row.workspace_bytes), fmt::format("{:.2f}", row.seconds / row.floor_seconds)});
  }
  return text + table.text();
}

std::string as_json(const BenchRequest& request, const Rates& rates, const std::vector<Row>& rows) {
  json list = json::array();
  for (const Row& row : rows) {
    list.push_back({{"batch", batch},
                    {"tokens", row.tokens},
                    {"heads", heads},
                    {"head_dim", head_dim},
                    {"groups", groups},
                    {"state", row.state},
                    {"dtype", name(request.dtype)},
                    {"backend", row.backend},
                    {"schedule", name(row.schedule)},
                    {"policy", row.policy},
                    {"milliseconds", row.seconds * 1e3},
                    {"calls", row.calls},
                    {"tokens_per_second", row.tokens_per_second},
                    {"workspace_bytes", row.workspace_bytes},
                    {"floor_milliseconds", row.floor_seconds * 1e3},
                    {"times_floor", row.seconds / row.floor_seconds}});
  }
  const json measured = {{"threads", rates.threads},
                         {"copy_bytes_per_second", rates.copy_bytes_per_second},
                         {"copy_method", rates.copy_method},
                         {"matmul_flop_per_second", rates.matmul_flop_per_second},
                         {"matmul_method", rates.matmul_method}};
  const json whole = {{"device", device_name(rates)},
                      {"version", version()},
                      {"date", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))},
                      {"rates", measured},
                      {"rows", list}};
  return whole.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace

ExitCode bench(const BenchRequest& request) {
  const Rates rates = [] {
    Progress progress;
    progress.show("measuring what this device can do");
    return measure_cpu_rates();
  }();
  const std::vector<Row> rows = Bench(request, rates).rows();
  print(request.json ? as_json(request, rates, rows) : as_table(request, rates, rows));
  return ExitCode::success;
}

}  // namespace tilemamba::command_line
