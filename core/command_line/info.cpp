// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "core/command_line/commands.hpp"
#include "core/command_line/console.hpp"

namespace tilemamba::command_line {
namespace {

using json = nlohmann::ordered_json;

std::string as_json(const std::vector<BackendInfo>& found) {
  json list = json::array();
  for (const BackendInfo& backend : found) {
    list.push_back({{"name", backend.name},
                    {"can_run", backend.can_run},
                    {"reason", backend.reason},
                    {"devices", backend.devices},
                    {"proven", backend.proven}});
  }
  const json whole = {{"version", version()}, {"backends", list}};
  // A driver's message may be in any encoding.
  return whole.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string as_table(const std::vector<BackendInfo>& found) {
  Table table({{"backend"}, {"can run"}, {"devices"}, {"reason"}});
  for (const BackendInfo& backend : found) {
    table.add({backend.name, backend.can_run ? "yes" : "no", fmt::format("{}", fmt::join(backend.devices, "; ")),
               backend.reason});
  }
  return fmt::format("tilemamba {}\n\n{}", version(), table.text());
}

}  // namespace

ExitCode info(const InfoRequest& request) {
  const std::vector<BackendInfo> found = backends();
  print(request.json ? as_json(found) : as_table(found));
  return ExitCode::success;
}

}  // namespace tilemamba::command_line
