// SPDX-License-Identifier: Apache-2.0
/// @file
/// The `tilemamba` executable as a user or a script meets it: what it prints, the files it writes and its exit codes.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "core/golden.hpp"
#include "core/safetensors.hpp"

namespace tilemamba::command_line {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int success = 0;
constexpr int check_failed = 1;
constexpr int usage = 2;
constexpr int no_backend = 3;
constexpr int bad_file = 4;

std::string bytes_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Outcome {
  int exit_code;
  std::string out;
  std::string err;
};

std::string golden(const std::string& name) { return std::string(TILEMAMBA_TEST_GOLDEN) + "/" + name + ".safetensors"; }

class CommandLine : public testing::Test {
 protected:
  CommandLine() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / (std::string("tilemamba_command_line_") + test->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~CommandLine() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  /// Runs the executable; words are quoted for the shell, whose redirections keep the two outputs apart.
  Outcome tilemamba(const std::vector<std::string>& words, const std::string& redirect_out = "") const {
    std::string command = TILEMAMBA_TEST_EMULATOR " '" TILEMAMBA_EXECUTABLE "'";
    for (const std::string& word : words) command += " '" + word + "'";
    const std::string out = redirect_out.empty() ? path("stdout") : redirect_out;
    const int status = std::system((command + " >'" + out + "' 2>'" + path("stderr") + "'").c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, redirect_out.empty() ? bytes_of(out) : "",
            bytes_of(path("stderr"))};
  }

  /// A copy of a shipped case with some bytes of a tensor overwritten.
  std::string spoiled(const std::string& name, const std::string& tensor, const std::string& bytes) const {
    std::string file = bytes_of(golden(name));
    const auto contents = safetensors::parse(std::as_bytes(std::span(file)), name);
    const auto* begin = reinterpret_cast<const char*>(contents.find(tensor)->bytes.data());
    file.replace(static_cast<std::size_t>(begin - file.data()), bytes.size(), bytes);
    return written(name + ".safetensors", file);
  }
  /// A shipped case, its tensors and metadata as a test wants them.
  template <class Change>
  std::string changed(const std::string& name, Change&& change) const {
    const safetensors::File file = safetensors::File::read(golden(name));
    std::vector<safetensors::Named> tensors;
    for (const auto& entry : file.contents().tensors) {
      tensors.push_back({entry.name, {safetensors::layout_of(entry, name), entry.bytes.data()}});
    }
    safetensors::Metadata metadata = file.contents().metadata;
    change(tensors, metadata);
    safetensors::write(path("changed.safetensors"), tensors, metadata);
    return path("changed.safetensors");
  }
  std::string written(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }

 private:
  fs::path folder_;
};

void expect_words(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words)
    EXPECT_NE(text.find(word), std::string::npos) << "no \"" << word << "\" in: " << text;
}

std::set<std::string> backends_that_can_run(const json& info) {
  std::set<std::string> names;
  for (const json& backend : info["backends"]) {
    if (backend["can_run"]) names.insert(backend["name"]);
  }
  return names;
}

// ------------------------------------------------------------------------------------------------ help and wrong usage

TEST_F(CommandLine, HelpTeaches) {
  const Outcome help = tilemamba({"--help"});
  EXPECT_EQ(help.exit_code, success);
  EXPECT_EQ(help.err, "");
  expect_words(help.out, {"info", "run", "check", "bench", "tune", "Examples:", "Exit codes:", "TILEMAMBA_BACKEND"});
  for (const char* command : {"info", "run", "check", "bench", "tune"}) {
    const Outcome more = tilemamba({command, "--help"});
    EXPECT_EQ(more.exit_code, success);
    expect_words(more.out, {"Examples:", std::string("tilemamba ") + command});
  }
}

TEST_F(CommandLine, VersionIsTheLibrarys) {
  EXPECT_EQ(tilemamba({"--version"}).out, "tilemamba " + std::string(version()) + "\n");
}

TEST_F(CommandLine, WrongUsageIsNamed) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> wrong = {
      {{}, "info, run, check, bench"},
      {{"frobnicate"}, "\"frobnicate\"; the commands are info, run, check, bench"},
      {{"info", "--colour"}, "--colour"},
      {{"run", "a"}, "--output"},
      {{"run", "-o", "a"}, "input"},
      {{"check"}, "paths"},
      {{"check", "a", "--schedule", "sideways"}, "sideways"},
      {{"bench", "--dtype", "f8"}, "f8"},
      {{"bench", "--max-tokens", "many"}, "many"},
      {{"bench", "--max-tokens", "-1"}, "-1"},
      {{"bench", "--min-tokens", "64", "--max-tokens", "32"}, "64"},
      {{"bench", "--state-size", "513"}, "513"},
      {{"bench", "--repeat", "0"}, "0"}};
  for (const auto& [words, word] : wrong) {
    const Outcome outcome = tilemamba(words);
    EXPECT_EQ(outcome.exit_code, usage);
    EXPECT_EQ(outcome.out, "");
    expect_words(outcome.err, {"tilemamba: ", word, "--help"});
  }
}

