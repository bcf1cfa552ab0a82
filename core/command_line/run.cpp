// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/command_line/commands.hpp"
#include "core/command_line/console.hpp"
#include "core/command_line/execution.hpp"
#include "core/golden.hpp"
#include "core/safetensors.hpp"

namespace tilemamba::command_line {
namespace {

std::vector<safetensors::Named> named_outputs(const Arguments& arguments) {
  std::vector<safetensors::Named> named = {{"out", arguments.y}};
  if (arguments.final_states) named.push_back({"final_states", *arguments.final_states});
  if (arguments.chunk_states) named.push_back({"chunk_states", *arguments.chunk_states});
  return named;
}

/// How the answers were made, so that the file explains itself.
safetensors::Metadata origin(const std::string& name, const Plan& plan) {
  return {{"name", name},
          {"tilemamba_version", std::string(version())},
          {"backend", std::string(plan.backend())},
          {"schedule", std::string(tilemamba::name(plan.schedule()))},
          {"policy", std::string(plan.policy())}};
}

Plan plan_of(const golden::Case& call, const Arguments& arguments, const RunRequest& request) {
  try {
    validate(arguments, call.options);
    return Plan(Problem::of(placed_for(request.choice, arguments), call.options), request.choice);
  } catch (const Error& error) {
    throw about(request.input, error);
  }
}

}  // namespace

ExitCode run(const RunRequest& request) {
  Progress progress;
  progress.show("reading " + request.input.string());
  const golden::Case call = golden::load_case(request.input);
  progress.clear();
  for (const std::string& key : call.unknown_metadata) {
    complain(fmt::format("warning: {}: metadata {} is unknown and was not used", request.input.string(),
                         safetensors::in_quotes(key)));
  }
  const golden::GuardedOutputs outputs(call.arguments, call.options, true);
  const Arguments& arguments = outputs.arguments();
  Execution execution(plan_of(call, arguments, request), arguments);

  progress.show("running " + describe(execution.plan()));
  execution.run();
  execution.fetch();
  require_intact(execution, outputs);

  progress.show("writing " + request.output.string());
  safetensors::write(request.output, named_outputs(arguments), origin(call.name, execution.plan()));
  progress.clear();
  print(fmt::format("{}: {}\n", request.output.string(), describe(execution.plan())));
  return ExitCode::success;
}

}  // namespace tilemamba::command_line
