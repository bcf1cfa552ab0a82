// SPDX-License-Identifier: Apache-2.0
/// @file
/// Stored calls with stored answers: those shipped beside this file, and a whole folder where TILEMAMBA_GOLDEN_DIR
/// names one.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <set>

#include "core/reference.hpp"
#include "tests/backend_test.hpp"

namespace tilemamba::test {
namespace {

/// The cases' files; one that is in both folders counts once.
const std::vector<std::filesystem::path>& files() {
  static const std::vector<std::filesystem::path> all = [] {
    std::vector<std::filesystem::path> found;
    std::set<std::string> names;
    const char* const more = std::getenv("TILEMAMBA_GOLDEN_DIR");
    for (const char* const folder : {TILEMAMBA_TEST_GOLDEN, more}) {
      if (folder == nullptr || *folder == '\0') continue;
      // A build that was moved has no cases beside it.
      if (folder != more && more != nullptr && !std::filesystem::is_directory(folder)) continue;
      for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        if (entry.path().extension() == ".safetensors" && names.insert(entry.path().filename()).second)
          found.push_back(entry.path());
      }
    }
    std::sort(found.begin(), found.end());
    return found;
  }();
  return all;
}

/// Outputs as the files have them: y in x's type, states in float.
golden::GuardedOutputs outputs_of(const golden::GoldenCase& golden) {
  return golden::GuardedOutputs(golden.arguments, golden.options, golden.right.final_states.has_value());
}

TEST(Golden, FilesAreThere) { EXPECT_GE(files().size(), 5u); }

/// The reference of the random tests and the stored answers were computed by different programs from the same
/// definition: what is left is the rounding of the stored answers to float, 2^-25 to 2^-24 of each.
TEST(Golden, RecurrenceGivesTheStoredAnswers) {
  for (const auto& file : files()) {
    SCOPED_TRACE(file.filename().string());
    const golden::GoldenCase golden = golden::load_golden_case(file);
    const auto outputs = outputs_of(golden);
    const golden::Answers mine =
        answers_of(reference::recurrence(outputs.arguments(), golden.options), outputs.arguments());
    const golden::Errors errors = golden::measure(Problem::of(outputs.arguments(), golden.options), mine, golden.right);
    constexpr double rounding = 1.0 / (1 << 24);
    EXPECT_LE(errors.block.value, rounding) << errors.block.place;
    for (const auto& state : {errors.state, errors.chunk_state}) {
      EXPECT_LE(state.value_or(golden::Worst{}).value, rounding) << state.value_or(golden::Worst{}).place;
    }
  }
}

/// So do the bars: the same-precision form of the random tests costs what that of the stored bars cost. 3 %: a score on
/// the edge between two values of the input type may fall either way with the order of a float sum, and a state has few
/// large entries.
TEST(Golden, ChunkedFormGivesTheStoredBars) {
  for (const auto& file : files()) {
    SCOPED_TRACE(file.filename().string());
    const golden::GoldenCase golden = golden::load_golden_case(file);
    const auto outputs = outputs_of(golden);
    const golden::Answers narrow =
        answers_of(reference::chunked(outputs.arguments(), golden.options, 64), outputs.arguments());
    const Problem problem = Problem::of(outputs.arguments(), golden.options);
    const golden::Bars bars =
        golden::bars_from(golden::measure(problem, narrow, golden.right), golden.arguments.x.dtype);
    EXPECT_NEAR(bars.out / golden.bars.out, 1.0, 0.03);
    EXPECT_NEAR(bars.block / golden.bars.block, 1.0, 0.03);
    EXPECT_NEAR(bars.state / golden.bars.state, 1.0, 0.03);
  }
}

class GoldenOnBackend : public BackendTest {};

TEST_P(GoldenOnBackend, WithinBars) {
  double worst = 0;
  std::string where = "none";
  for (const auto& file : files()) {
    SCOPED_TRACE(file.filename().string());
    const golden::GoldenCase golden = golden::load_golden_case(file);
    const auto outputs = outputs_of(golden);
    if (!run(outputs.arguments(), golden.options)) continue;
    EXPECT_EQ(outputs.damage(), "");
    const double share = expect_within_bars(outputs.arguments(), golden.options, {golden.right, golden.bars});
    if (share > worst) worst = share, where = file.stem().string();
  }
  RecordProperty("worst_share_of_a_bar", std::to_string(worst));
  std::cout << "worst share of a bar on " << GetParam() << ": " << worst << " (" << where << ")\n";
}

TILEMAMBA_ON_EVERY_TARGET(GoldenOnBackend);

}  // namespace
}  // namespace tilemamba::test