TEST_F(CommandLine, OutputThatCannotBeWrittenIsNoSuccess) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  const Outcome outcome = tilemamba({"info"}, "/dev/full");
  EXPECT_EQ(outcome.exit_code, bad_file);
  expect_words(outcome.err, {"stdout cannot be written"});
}

// ---------------------------------------------------------------------------------------------------------------- info

TEST_F(CommandLine, InfoAsJson) {
  const Outcome outcome = tilemamba({"info", "--json"});
  ASSERT_EQ(outcome.exit_code, success);
  const json info = json::parse(outcome.out);
  EXPECT_EQ(info.size(), 2u);
  EXPECT_EQ(info.at("version"), version());
  ASSERT_FALSE(info.at("backends").empty());
  for (const json& backend : info["backends"]) {
    EXPECT_EQ(backend.size(), 5u);
    EXPECT_TRUE(backend.at("name").is_string());
    EXPECT_TRUE(backend.at("reason").is_string());
    EXPECT_TRUE(backend.at("devices").is_array());
    EXPECT_TRUE(backend.at("proven").is_boolean());
    EXPECT_TRUE(backend.at("can_run").get<bool>() || backend["reason"] != "") << backend["name"];
  }
}

TEST_F(CommandLine, InfoAsTable) {
  const json info = json::parse(tilemamba({"info", "--json"}).out);
  const Outcome outcome = tilemamba({"info"});
  EXPECT_EQ(outcome.exit_code, success);
  for (const json& backend : info["backends"]) expect_words(outcome.out, {backend["name"]});
}

// ----------------------------------------------------------------------------------------------------------------- run

TEST_F(CommandLine, RunWritesTheAnswers) {
  for (const char* name : {"minimal", "varlen_empty_sequence", "chunk_states", "mild_fp32"}) {
    SCOPED_TRACE(name);
    const Outcome outcome = tilemamba({"run", golden(name), "-o", path("out.safetensors")});
    ASSERT_EQ(outcome.exit_code, success) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    const golden::GoldenCase right = golden::load_golden_case(golden(name));
    const safetensors::File file = safetensors::File::read(path("out.safetensors"));
    const safetensors::Contents& contents = file.contents();
    EXPECT_EQ(contents.tensors.size(), right.right.chunk_states ? 3u : 2u);
    EXPECT_EQ(contents.metadata.at("tilemamba_version"), version());

    // What was written, put in the place of a call's outputs, is within the bars.
    const golden::GuardedOutputs outputs(right.arguments, right.options, true);
    const Arguments& arguments = outputs.arguments();
    const auto take = [&](const char* tensor, const MutableTensor& place) {
      const safetensors::Entry* entry = contents.find(tensor);
      ASSERT_NE(entry, nullptr) << tensor;
      const Layout layout = safetensors::layout_of(*entry, name);
      EXPECT_EQ(layout.dtype, place.dtype) << tensor;
      ASSERT_EQ(layout.shape, place.shape) << tensor;
      std::memcpy(place.data, entry->bytes.data(), entry->bytes.size());
    };
    take("out", arguments.y);
    take("final_states", *arguments.final_states);
    if (arguments.chunk_states) take("chunk_states", *arguments.chunk_states);
    EXPECT_LE(golden::compare(Problem::of(arguments, right.options), golden::gather(arguments), right.right, right.bars)
                  .worst(),
              1);
  }
}

TEST_F(CommandLine, RunTwiceGivesTheSameBytes) {
  ASSERT_EQ(tilemamba({"run", golden("zero_dt"), "-o", path("a")}).exit_code, success);
  ASSERT_EQ(tilemamba({"run", golden("zero_dt"), "-o", path("b")}).exit_code, success);
  EXPECT_EQ(bytes_of(path("a")), bytes_of(path("b")));
}

