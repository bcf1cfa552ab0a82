// SPDX-License-Identifier: Apache-2.0
/// @file
/// The subcommands of `tilemamba`. Each takes what was asked on the command line and gives the exit code of the
/// process; what goes wrong is thrown as `Error`, and `exit_code_of` says with which code the process then ends.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <tilemamba/tilemamba.hpp>

namespace tilemamba::command_line {

/// Documented in --help; scripts rely on them.
enum class ExitCode : int {
  success = 0,
  check_failed = 1,  ///< an answer is beyond its bar
  usage = 2,
  no_backend = 3,  ///< nothing can run it here, or not as asked
  bad_file = 4,
  failure = 5,  ///< it was started and failed: memory, a device
};

/// A failed plan or call is told apart from a file whose tensors do not go together by the error's code.
[[nodiscard]] ExitCode exit_code_of(ErrorCode code) noexcept;

/// `tilemamba info`: the backends of this build, and whether they can run here.
struct InfoRequest {
  bool json = false;
};
[[nodiscard]] ExitCode info(const InfoRequest& request);

/// `tilemamba run`: one call from a file into a file.
struct RunRequest {
  std::filesystem::path input;
  std::filesystem::path output;
  Choice choice;
};
[[nodiscard]] ExitCode run(const RunRequest& request);

/// `tilemamba check`: calls with known answers.
struct CheckRequest {
  std::vector<std::filesystem::path> paths;  ///< files, and folders that stand for their *.safetensors
  Choice choice;
  bool all = false;  ///< every candidate that `choice` leaves, not just the planner's
  bool json = false;
};
[[nodiscard]] ExitCode check(const CheckRequest& request);

/// `tilemamba bench`: times on the published shapes.
struct BenchRequest {
  std::int64_t min_tokens = 1024;
  std::int64_t max_tokens = 1024;
  std::vector<std::int64_t> states = {64, 128, 256, 512};
  DType dtype = DType::bf16;
  Choice choice;
  int repeat = 0;  ///< timed calls per row; 0: up to five, fewer where they take longer than a second
  bool json = false;
};
[[nodiscard]] ExitCode bench(const BenchRequest& request);

/// `tilemamba tune`: the fastest schedule and policy for classes of problems, into the tuning cache.
struct TuneRequest {
  std::string shapes = "models";  ///< models, grid or a file
  DType dtype = DType::bf16;
  double budget = 60;  ///< seconds
  std::string backend;
  bool show = false;   ///< what the cache has, and nothing else
  bool clear = false;  ///< removes the cache, and nothing else
  bool json = false;
};
[[nodiscard]] ExitCode tune(const TuneRequest& request);

}  // namespace tilemamba::command_line
