// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tilemamba`: what can run here, one call from a file, calls with known answers, and times.
#include <exception>
#include <functional>
#include <map>
#include <new>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <tilemamba/tilemamba.hpp>

#include "core/command_line/commands.hpp"
#include "core/command_line/console.hpp"

namespace tilemamba::command_line {

ExitCode exit_code_of(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::unsupported:
    case ErrorCode::no_backend:
      return ExitCode::no_backend;
    // Every argument that a command passes on comes from a file.
    case ErrorCode::invalid_argument:
    case ErrorCode::io:
    case ErrorCode::damaged_file:
      return ExitCode::bad_file;
    case ErrorCode::out_of_memory:
    case ErrorCode::backend_failure:
      return ExitCode::failure;
  }
  return ExitCode::failure;
}

namespace {

constexpr const char* about = R"(The forward pass of the Mamba-2 chunked scan on this machine's devices.
See what can run, run a call from a safetensors file, check answers, and measure.)";

constexpr const char* footer = R"(Examples:
  tilemamba info                                  what can run here, and why the rest cannot
  tilemamba run call.safetensors -o answer.safetensors
  tilemamba check tests/golden                    known answers, by the planner's choice
  tilemamba check --all tests/golden              the same by every backend, schedule and policy
  tilemamba bench --dtype f32 --max-tokens 4096   times side by side
  tilemamba tune --budget 300                     which schedules and policies are the fastest here, for later plans
  tilemamba COMMAND --help                        more on each, with examples

Exit codes:
  0  done
  1  check: an answer is beyond its bar
  2  the command line is wrong
  3  no backend can do it here, or not as asked (info says why)
  4  a file cannot be read or written, is damaged, or its tensors do not go together
  5  it was started and failed: not enough memory, or the device or the backend failed

Environment:
  TILEMAMBA_BACKEND       the backend to use where --backend names none (check --all and bench then take all of them)
  TILEMAMBA_TUNING_CACHE  the file of tune; default: tilemamba/tuning.json in ${XDG_CACHE_HOME:-~/.cache}
  TILEMAMBA_UNPROVEN      1: backends that nobody has run on a device, once they have proved themselves
  TILEMAMBA_VERBOSE       dispatch: every candidate on stderr, with the reason for taking it or not)";

constexpr const char* info_footer =
    R"(With --json: {"version", "backends": [{"name", "can_run", "reason", "devices": [...], "proven"}]}

Examples:
  tilemamba info
  tilemamba info --json | jq -r '.backends[] | select(.can_run) | .name')";

constexpr const char* run_footer = R"(The input file holds the tensors
  x (B,T,H,P)  dt (B,T,H)  A (H)  B, C (B,T,G,N)                              required
  D (H) or (H,P)  z (B,T,H,P)  dt_bias (H)  initial_states (B,H,P,N)
  seq_idx (B,T) I32  cu_seqlens (S+1) I32                                     optional
and as metadata (all optional, all text) chunk_size, dt_softplus (true or false), dt_limit_lo, dt_limit_hi and
chunk_states_every (the K of chunk_states). x, B, C are F32, F16 or BF16. Any other tensor is an error, so that nothing is
ignored; out, final_states and chunk_states may be there, as in files with known answers, and are not read.

The output file holds out (B,T,H,P) in x's dtype, final_states (B,H,P,N) and, where asked for, chunk_states in F32; with cu_seqlens
there is a state per sequence. It appears whole or not at all, and the same input gives the same bytes.

Examples:
  tilemamba run call.safetensors -o answer.safetensors
  tilemamba run call.safetensors -o answer.safetensors --backend kokkos-serial --schedule staged)";

constexpr const char* check_footer =
    R"(Each file holds a call as `tilemamba run` takes it, the right answers (out, final_states, chunk_states in F32) and
how far an answer may be from them, relative to its norm (metadata bar_out, bar_block, bar_state). Shown is each error as a share of
its bar; above 1 it fails:
  out          over the whole tensor
  block        the worst 64 tokens of a head
  row          the worst token of a head: its error against 6 times the RMS of its block's and 2 bar_out of its own norm
  state        the worst head of a final state
  chunk_state  the worst head of a chunk state
Outputs and workspace are full of NaN before a call and have guard zones around them, which are looked at afterwards. A folder
stands for its *.safetensors. A file that cannot be checked does not keep the others from it.

With --json: {"version", "pass", "results": [{"file", "name", "backend", "schedule", "policy", "shares": {...},
"worst_at": {...}, "pass"}], "failures": [{"file", "message", "exit_code"}], "skipped": [{"backend", "reason"}]}; a share that is
not finite is null.