TEST_F(CommandLine, RunTakesTheBackendAndScheduleAskedFor) {
  const json info = json::parse(tilemamba({"info", "--json"}).out);
  for (const std::string& backend : backends_that_can_run(info)) {
    for (const char* schedule : {"staged", "fused"}) {
      const Outcome outcome =
          tilemamba({"run", golden("minimal"), "-o", path("out"), "--backend", backend, "--schedule", schedule});
      ASSERT_EQ(outcome.exit_code, success) << outcome.err;
      const safetensors::File file = safetensors::File::read(path("out"));
      EXPECT_EQ(file.contents().metadata.at("backend"), backend);
      EXPECT_EQ(file.contents().metadata.at("schedule"), schedule);
    }
  }
}

TEST_F(CommandLine, RunNeedsNoAnswersAndNoMetadata) {
  const std::string file = changed("minimal", [](auto& tensors, auto& metadata) {
    std::erase_if(tensors, [](const auto& named) { return named.name == "out" || named.name == "final_states"; });
    metadata.clear();
  });
  const Outcome outcome = tilemamba({"run", file, "-o", path("out")});
  EXPECT_EQ(outcome.exit_code, success) << outcome.err;
}

TEST_F(CommandLine, RunRefusesTensorsItDoesNotKnow) {
  const std::string file = changed("minimal", [](auto& tensors, auto&) {
    tensors.push_back(tensors.front());
    tensors.back().name = "x_gate";
  });
  const Outcome outcome = tilemamba({"run", file, "-o", path("out")});
  EXPECT_EQ(outcome.exit_code, bad_file);
  expect_words(outcome.err, {file, "\"x_gate\"", "dt_bias"});
  EXPECT_FALSE(fs::exists(path("out")));
}

TEST_F(CommandLine, RunWarnsOfMetadataItDoesNotKnow) {
  const std::string file = changed("minimal", [](auto&, auto& metadata) { metadata["dt_limit_high"] = "1"; });
  const Outcome outcome = tilemamba({"run", file, "-o", path("out")});
  EXPECT_EQ(outcome.exit_code, success);
  expect_words(outcome.err, {"warning", "\"dt_limit_high\""});
}

TEST_F(CommandLine, RunNamesWhatDoesNotGoTogether) {
  const std::string reversed("\x05\0\0\0\x03\0\0\0", 8);
  const Outcome order = tilemamba({"run", spoiled("varlen_empty_sequence", "cu_seqlens", reversed), "-o", path("out")});
  EXPECT_EQ(order.exit_code, bad_file);
  expect_words(order.err, {"varlen_empty_sequence.safetensors", "cu_seqlens[0] = 5"});
  const Outcome interval =
      tilemamba({"run", changed("chunk_states", [](auto&, auto& metadata) { metadata["chunk_states_every"] = "100"; }),
                 "-o", path("out")});
  EXPECT_EQ(interval.exit_code, bad_file);
  expect_words(interval.err, {"changed.safetensors", "100", "multiple of 16"});
  EXPECT_FALSE(fs::exists(path("out")));
}

TEST_F(CommandLine, RunNamesPlacesThatCannotBeWritten) {
  const Outcome outcome = tilemamba({"run", golden("minimal"), "-o", path("absent/out")});
  EXPECT_EQ(outcome.exit_code, bad_file);
  expect_words(outcome.err, {"absent/out", "cannot be written"});
}

TEST_F(CommandLine, UnknownBackendsAreNamedWithTheValidOnes) {
  for (const char* command : {"run", "check", "bench"}) {
    std::vector<std::string> words = {command, "--backend", "abacus"};
    if (std::string(command) != "bench") words.push_back(golden("minimal"));
    if (std::string(command) == "run") words.insert(words.end(), {"-o", path("out")});
    const Outcome outcome = tilemamba(words);
    EXPECT_EQ(outcome.exit_code, no_backend) << command;
    expect_words(outcome.err, {"abacus", "valid"});
  }
}

// --------------------------------------------------------------------------------------------------------------- check

