// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/command_line/commands.hpp"
#include "core/command_line/console.hpp"
#include "core/command_line/execution.hpp"
#include "core/golden.hpp"
#include "core/safetensors.hpp"

namespace tilemamba::command_line {
namespace {

using json = nlohmann::ordered_json;
namespace fs = std::filesystem;

/// One call by one plan, compared.
struct Result {
  std::string file;
  std::string name;
  std::string backend;
  std::string schedule;
  std::string policy;
  golden::Shares shares;
};

/// A file, or a plan for it, that could not be checked at all.
struct Failure {
  std::string file;
  std::string message;
  ErrorCode code;
};

/// A candidate that --all passed over, and why.
using Skipped = std::pair<std::string, std::string>;

struct Report {
  std::vector<Result> results;
  std::vector<Failure> failures;
  std::vector<Skipped> skipped;

  [[nodiscard]] ExitCode exit_code() const {
    // What could not be checked is worse than what was checked and found wrong: nothing is known of it.
    if (!failures.empty()) return exit_code_of(failures.front().code);
    const bool pass = std::all_of(results.begin(), results.end(), [](const Result& r) { return r.shares.pass(); });
    return pass ? ExitCode::success : ExitCode::check_failed;
  }
};

/// The shares of a result that it has, by the names that the table and the JSON give them.
std::vector<std::pair<std::string, const golden::Worst*>> named_shares(const golden::Shares& shares) {
  std::vector<std::pair<std::string, const golden::Worst*>> named = {
      {"out", &shares.out}, {"block", &shares.block}, {"row", &shares.row}};
  if (shares.state) named.emplace_back("state", &*shares.state);
  if (shares.chunk_state) named.emplace_back("chunk_state", &*shares.chunk_state);
  return named;
}

// ------------------------------------------------------------------------------------------------------- what to check

/// The files of a folder, by name. @throws Error io if there is none: checking nothing must not look like a pass.
std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().extension() == ".safetensors") files.push_back(entry->path());
  }
  if (error) throw Error(ErrorCode::io, fmt::format("{}: cannot be read: {}", folder.string(), error.message()));
  if (files.empty()) throw Error(ErrorCode::io, fmt::format("{}: no *.safetensors in this folder", folder.string()));
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<fs::path> files_of(const std::vector<fs::path>& paths) {
  std::vector<fs::path> files;
  for (const fs::path& path : paths) {
    std::error_code ignored;  // what cannot be looked at is reported when it is read
    const std::vector<fs::path> found = fs::is_directory(path, ignored) ? files_in(path) : std::vector{path};
    files.insert(files.end(), found.begin(), found.end());
  }
  return files;
}

/// What is to be run for a problem: the planner's choice, or all that `choice` leaves.
std::vector<Choice> choices_for(const Problem& problem, const CheckRequest& request, Report& report) {
  if (!request.all) return {request.choice};
  std::vector<Choice> choices;
  for (const Candidate& candidate : candidates(problem)) {
    if (candidate.refusal.empty()) {
      if (honours(request.choice, candidate.backend, candidate.schedule, candidate.policy)) {
        choices.push_back({candidate.backend, candidate.schedule, candidate.policy});
      }
      continue;
    }
    // A backend that cannot run here at all has no schedules to tell apart.
    const Choice any{request.choice.backend, Schedule::automatic, ""};
    const Skipped skipped{candidate.backend, candidate.refusal};
    const auto& known = report.skipped;
    const bool is_new = std::find(known.begin(), known.end(), skipped) == known.end();
    if (is_new && honours(any, candidate.backend, candidate.schedule, "")) report.skipped.push_back(skipped);
  }
  // Nothing is left: planning as asked gives the library's own words for it.
  if (choices.empty()) choices.push_back(request.choice);
  return choices;
}

// ------------------------------------------------------------------------------------------------------------ checking

/// A check of one backend that another one passed would be worth nothing.
Plan plan_exactly(const Problem& problem, const Choice& choice) {
  Plan plan(problem, choice);
  if (honours(choice, plan.backend(), plan.schedule(), plan.policy())) return plan;
  throw Error(ErrorCode::backend_failure,
              fmt::format("asked for \"{}\", {}, \"{}\", but the plan is {}", choice.backend, name(choice.schedule),
                          choice.policy, describe(plan)));
}

golden::Shares shares_of(const golden::GoldenCase& golden_case, golden::GuardedOutputs& outputs, const Plan& plan) {
  outputs.poison();
  Execution execution(plan, outputs.arguments());
  execution.run();
  execution.fetch();
  require_intact(execution, outputs);
  return golden::compare(plan.problem(), golden::gather(outputs.arguments()), golden_case.right, golden_case.bars);
}

class Checker {
 public:
  Checker(const CheckRequest& request, std::vector<fs::path> files) : request_(request), files_(std::move(files)) {
    for (const fs::path& file : files_) {
      name_width_ = std::max(name_width_, static_cast<int>(file.stem().string().size()));
    }
  }

  Report check() {
    for (std::size_t i = 0; i < files_.size(); ++i) {
      position_ = fmt::format("{} of {}: ", i + 1, files_.size());
      guarded(files_[i], [&] { check_file(files_[i]); });
    }
    progress_.clear();
    return std::move(report_);
  }

 private:
  /// A file or a plan that fails is told at once, and the others still get their turn.
  void guarded(const fs::path& file, const std::function<void()>& body) {
    try {
      body();
    } catch (const Error& error) {
      progress_.clear();
      const Error named = about(file, error);
      complain(named.what());
      report_.failures.push_back({file.string(), named.what(), named.code()});
    }
  }