Examples:
  tilemamba check tests/golden/minimal.safetensors
  tilemamba check --all --backend kokkos tests/golden
  tilemamba check --schedule fused --json tests/golden > report.json)";

constexpr const char* bench_footer =
    R"(The published grid: B 4, H 8, P 64, G 1, T = 1024, 2048, ... and N = 64, 128, 256, 512, with D, f32 initial and final
states, and the published distribution of values. One row per backend and schedule: the median time, and how many times it is above
the floor, the time in which this device, at the rates measured first, could move x, y, B, C and dt once and do the four products
of the chunked form. The first call of each row is not timed, and its answer must be finite.

With --json: {"device", "version", "date", "rates", "rows"}

Examples:
  tilemamba bench
  tilemamba bench --dtype f32 --min-tokens 4096 --max-tokens 4096 --state-size 128
  tilemamba bench --backend kokkos-openmp --repeat 20 --json > times.json)";

constexpr const char* tune_footer =
    R"(Times every schedule and policy of a backend on one problem of each class (dtype, P, N, one group or more, ranges of T and of
sequences x heads), after a look at whether its answer is right, and keeps what is faster than the default by more than the noise.
Plans then follow it, in every process; nothing is timed anywhere else. models: prompts of 2048 tokens; grid: the published one to
T = 4096; a file has a line for each shape, B T H P G N, blanks between, and # before remarks.

The cache is the file that TILEMAMBA_TUNING_CACHE names, else tilemamba/tuning.json in ${XDG_CACHE_HOME:-~/.cache}. Answers are
valid for the device, the driver, the version of the library and the backend that they were found with; others are kept.

With --json: {"cache", "classes", "tuned": [{"device", "driver", "library", "backend", "problem", "schedule", "policy",
"milliseconds", "default_milliseconds", "is_default", "lost": [...]}]}; with --show: {"cache", "entries": [...]}, the same without
the last two.

Examples:
  tilemamba tune --budget 300
  tilemamba tune --shapes shapes.txt --dtype f32 --backend kokkos-openmp
  tilemamba tune --show)";