TEST_F(CommandLine, CheckPassesEveryShippedCase) {
  const Outcome outcome = tilemamba({"check", TILEMAMBA_TEST_GOLDEN, "--json"});
  ASSERT_EQ(outcome.exit_code, success) << outcome.err << outcome.out;
  const json report = json::parse(outcome.out);
  EXPECT_TRUE(report.at("pass"));
  EXPECT_TRUE(report.at("failures").empty());
  std::set<std::string> names;
  for (const json& result : report.at("results")) {
    names.insert(result.at("name"));
    EXPECT_TRUE(result.at("pass"));
    for (const char* part : {"out", "block", "row", "state"}) {
      EXPECT_GE(result.at("shares").at(part), 0);
      EXPECT_LE(result.at("shares").at(part), 1);
    }
    EXPECT_EQ(result["shares"].contains("chunk_state"), result["name"] == "chunk_states");
  }
  for (const auto& entry : fs::directory_iterator(TILEMAMBA_TEST_GOLDEN)) {
    EXPECT_TRUE(entry.path().extension() != ".safetensors" || names.contains(entry.path().stem())) << entry.path();
  }
}

TEST_F(CommandLine, CheckAllRunsEveryBackendAndSchedule) {
  const Outcome outcome = tilemamba({"check", "--all", "--json", golden("minimal")});
  ASSERT_EQ(outcome.exit_code, success) << outcome.err << outcome.out;
  const json report = json::parse(outcome.out);
  std::set<std::pair<std::string, std::string>> ran;
  std::set<std::string> different;
  for (const json& result : report.at("results")) {
    ran.emplace(result["backend"], result["schedule"]);
    different.insert(result["backend"].get<std::string>() + "," + result["schedule"].get<std::string>() + "," +
                     result["policy"].get<std::string>());
  }
  EXPECT_EQ(different.size(), report["results"].size());
  for (const std::string& backend : backends_that_can_run(json::parse(tilemamba({"info", "--json"}).out))) {
    EXPECT_TRUE(ran.contains({backend, "staged"})) << backend;
    EXPECT_TRUE(ran.contains({backend, "fused"})) << backend;
  }
}

TEST_F(CommandLine, CheckAllStaysWithinWhatIsAskedFor) {
  const auto backends = backends_that_can_run(json::parse(tilemamba({"info", "--json"}).out));
  ASSERT_FALSE(backends.empty());
  const Outcome outcome = tilemamba(
      {"check", "--all", "--backend", *backends.begin(), "--schedule", "staged", "--json", golden("minimal")});
  ASSERT_EQ(outcome.exit_code, success) << outcome.err;
  const json report = json::parse(outcome.out);
  for (const json& result : report.at("results")) {
    EXPECT_EQ(result["backend"], *backends.begin());
    EXPECT_EQ(result["schedule"], "staged");
  }
}

TEST_F(CommandLine, CheckSeesOneWrongValue) {
  // Exponent bits: the right answer becomes another number by far.
  const std::string file = spoiled("ragged_t1", "out", std::string("\0\0\x80\x41", 4));
  const Outcome outcome = tilemamba({"check", file, golden("minimal")});
  EXPECT_EQ(outcome.exit_code, check_failed);
  expect_words(outcome.out, {"FAILED", "batch 0, head 0, tokens 0-0", "2 runs, 1 beyond their bars"});
  const json report = json::parse(tilemamba({"check", "--json", file}).out);
  EXPECT_FALSE(report["pass"]);
  EXPECT_FALSE(report["results"][0]["pass"]);
}

TEST_F(CommandLine, CheckSeesAnAnswerThatIsNotFinite) {
  const std::string file = spoiled("ragged_t1", "final_states", "\xff\xff\xff\xff");
  const Outcome outcome = tilemamba({"check", "--json", file});
  EXPECT_EQ(outcome.exit_code, check_failed);
  EXPECT_TRUE(json::parse(outcome.out)["results"][0]["shares"]["state"].is_null());
}

TEST_F(CommandLine, CheckNamesDamagedFilesAndGoesOn) {
  const std::string whole = bytes_of(golden("minimal"));
  const std::string cut = written("cut.safetensors", whole.substr(0, whole.size() - 1));
  const Outcome outcome = tilemamba({"check", cut, path("absent"), golden("minimal")});
  EXPECT_EQ(outcome.exit_code, bad_file);
  expect_words(outcome.err, {cut, "cut short", path("absent"), "cannot be read"});
  expect_words(outcome.out, {"minimal", "2 could not be checked"});
  const json report = json::parse(tilemamba({"check", cut, golden("minimal"), "--json"}).out);
  EXPECT_FALSE(report["pass"]);
  EXPECT_EQ(report["failures"][0]["exit_code"], bad_file);
  EXPECT_EQ(report["results"].size(), 1u);
}