  void check_file(const fs::path& file) {
    progress_.show(position_ + "reading " + file.string());
    const golden::GoldenCase golden_case = golden::load_golden_case(file);
    for (const std::string& key : golden_case.unknown_metadata) {
      progress_.clear();
      complain(fmt::format("warning: {}: metadata {} is unknown and was not used", file.string(),
                           safetensors::in_quotes(key)));
    }
    golden::GuardedOutputs outputs(golden_case.arguments, golden_case.options,
                                   golden_case.right.final_states.has_value());
    validate(outputs.arguments(), golden_case.options);
    const Arguments placed = placed_for(request_.choice, outputs.arguments());
    const Problem problem = Problem::of(placed, golden_case.options);
    for (const Choice& choice : choices_for(problem, request_, report_)) {
      guarded(file, [&] {
        const Plan plan = plan_exactly(problem, choice);
        progress_.show(fmt::format("{}{} on {}", position_, golden_case.name, describe(plan)));
        add({file.string(), golden_case.name, std::string(plan.backend()), std::string(name(plan.schedule())),
             std::string(plan.policy()), shares_of(golden_case, outputs, plan)});
      });
    }
  }

  void add(Result result) {
    progress_.clear();
    if (!request_.json) print_row(result);
    report_.results.push_back(std::move(result));
  }

  void print_row(const Result& result) {
    const golden::Shares& shares = result.shares;
    if (report_.results.empty()) {
      print("each error as a share of its bar: at most 1 passes\n");
      print(line({"case", "backend", "schedule", "policy", "out", "block", "row", "state", "chunk_state", ""}));
    }
    const auto cell = [](const std::optional<golden::Worst>& worst) {
      return worst ? fmt::format("{:.3f}", worst->value) : "-";
    };
    print(line({result.name, result.backend, result.schedule, result.policy, cell(shares.out), cell(shares.block),
                cell(shares.row), cell(shares.state), cell(shares.chunk_state), shares.pass() ? "" : "FAILED"}));
    for (const auto& [part, worst] : named_shares(shares)) {
      if (!(worst->value <= 1)) print(fmt::format("    {} {:.3f}: {}\n", part, worst->value, worst->place));
    }
  }

  /// A line of the table. It is written while the rest is still being computed, so the widths are fixed beforehand.
  [[nodiscard]] std::string line(const std::array<std::string, 10>& cells) const {
    const std::array<int, 10> widths = {-name_width_, -14, -8, -12, 7, 7, 7, 7, 11, -6};  // below zero: to the left
    std::string text;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      text +=
          widths[i] < 0 ? fmt::format("{:<{}}  ", cells[i], -widths[i]) : fmt::format("{:>{}}  ", cells[i], widths[i]);
    }
    text.resize(text.find_last_not_of(' ') + 1);
    return text + "\n";
  }

  const CheckRequest& request_;
  std::vector<fs::path> files_;
  std::string position_;
  int name_width_ = 4;
  Progress progress_;
  Report report_;
};

// ----------------------------------------------------------------------------------------------------------- reporting

void print_summary(const Report& report) {
  for (const auto& [backend, reason] : report.skipped) print(fmt::format("skipped {}: {}\n", backend, reason));
  const auto worst =
      std::max_element(report.results.begin(), report.results.end(),
                       [](const Result& a, const Result& b) { return a.shares.worst() < b.shares.worst(); });
  if (worst == report.results.end()) return;
  const auto failed =
      std::count_if(report.results.begin(), report.results.end(), [](const Result& r) { return !r.shares.pass(); });
  print(fmt::format("{} runs, {} beyond their bars{}; worst share {:.3f} ({} on {}, {}, {})\n", report.results.size(),
                    failed,
                    report.failures.empty() ? "" : fmt::format(", {} could not be checked", report.failures.size()),
                    worst->shares.worst(), worst->name, worst->backend, worst->schedule, worst->policy));
}

json json_of(const Result& result) {
  json shares = json::object();
  json places = json::object();
  for (const auto& [part, worst] : named_shares(result.shares)) {
    // JSON has no infinity: null stands for what is not finite.
    shares[part] = std::isfinite(worst->value) ? json(worst->value) : json();
    places[part] = worst->place;
  }
  return {{"file", result.file},         {"name", result.name},         {"backend", result.backend},
          {"schedule", result.schedule}, {"policy", result.policy},     {"shares", shares},
          {"worst_at", places},          {"pass", result.shares.pass()}};
}

std::string as_json(const Report& report) {
  json results = json::array();
  json failures = json::array();
  json skipped = json::array();
  for (const Result& result : report.results) results.push_back(json_of(result));
  for (const Failure& failure : report.failures) {
    failures.push_back(
        {{"file", failure.file}, {"message", failure.message}, {"exit_code", exit_code_of(failure.code)}});
  }
  for (const auto& [backend, reason] : report.skipped) skipped.push_back({{"backend", backend}, {"reason", reason}});
  const json whole = {{"version", version()},
                      {"pass", report.exit_code() == ExitCode::success},
                      {"results", results},
                      {"failures", failures},
                      {"skipped", skipped}};
  return whole.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace

ExitCode check(const CheckRequest& request) {
  const Report report = Checker(request, files_of(request.paths)).check();
  if (request.json) {
    print(as_json(report));
  } else {
    print_summary(report);
  }
  return report.exit_code();
}

}  // namespace tilemamba::command_line
