// SPDX-License-Identifier: Apache-2.0
#include "core/command_line/execution.hpp"

#include <utility>

#include <fmt/format.h>

namespace tilemamba::command_line {

Execution::Execution(Plan plan, const Arguments& host) : plan_(std::move(plan)), mirror_(plan_, host) {}

void Execution::run() {
  plan_.execute(mirror_.arguments(), mirror_.workspace(), plan_.workspace_bytes());
  mirror_.wait();
}

Arguments placed_for(const Choice& choice, const Arguments& arguments) {
  return placed_on(home_of(choice.backend), arguments);
}

bool honours(const Choice& choice, std::string_view backend, Schedule schedule, std::string_view policy) {
  // A family's members are named after it: kokkos and kokkos-openmp.
  return (choice.backend.empty() || backend == choice.backend || backend.starts_with(choice.backend + "-")) &&
         (choice.schedule == Schedule::automatic || schedule == choice.schedule) &&
         (choice.policy.empty() || policy == choice.policy);
}

std::string describe(const Plan& plan) {
  return fmt::format("{}, {}, {}", plan.backend(), name(plan.schedule()), plan.policy());
}

Error about(const std::filesystem::path& file, const Error& error) {
  const std::string_view message = error.what();
  if (message.starts_with(file.string() + ":")) return error;
  return {error.code(), fmt::format("{}: {}", file.string(), message)};
}

void require_intact(const Execution& execution, const golden::GuardedOutputs& outputs) {
  std::string damage = outputs.damage();
  if (!execution.workspace_intact()) damage += damage.empty() ? "the workspace" : ", the workspace";
  if (damage.empty()) return;
  throw Error(ErrorCode::backend_failure, fmt::format("{} wrote outside of the memory it was given, beside {}",
                                                      describe(execution.plan()), damage));
}

}  // namespace tilemamba::command_line
