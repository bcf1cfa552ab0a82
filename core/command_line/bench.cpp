// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <optional>
#include <random>
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
#include "core/tile/scalar.hpp"

namespace tilemamba::command_line {
namespace {

using json = nlohmann::ordered_json;

// The published grid: these sizes throughout, T and N vary.
constexpr std::int64_t batch = 4;
constexpr std::int64_t heads = 8;
constexpr std::int64_t head_dim = 64;
constexpr std::int64_t groups = 1;

// ------------------------------------------------------------------------------------------------------------ problems

using Draw = double (*)(std::mt19937_64& random);

double normal(std::mt19937_64& random) { return std::normal_distribution<double>()(random); }
double silu_normal(std::mt19937_64& random) { return tile::silu(static_cast<float>(normal(random))); }
double softplus_normal(std::mt19937_64& random) { return tile::softplus(static_cast<float>(normal(random))); }
double decay_rate(std::mt19937_64& random) { return -std::uniform_real_distribution<double>(1, 16)(random); }

void store(DType dtype, float value, std::byte* to) {
  if (dtype == DType::f32) {
    std::memcpy(to, &value, sizeof value);
    return;
  }
  const std::uint16_t bits = dtype == DType::bf16 ? tile::to_bf16(value) : tile::to_f16(value);
  std::memcpy(to, &bits, sizeof bits);
}

/// The inputs of a published shape with the published distribution: x, B, C = silu(randn), dt = softplus(randn), A =
/// -U(1, 16).
class PublishedCall {
 public:
  PublishedCall(std::int64_t tokens, std::int64_t state, DType dtype) {
    arguments_.x = add(dtype, {batch, tokens, heads, head_dim}, silu_normal);
    arguments_.dt = add(dtype, {batch, tokens, heads}, softplus_normal);
    arguments_.A = add(DType::f32, {heads}, decay_rate);
    arguments_.B = add(dtype, {batch, tokens, groups, state}, silu_normal);
    arguments_.C = add(dtype, {batch, tokens, groups, state}, silu_normal);
    arguments_.D = add(DType::f32, {heads}, normal);
    arguments_.initial_states = add(DType::f32, {batch, heads, head_dim, state}, normal);
  }
  [[nodiscard]] const Arguments& arguments() const noexcept { return arguments_; }

 private:
  /// Draws as many values as make no visible period, and repeats them: drawing all of a large tensor takes longer than
  /// the benchmark.
  Tensor add(DType dtype, std::initializer_list<std::int64_t> shape, Draw draw) {
    constexpr std::size_t most_drawn = 65537;
    const Layout layout = dense(dtype, shape);
    std::size_t count = 1;
    for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
    const std::size_t size = size_of(dtype);
    std::byte* const data = memory_.emplace_back(count * size).data();
    const std::size_t drawn = std::min(count, most_drawn);
    for (std::size_t i = 0; i < drawn; ++i) store(dtype, static_cast<float>(draw(random_)), data + i * size);
    for (std::size_t i = drawn; i < count; i += drawn) {
      std::memcpy(data + i * size, data, std::min(drawn, count - i) * size);
    }
    return {layout, data};
  }

  std::mt19937_64 random_{20240531};
  std::vector<golden::GuardedMemory> memory_;
  Arguments arguments_;
};

bool all_finite(const Tensor& tensor) {
  std::size_t count = 1;
  for (int i = 0; i < tensor.rank; ++i) count *= static_cast<std::size_t>(tensor.shape[static_cast<std::size_t>(i)]);
  if (tensor.dtype == DType::f32) {
    const auto* values = static_cast<const float*>(tensor.data);
    return std::all_of(values, values + count, [](float value) { return std::isfinite(value); });
  }
  const auto* values = static_cast<const std::uint16_t*>(tensor.data);
  const unsigned exponent = tensor.dtype == DType::bf16 ? 0x7f80u : 0x7c00u;
  return std::all_of(values, values + count, [&](std::uint16_t bits) { return (bits & exponent) != exponent; });
}

// ----------------------------------------------------------------------------------------------------------- the floor

/// Seconds below which no implementation comes on a device of these rates: x, y, B, C and dt go through memory once,
/// and the four products of the chunked form are done with chunks of 128, the causal half of each. (Other chunks, the
/// states and the decays move it by a few per cent; it is a yardstick, the same for every rival.)
double floor_seconds(const Problem& problem, const Rates& rates) {
  const auto rows = static_cast<double>(problem.batch * problem.tokens);
  const auto H = static_cast<double>(problem.heads);
  const auto P = static_cast<double>(problem.head_dim);
  const auto G = static_cast<double>(problem.groups);
  const auto N = static_cast<double>(problem.state);
  const auto x_size = static_cast<double>(size_of(problem.x));
  const auto y_size = static_cast<double>(size_of(problem.y));
  const auto dt_size = static_cast<double>(size_of(problem.dt));
  const double bytes = rows * (H * P * (x_size + y_size) + G * N * 2 * x_size + H * dt_size);
  const double flop = rows * (H * (128 * P + 4 * P * N) + G * 128 * N);
  return std::max(bytes / rates.copy_bytes_per_second, flop / rates.matmul_flop_per_second);
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
  if (all_finite(arguments.y) && all_finite(*arguments.final_states)) return;
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
        const PublishedCall call(tokens, state, request_.dtype);
        add_rows(call, rows);
      }
    }
    progress_.clear();
    return rows;
  }

 private:
  /// One row per backend and schedule, each with the policy that its planner takes unless one was asked for.
  void add_rows(const PublishedCall& call, std::vector<Row>& rows) {
    golden::GuardedOutputs outputs(call.arguments(), {}, true);
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
