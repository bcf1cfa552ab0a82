// SPDX-License-Identifier: Apache-2.0
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tilemamba/tuning.hpp>

#include "core/command_line/commands.hpp"
#include "core/command_line/console.hpp"
#include "core/mirror.hpp"
#include "core/shapes.hpp"
#include "core/workload.hpp"

namespace tilemamba::command_line {
namespace {

using json = nlohmann::ordered_json;
using workload::Shape;

/// The shapes of a file: B T H P G N on each line, # before remarks.
std::vector<Shape> shapes_of_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw Error(ErrorCode::io, fmt::format("{}: cannot be read; --shapes takes models, grid or a file", path));
  std::vector<Shape> shapes;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    if ((words >> std::ws).eof()) continue;
    Shape shape;
    words >> shape.batch >> shape.tokens >> shape.heads >> shape.head_dim >> shape.groups >> shape.state;
    if (!words || !(words >> std::ws).eof()) {
      throw Error(ErrorCode::damaged_file,
                  fmt::format("{}: line {} is no shape; it must have six numbers, B T H P G N", path, number));
    }
    shapes.push_back(shape);
  }
  if (shapes.empty()) throw Error(ErrorCode::damaged_file, fmt::format("{}: there is no shape in it", path));
  return shapes;
}

std::vector<Shape> shapes_of(const std::string& what, const Device& device) {
  if (what != "models" && what != "grid") return shapes_of_file(what);
  const std::int64_t most_tokens = device.kind == DeviceKind::cpu ? 4096 : 262144;  // a CPU would take hours
  std::vector<Shape> shapes;
  for (const workload::Row& row : workload::rows(most_tokens)) {
    if (row.set == what) shapes.push_back(row.shape);
  }
  return shapes;
}

std::vector<Problem> problems_of(const TuneRequest& request) {
  const Device device = home_of(request.backend);
  std::vector<Problem> problems;
  for (const Shape& shape : shapes_of(request.shapes, device)) {
    problems.push_back(workload::problem_of(shape, request.dtype));
    problems.back().device = device;
  }
  return problems;
}

json as_json(const TuningRecord& record) {
  return {{"device", record.device},
          {"driver", record.driver},
          {"library", record.library},
          {"backend", record.backend},
          {"problem", record.problem},
          {"schedule", record.schedule},
          {"policy", record.policy},
          {"milliseconds", record.milliseconds},
          {"default_milliseconds", record.default_milliseconds}};
}

std::string dumped(const json& whole) { return whole.dump(2, ' ', false, json::error_handler_t::replace) + "\n"; }

std::vector<std::string> cells(const TuningRecord& record) {
  return {record.backend,
          record.problem,
          record.schedule,
          record.policy,
          fmt::format("{:.4g}", record.milliseconds),
          fmt::format("{:.4g}", record.default_milliseconds)};
}

std::vector<Table::Column> columns() {
  return {{"backend"}, {"class"}, {"schedule"}, {"policy"}, {"ms", true}, {"default's ms", true}};
}

ExitCode show(const std::string& cache, bool wants_json) {
  const std::vector<TuningRecord> records = tuning_records(cache);
  if (wants_json) {
    json list = json::array();
    for (const TuningRecord& record : records) list.push_back(as_json(record));
    print(dumped({{"cache", cache}, {"entries", list}}));
    return ExitCode::success;
  }
  std::vector<Table::Column> with_device = columns();
  with_device.insert(with_device.end(), {{"library"}, {"device"}, {"driver"}});
  Table table(with_device);
  for (const TuningRecord& record : records) {
    std::vector<std::string> row = cells(record);
    row.insert(row.end(), {record.library, record.device, record.driver});
    table.add(row);
  }
  print(fmt::format("{}\n\n{}", cache, table.text()));
  return ExitCode::success;
}

std::string report(const std::string& cache, const std::vector<Tuned>& found, std::size_t classes, bool wants_json) {
  if (wants_json) {
    json list = json::array();
    for (const Tuned& tuned : found) {
      json entry = as_json(tuned.record);
      entry["is_default"] = tuned.is_default;
      entry["lost"] = tuned.lost;
      list.push_back(entry);
    }
    return dumped({{"cache", cache}, {"classes", classes}, {"tuned", list}});
  }
  std::vector<Table::Column> with_note = columns();
  with_note.push_back({""});
  Table table(with_note);
  for (const Tuned& tuned : found) {
    std::vector<std::string> row = cells(tuned.record);
    row.emplace_back(tuned.is_default ? "the default stays" : "");
    table.add(row);
  }
  return fmt::format("{}\n\n{}", cache, table.text());
}

}  // namespace

ExitCode tune(const TuneRequest& request) {
  const std::string cache = tuning_cache();
  if (cache.empty()) {
    throw Error(ErrorCode::io,
                "there is no tuning cache: none of TILEMAMBA_TUNING_CACHE, XDG_CACHE_HOME and HOME is set");
  }
  if (request.show) return show(cache, request.json);
  if (request.clear) {
    const bool removed = clear_tuning(cache);
    if (!request.json) print(fmt::format("{}: {}\n", cache, removed ? "removed" : "there is none"));
    return ExitCode::success;
  }
  const std::vector<Problem> problems = problems_of(request);
  std::set<std::string> classes;
  for (const Problem& problem : problems) classes.insert(problem_class(problem));
  Progress progress;
  const std::vector<Tuned> found = tilemamba::tune(
      problems, {request.backend, request.budget, {}, [&](const std::string& what) { progress.show(what); }});
  progress.clear();
  print(report(cache, found, classes.size(), request.json));
  if (found.size() < classes.size()) {
    complain(fmt::format("{} of {} classes: the budget of {} s was used up; --budget gives more", found.size(),
                         classes.size(), request.budget));
  }
  return ExitCode::success;
}

}  // namespace tilemamba::command_line