/// A check for CLI11: the empty string, or what is wrong.
std::string schedule_problem(const std::string& text) {
  try {
    static_cast<void>(schedule_named(text));
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

void add_backend(CLI::App& command, std::string& backend) {
  command.add_option("--backend", backend, "a family (kokkos) or a member (kokkos-openmp); info lists them")
      ->type_name("NAME");
}

void add_choice(CLI::App& command, Choice& choice) {
  add_backend(command, choice.backend);
  command
      .add_option_function<std::string>(
          "--schedule", [&choice](const std::string& text) { choice.schedule = schedule_named(text); },
          "staged, fused, recurrent or automatic")
      ->check(schedule_problem)
      ->type_name("NAME");
  command.add_option("--policy", choice.policy, "a tile configuration; check --all shows their names")
      ->type_name("NAME");
}

void add_dtype(CLI::App& command, DType& dtype) {
  static const std::map<std::string, DType> dtypes = {{"f32", DType::f32}, {"bf16", DType::bf16}, {"f16", DType::f16}};
  command
      .add_option_function<std::string>(
          "--dtype", [&dtype](const std::string& text) { dtype = dtypes.at(text); }, "f32, bf16 (default) or f16")
      ->check(CLI::IsMember(dtypes))
      ->type_name("TYPE");
}

using Action = std::function<ExitCode()>;

void add_info(CLI::App& app, InfoRequest& request, Action& action) {
  CLI::App& command = *app.add_subcommand("info", "List the backends, and whether each can run here");
  command.add_flag("--json", request.json, "as JSON");
  command.footer(info_footer);
  command.callback([&] { action = [&] { return info(request); }; });
}

void add_run(CLI::App& app, RunRequest& request, Action& action) {
  CLI::App& command = *app.add_subcommand("run", "Run one call from a file, and write its answer");
  command.add_option("input", request.input, "the call")->required()->type_name("IN.safetensors");
  command.add_option("-o,--output", request.output, "the answer")->required()->type_name("OUT.safetensors");
  add_choice(command, request.choice);
  command.footer(run_footer);
  command.callback([&] { action = [&] { return run(request); }; });
}

void add_check(CLI::App& app, CheckRequest& request, Action& action) {
  CLI::App& command = *app.add_subcommand("check", "Compare calls with their known answers");
  command.add_option("paths", request.paths, "files, or folders of them")->required()->type_name("FILE...");
  add_choice(command, request.choice);
  command.add_flag("--all", request.all, "every backend, schedule and policy that can run and fits the options given");
  command.add_flag("--json", request.json, "as JSON");
  command.footer(check_footer);
  command.callback([&] { action = [&] { return check(request); }; });
}

void add_bench(CLI::App& app, BenchRequest& request, Action& action) {
  CLI::App& command = *app.add_subcommand("bench", "Time the backends and schedules side by side");
  constexpr std::int64_t most_tokens = std::int64_t{1} << 20;
  command.add_option("--min-tokens", request.min_tokens, "the smallest T")
      ->check(CLI::Range(std::int64_t{1}, most_tokens))
      ->capture_default_str();
  command.add_option("--max-tokens", request.max_tokens, "the largest T; T doubles from the smallest")
      ->check(CLI::Range(std::int64_t{1}, most_tokens))
      ->capture_default_str();
  command.add_option("--state-size", request.states, "N, one or more")
      ->check(CLI::Range(1, 512))
      ->capture_default_str();
  add_dtype(command, request.dtype);
  command
      .add_option("--repeat", request.repeat,
                  "timed calls per row; default: five, fewer if they take more than a second")
      ->check(CLI::Range(1, 1'000'000));
  add_choice(command, request.choice);
  command.add_flag("--json", request.json, "as JSON");
  command.footer(bench_footer);
  command.callback([&] {
    if (request.min_tokens > request.max_tokens) {
      throw CLI::ValidationError(
          fmt::format("--min-tokens {} is above --max-tokens {}", request.min_tokens, request.max_tokens));
    }
    action = [&] { return bench(request); };
  });
}

void add_tune(CLI::App& app, TuneRequest& request, Action& action) {
  CLI::App& command = *app.add_subcommand("tune", "Find the fastest schedules and policies, and keep them for plans");
  command.add_option("--shapes", request.shapes, "models, grid, or a file of shapes")
      ->type_name("FILE|models|grid")
      ->capture_default_str();
  add_dtype(command, request.dtype);
  command.add_option("--budget", request.budget, "seconds for all of them; a class that was begun is ended")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  add_backend(command, request.backend);
  CLI::Option* const show = command.add_flag("--show", request.show, "show what the cache has; nothing is timed");
  command.add_flag("--clear", request.clear, "remove the cache; nothing is timed")->excludes(show);
  command.add_flag("--json", request.json, "as JSON");
  command.footer(tune_footer);
  command.callback([&] { action = [&] { return tune(request); }; });
}

/// What is wrong where no command was recognised: CLI11 would only say that one is required.
std::string command_problem(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() != static_cast<int>(CLI::ExitCodes::RequiredError)) return error.what();
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  const std::vector<std::string> unknown = app.remaining();
  return fmt::format("{}; the commands are {}",
                     unknown.empty() ? "a command is missing" : "unknown command \"" + unknown.front() + '"',
                     fmt::join(names, ", "));
}

/// Prints help or a version if that was asked for, else what is wrong with the command line.
ExitCode answer_parse_error(const CLI::App& app, const CLI::ParseError& error) {
  const bool asked_for = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success);
  if (asked_for) {
    std::ostringstream out;
    app.exit(error, out, out);
    print(out.str());
    return ExitCode::success;
  }
  const std::vector<CLI::App*> taken = app.get_subcommands();
  complain(taken.empty() ? command_problem(app, error) : error.what());
  complain(fmt::format("see tilemamba {}--help", taken.empty() ? "" : taken.front()->get_name() + " "));
  return ExitCode::usage;
}

ExitCode run_command_line(int count, char** words) {
  CLI::App app(about, "tilemamba");
  app.require_subcommand(1);
  app.footer(footer);
  app.set_version_flag("--version", "tilemamba " + std::string(version()));
  InfoRequest info_request;
  RunRequest run_request;
  CheckRequest check_request;
  BenchRequest bench_request;
  TuneRequest tune_request;
  Action action;
  add_info(app, info_request, action);
  add_run(app, run_request, action);
  add_check(app, check_request, action);
  add_bench(app, bench_request, action);
  add_tune(app, tune_request, action);
  try {
    app.parse(count, words);
  } catch (const CLI::ParseError& error) {
    return answer_parse_error(app, error);
  }
  return action();
}

ExitCode guarded(int count, char** words) {
  try {
    return run_command_line(count, words);
  } catch (const Error& error) {
    complain(error.what());
    return exit_code_of(error.code());
  } catch (const OutputClosed&) {
    return ExitCode::bad_file;  // quietly; not success, for what was asked may be half done
  } catch (const std::bad_alloc&) {
    complain("not enough memory");
  } catch (const std::exception& error) {
    complain(error.what());
  }
  return ExitCode::failure;
}

}  // namespace
}  // namespace tilemamba::command_line

int main(int count, char** words) { return static_cast<int>(tilemamba::command_line::guarded(count, words)); }