TEST_F(CommandLine, CheckRefusesAFolderWithoutCases) {
  fs::create_directory(path("empty"));
  const Outcome outcome = tilemamba({"check", path("empty")});
  EXPECT_EQ(outcome.exit_code, bad_file);
  expect_words(outcome.err, {"no *.safetensors"});
}

TEST_F(CommandLine, CheckNeedsAnswersAndBars) {
  const std::string file = changed("minimal", [](auto&, auto& metadata) { metadata.erase("bar_block"); });
  const Outcome outcome = tilemamba({"check", file});
  EXPECT_EQ(outcome.exit_code, bad_file);
  expect_words(outcome.err, {"bar_block"});
}

// --------------------------------------------------------------------------------------------------------------- bench

TEST_F(CommandLine, BenchMeasures) {
  const std::vector<std::string> small = {"bench", "--min-tokens", "32", "--max-tokens", "64", "--state-size", "16",
                                          "32",    "--repeat",     "1",  "--dtype",      "f32"};
  std::vector<std::string> words = small;
  words.emplace_back("--json");
  const Outcome outcome = tilemamba(words);
  ASSERT_EQ(outcome.exit_code, success) << outcome.err;
  const json report = json::parse(outcome.out);
  EXPECT_EQ(report.at("version"), version());
  EXPECT_EQ(report.at("date").get<std::string>().size(), std::strlen("2026-01-01T00:00:00Z"));
  EXPECT_NE(report.at("device"), "");
  EXPECT_GT(report.at("rates").at("copy_bytes_per_second"), 0);
  EXPECT_GT(report.at("rates").at("matmul_flop_per_second"), 0);
  std::set<std::pair<std::string, std::string>> ran;
  std::set<std::pair<int, int>> sizes;
  for (const json& row : report.at("rows")) {
    ran.emplace(row.at("backend"), row.at("schedule"));
    sizes.emplace(row.at("tokens"), row.at("state"));
    EXPECT_EQ(row.at("dtype"), "f32");
    EXPECT_EQ(row.at("calls"), 1);
    EXPECT_GT(row.at("milliseconds"), 0);
    EXPECT_GE(row.at("workspace_bytes"), 0);
    EXPECT_NEAR(row.at("tokens_per_second").get<double>() * row.at("milliseconds").get<double>() * 1e-3,
                row.at("batch").get<double>() * row.at("tokens").get<double>(), 1e-6);
    EXPECT_NEAR(row.at("times_floor").get<double>(),
                row.at("milliseconds").get<double>() / row.at("floor_milliseconds").get<double>(), 1e-6);
  }
  EXPECT_EQ(sizes, (std::set<std::pair<int, int>>{{32, 16}, {32, 32}, {64, 16}, {64, 32}}));
  for (const std::string& backend : backends_that_can_run(json::parse(tilemamba({"info", "--json"}).out))) {
    EXPECT_TRUE(ran.contains({backend, "staged"})) << backend;
    EXPECT_TRUE(ran.contains({backend, "fused"})) << backend;
  }
  const Outcome table = tilemamba(small);
  EXPECT_EQ(table.exit_code, success);
  expect_words(table.out, {"GB/s", "GFLOP/s", "x floor", "workspace bytes"});
}

/// The floor, recomputed from the JSON: x, y, B, C and dt once through memory, the four products with chunks of 128.
TEST_F(CommandLine, BenchFloorIsThePublishedFormula) {
  for (const auto& [dtype, size] : std::vector<std::pair<std::string, double>>{{"f32", 4}, {"bf16", 2}}) {
    const Outcome outcome = tilemamba({"bench", "--min-tokens", "32", "--max-tokens", "32", "--state-size", "64",
                                       "--repeat", "1", "--dtype", dtype, "--json"});
    ASSERT_EQ(outcome.exit_code, success) << outcome.err;
    const json report = json::parse(outcome.out);
    const double rows = 4 * 32;
    const double H = 8, P = 64, G = 1, N = 64;
    const double memory =
        rows * size * (H * P * 2 + G * N * 2 + H) / report["rates"]["copy_bytes_per_second"].get<double>();
    const double tensor =
        rows * (H * (128 * P + 4 * P * N) + G * 128 * N) / report["rates"]["matmul_flop_per_second"].get<double>();
    EXPECT_NEAR(report["rows"][0]["floor_milliseconds"].get<double>() / (1e3 * std::max(memory, tensor)), 1, 1e-9);
  }
}

