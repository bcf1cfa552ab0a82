// SPDX-License-Identifier: Apache-2.0
/// @file
/// Running a plan on tensors that are in host memory.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <tilemamba/tilemamba.hpp>

#include "core/golden.hpp"
#include "core/mirror.hpp"

namespace tilemamba::command_line {

/// A plan, a call's tensors where the plan's device can reach them, and a workspace of its own. This is the one place
/// that knows how bytes get to a device and back; for a CPU the host's tensors are used as they are.
class Execution {
 public:
  /// @param host the call, outputs included, in host memory; what it points to must outlive this object.
  /// @throws Error out_of_memory; backend_failure.
  Execution(Plan plan, const Arguments& host);

  [[nodiscard]] const Plan& plan() const noexcept { return plan_; }
  /// Executes the plan once and returns when it is done.
  void run();
  /// Brings the outputs to where the host has them.
  void fetch() { mirror_.fetch(); }
  /// Whether nothing was written beside the workspace, nor, on a device, beside a tensor.
  [[nodiscard]] bool workspace_intact() const { return mirror_.intact(); }

 private:
  Plan plan_;
  Mirror mirror_;  ///< its workspace is full of NaN at first: a kernel that reads what it has not written shows it
};

/// `arguments` said to be where a plan for `choice` wants them: on a backend's device if one is chosen that has its
/// own.
[[nodiscard]] Arguments placed_for(const Choice& choice, const Arguments& arguments);

/// Whether a backend, schedule and policy are what `choice` asks for: what it leaves empty may be anything, and a
/// family stands for its members.
[[nodiscard]] bool honours(const Choice& choice, std::string_view backend, Schedule schedule, std::string_view policy);

/// What a plan decided, for messages: "kokkos-openmp, fused, q64".
[[nodiscard]] std::string describe(const Plan& plan);

/// The same error, with the file's name in front unless it is there.
[[nodiscard]] Error about(const std::filesystem::path& file, const Error& error);

/// @throws Error backend_failure naming the outputs, or the workspace, beside which something was written.
void require_intact(const Execution& execution, const golden::GuardedOutputs& outputs);

}  // namespace tilemamba::command_line