// ---------------------------------------------------------------------------------------------------------------- tune

/// Runs with a cache in the test's folder.
class CommandLineTune : public CommandLine {
 protected:
  CommandLineTune() { setenv("TILEMAMBA_TUNING_CACHE", path("tuning.json").c_str(), 1); }
};

TEST_F(CommandLineTune, TunesShowsAndClears) {
  const std::string shapes =
      written("shapes.txt", "# B T H P G N\n1 32 2 16 1 16\n\n1 100 2 16 1 16  # another class\n");
  for (const std::string& backend : backends_that_can_run(json::parse(tilemamba({"info", "--json"}).out))) {
    const Outcome outcome =
        tilemamba({"tune", "--shapes", shapes, "--dtype", "f32", "--budget", "5", "--backend", backend, "--json"});
    ASSERT_EQ(outcome.exit_code, success) << outcome.err;
    const json report = json::parse(outcome.out);
    EXPECT_EQ(report.at("cache"), path("tuning.json"));
    EXPECT_EQ(report.at("classes"), 2);
    ASSERT_EQ(report.at("tuned").size(), 2u);
    std::size_t kept = 0;
    for (const json& tuned : report["tuned"]) {
      EXPECT_EQ(tuned.at("backend"), backend);
      EXPECT_EQ(tuned.at("library"), version());
      EXPECT_GT(tuned.at("milliseconds"), 0);
      if (!tuned.at("is_default")) ++kept;
    }
    const json shown = json::parse(tilemamba({"tune", "--show", "--json"}).out);
    EXPECT_EQ(std::count_if(shown.at("entries").begin(), shown.at("entries").end(),
                            [&](const json& entry) { return entry.at("backend") == backend; }),
              kept);
    EXPECT_EQ(tilemamba({"tune", "--show"}).exit_code, success);
  }
  EXPECT_EQ(tilemamba({"tune", "--clear"}).exit_code, success);
  EXPECT_FALSE(fs::exists(path("tuning.json")));
  expect_words(tilemamba({"tune", "--clear"}).out, {"there is none"});
}

TEST_F(CommandLineTune, SaysWhereTheBudgetEnded) {
  const Outcome outcome = tilemamba({"tune", "--shapes", "grid", "--budget", "0"});
  EXPECT_EQ(outcome.exit_code, success);
  expect_words(outcome.err, {"0 of", "--budget"});
}

TEST_F(CommandLineTune, NamesWhatIsWrong) {
  for (const auto& [text, word] : std::vector<std::pair<std::string, std::string>>{
           {"1 2 3 4 5\n", "line 1"},
           {"1 64 2 16 1 16\n1 64 2 16 1 16 7\n", "line 2"},
           {"1 64 2 16 1 x\n", "B T H P G N"},
           {"# nothing\n", "no shape"},
           {"1 64 3 16 2 16\n", "heads"},
       }) {
    const Outcome outcome = tilemamba({"tune", "--shapes", written("shapes.txt", text)});
    EXPECT_EQ(outcome.exit_code, bad_file) << text;
    expect_words(outcome.err, {word});
  }
  expect_words(tilemamba({"tune", "--shapes", path("absent")}).err, {"absent", "models", "grid"});
  EXPECT_EQ(tilemamba({"tune", "--show", "--clear"}).exit_code, usage);
  EXPECT_EQ(tilemamba({"tune", "--backend", "abacus"}).exit_code, no_backend);
  written("tuning.json", "{");
  const Outcome shown = tilemamba({"tune", "--show"});
  EXPECT_EQ(shown.exit_code, bad_file);
  expect_words(shown.err, {"tuning.json", "no JSON", "tune --clear"});
  EXPECT_EQ(tilemamba({"tune"}).exit_code, bad_file);
  EXPECT_EQ(bytes_of(path("tuning.json")), "{");
}

}  // namespace
}  // namespace tilemamba::command_line
