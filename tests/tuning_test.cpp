// SPDX-License-Identifier: Apache-2.0
/// @file
/// Classes of problems; the tuning cache, damaged or shared by many; what plans take from it; and the search.
#include "core/tuning.hpp"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "core/mirror.hpp"
#include "core/registry.hpp"
#include "core/tune.hpp"
#include "tests/backend_test.hpp"

namespace tilemamba::test {
namespace {

namespace fs = std::filesystem;

std::string bytes_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// A folder of its own, and the cache in it, which plans follow.
class Tuning : public testing::Test {
 protected:
  Tuning() : folder_(fs::path(testing::TempDir()) / ("tilemamba_tuning_" + std::to_string(getpid()))) {
    fs::remove_all(folder_);
    static const bool once = [] {
      registry().add({"tunable", "tunable", TILEMAMBA_TEST_MODULES "/tilemamba_backend_tunable.so"});
      return true;
    }();
    (void)once;
    tuning::forget(cache_);  // of the test before
  }
  ~Tuning() override { fs::remove_all(folder_); }

  static Problem plain(std::int64_t tokens = 64) {
    Spec spec;
    spec.tokens = tokens;
    return Call(spec).problem();
  }
  /// An answer for a backend, valid here.
  static TuningRecord answer(const std::string& member, const Problem& problem, Schedule schedule,
                             const std::string& policy) {
    TuningRecord record = *tuning::place_of(*registry().named(member).front()->backend, problem);
    record.schedule = name(schedule);
    record.policy = policy;
    record.milliseconds = 1;
    record.default_milliseconds = 2;
    return record;
  }
  void write(const std::string& text) const {
    fs::create_directories(folder_);
    std::ofstream(cache_, std::ios::binary | std::ios::trunc) << text;
    tuning::forget(cache_);
  }
  /// What stderr gets while two plans are made; both must be made.
  std::string said_of_two_plans() const {
    testing::internal::CaptureStderr();
    for (int i = 0; i < 2; ++i) EXPECT_NO_THROW(Plan(plain(), {"scalar", Schedule::automatic, ""}));
    return testing::internal::GetCapturedStderr();
  }

  const fs::path folder_;
  const std::string cache_ = (folder_ / "tuning.json").string();
  const Variable variable_{"TILEMAMBA_TUNING_CACHE", cache_.c_str()};
  const Variable backend_{"TILEMAMBA_BACKEND", nullptr};
};

// ------------------------------------------------------------------------------------------------------------- classes

TEST_F(Tuning, ClassIsDocumented) {
  Problem problem = plain();
  problem.x = DType::bf16;
  problem.batch = 2, problem.tokens = 1000, problem.heads = 16, problem.head_dim = 64, problem.state = 128;
  EXPECT_EQ(problem_class(problem), "bf16 P64 N128 G1 T257-1024 BH17-64");
  problem.groups = 8, problem.seq_idx = true, problem.options.allow_tf32 = true, problem.chunk_states = DType::f32;
  EXPECT_EQ(problem_class(problem), "bf16 P64 N128 G>1 T257-1024 BH17-64 documents chunk_states tf32");
  problem = plain();
  problem.packed_sequences = 10, problem.tokens = 161;  // the mean is rounded up
  EXPECT_EQ(problem_class(problem), "f32 P16 N16 G1 T17-64 BH17-64 packed");
  problem.packed_sequences = 0, problem.tokens = 0;
  EXPECT_EQ(problem_class(problem), "f32 P16 N16 G1 T0-16 BH0-4 packed");
}

TEST_F(Tuning, BucketsHaveNoGaps) {
  std::vector<std::string> in_order;
  Problem problem = plain();
  for (std::int64_t tokens = 0; tokens <= 20000; ++tokens) {
    problem.tokens = tokens;
    const std::string text = problem_class(problem);
    if (in_order.empty() || in_order.back() != text) in_order.push_back(text);
  }
  EXPECT_EQ(in_order.size(), 7u);
  EXPECT_EQ(std::set<std::string>(in_order.begin(), in_order.end()).size(), 7u);
  Problem largest = plain();
  largest.batch = 1 << 24, largest.tokens = (std::int64_t{1} << 31) - 1, largest.heads = 1 << 16;
  EXPECT_EQ(problem_class(largest), "f32 P16 N16 G1 T16385- BH257-");
}

TEST_F(Tuning, TwentyLengthsAreAFewClasses) {
  std::set<std::string> classes;
  for (std::int64_t tokens = 100; tokens <= 2000; tokens += 100) {
    Problem problem = plain();
    problem.tokens = tokens;
    classes.insert(problem_class(problem));
  }
  EXPECT_EQ(classes.size(), 3u);
}

TEST_F(Tuning, WhatMattersIsInTheClass) {
  const std::string before = problem_class(plain());
  const auto changes = std::vector<void (*)(Problem&)>{[](Problem& p) { p.x = DType::f16; },
                                                       [](Problem& p) { p.head_dim = 17; },
                                                       [](Problem& p) { p.state = 17; },
                                                       [](Problem& p) { p.groups = 2; },
                                                       [](Problem& p) { p.batch = 100; },
                                                       [](Problem& p) { p.seq_idx = true; },
                                                       [](Problem& p) { p.packed_sequences = 1; },
                                                       [](Problem& p) { p.chunk_states = DType::f32; },
                                                       [](Problem& p) { p.options.allow_tf32 = true; }};
  for (const auto& change : changes) {
    Problem problem = plain();
    change(problem);
    EXPECT_NE(problem_class(problem), before);
  }
}

// --------------------------------------------------------------------------------------------------------------
// judging

TEST(Winner, DefaultStaysUnlessTheGainExceedsTheNoise) {
  using tuning::winner;
  const std::vector<double> quiet = {1.00, 1.01, 1.02, 1.00, 1.01};
  const std::vector<double> noisy = {1.0, 1.5, 0.9, 2.0, 1.1};
  const auto scaled = [](std::vector<double> times, double factor) {
    for (double& time : times) time *= factor;
    return times;
  };
  EXPECT_EQ(winner({quiet}), 0u);
  EXPECT_EQ(winner({quiet, quiet}), 0u);
  EXPECT_EQ(winner({quiet, scaled(quiet, 0.99)}), 0u) << "a gain of 1 %";
  EXPECT_EQ(winner({quiet, scaled(quiet, 0.9)}), 1u) << "a gain of 10 % where the noise is 2 %";
  EXPECT_EQ(winner({noisy, scaled(noisy, 0.9)}), 0u) << "a gain of 10 % where the noise is 50 %";
  EXPECT_EQ(winner({noisy, scaled(noisy, 0.4)}), 1u);
  EXPECT_EQ(winner({quiet, scaled(quiet, 1.1)}), 0u);
  EXPECT_EQ(winner({quiet, scaled(quiet, 0.8), scaled(quiet, 0.5), scaled(quiet, 0.7)}), 2u) << "the fastest";
  EXPECT_EQ(winner({quiet, {}, {0.5, 0.5}, {0.6, 0.6, 0.6}}), 3u) << "two times prove nothing";
  EXPECT_EQ(winner({{1, 1}, {0.5, 0.5, 0.5}}), 0u);
  EXPECT_EQ(winner({{1.0, 2.0, 2.0, 2.0, 2.0}, {1.2, 1.2, 1.2, 1.2, 1.2}}), 0u)
      << "a default that was disturbed: once it was faster";
}

TEST(Winner, HardlyEverOfChanceAlone) {
  Random random(7);
  int wins = 0;
  for (int draw = 0; draw < 1000; ++draw) {
    std::vector<std::vector<double>> seconds(5);
    for (auto& times : seconds) {
      for (int i = 0; i < 15; ++i) times.push_back(1 + 0.2 * random.uniform());
    }
    if (tuning::winner(seconds) != 0) ++wins;
  }
  EXPECT_LE(wins, 10);  // of 1000, with four challengers that are all the same
}

// ------------------------------------------------------------------------------------------------------------ the file

TEST_F(Tuning, WhatIsStoredIsFound) {
  EXPECT_EQ(tuning_cache(), cache_);
  EXPECT_TRUE(tuning_records(cache_).empty());
  const TuningRecord first = answer("scalar", plain(64), Schedule::fused, "q24");
  const TuningRecord second = answer("scalar", plain(128), Schedule::staged, "q64");
  tuning::store(cache_, first);
  tuning::store(cache_, second);
  EXPECT_EQ(tuning_records(cache_), (std::vector{first, second}));
  TuningRecord better = first;
  better.policy = "q16";
  tuning::store(cache_, better);
  EXPECT_EQ(tuning_records(cache_), (std::vector{second, better}));
  better.policy = "";
  tuning::store(cache_, better);
  EXPECT_EQ(tuning_records(cache_), std::vector{second});
  EXPECT_TRUE(clear_tuning(cache_));
  EXPECT_FALSE(clear_tuning(cache_));
  EXPECT_FALSE(fs::exists(cache_));
}

/// What others wrote, or will write, is kept: entries and fields that this version does not know.
constexpr const char* foreign =
    R"({"format": "tilemamba tuning", "version": 1, "note": {"by": ["\u00fc", 1.5, null]}, "entries": [
  7, {"device": "an abacus"},
  {"device": "another", "driver": "9", "library": "9.9", "backend": "b", "problem": "p", "schedule": "s", "policy": "q",
   "milliseconds": 1, "default_milliseconds": 2, "colour": "red"},
  {"device": 3, "driver": "", "library": "", "backend": "", "problem": "", "schedule": "", "policy": "", "milliseconds": "1",
   "default_milliseconds": 1}]})";

TEST_F(Tuning, ForeignEntriesAreKept) {
  write(foreign);
  const TuningRecord mine = answer("scalar", plain(), Schedule::fused, "q24");
  tuning::store(cache_, mine);
  const std::vector<TuningRecord> records = tuning_records(cache_);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].device, "another");
  EXPECT_EQ(records[1], mine);
  for (const char* part :
       {"\"note\"", "\xc3\xbc", "1.5", "null", "7,", "an abacus", "\"colour\": \"red\"", "\"device\": 3"}) {
    EXPECT_NE(bytes_of(cache_).find(part), std::string::npos) << part;
  }
}

TEST_F(Tuning, DamagedFilesAreIgnoredWithAWord) {
  const auto with_entries = [](const std::string& entries) {
    return R"({"format": "tilemamba tuning", "version": 1, "entries": )" + entries + "}";
  };
  const std::string deep(100000, '[');
  for (const auto& [text, word] : std::vector<std::pair<std::string, std::string>>{
           {"", "no JSON"},
           {"\x89PNG\r\n\x1a\n", "no JSON"},
           {"[]", "format"},
           {"{}", "format"},
           {R"({"format": "tilemamba tuning", "version": 2, "entries": []})", "another version"},
           {R"({"format": "tilemamba tuning", "version": "1", "entries": []})", "another version"},
           {R"({"format": "tilemamba tuning", "version": 1})", "entries"},
           {with_entries("{}"), "entries"},
           {with_entries("[\"\xff\xfe\"]"), "no JSON"},
           {with_entries("[1e999]"), "out of range"},
           {with_entries(deep), "levels"},
           {with_entries("[\"" + std::string(std::size_t{1} << 20, 'x') + "\"]"), "bytes"},
       }) {
    SCOPED_TRACE(text.substr(0, 80));
    write(text);
    const std::string said = said_of_two_plans();
    EXPECT_NE(said.find(word), std::string::npos) << said;
    EXPECT_NE(said.find("tuning.json"), std::string::npos) << said;
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << "once: " << said;
    EXPECT_TRUE(std::all_of(said.begin(), said.end(), [](char c) { return c == '\n' || (c >= ' ' && c < 0x7f); }));
    // Nobody's work is written over.
    expect_error(ErrorCode::damaged_file, {word, "tune --clear"},
                 [&] { tuning::store(cache_, answer("scalar", plain(), Schedule::fused, "q24")); });
    expect_error(ErrorCode::damaged_file, {word}, [&] { (void)tune({plain()}, {"scalar", 0.01, {}, {}}); });
    EXPECT_EQ(bytes_of(cache_), text);
  }
}

TEST_F(Tuning, EveryTruncationIsIgnoredWithAWord) {
  const TuningRecord record = answer("scalar", plain(), Schedule::fused, "q24");
  const std::string whole = tuning::merged(foreign, record);
  for (std::size_t length = 0; length + 2 < whole.size(); ++length) {  // without its last line end it is whole
    expect_error(ErrorCode::damaged_file, {}, [&] { (void)tuning::parse(whole.substr(0, length)); });
    if (length % 97 != 0) continue;
    write(whole.substr(0, length));
    EXPECT_NE(said_of_two_plans(), "");
  }
}

/// One byte in another's place: either it is noticed, or what is found is well formed.
TEST_F(Tuning, EveryFlippedByteGivesAnErrorOrRecords) {
  const std::string whole = tuning::merged(foreign, answer("scalar", plain(), Schedule::fused, "q24"));
  Random random(3);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const char byte : {static_cast<char>(random.bits()), '"', '{', '9', '\0'}) {
      std::string text = whole;
      text[at] = byte;
      try {
        for (const TuningRecord& record : tuning::parse(text)) (void)tuning::merged(text, record);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::damaged_file);
      }
    }
  }
}

TEST_F(Tuning, FilesThatAreNoFiles) {
  fs::create_directories(cache_);
  EXPECT_NE(said_of_two_plans().find("no regular file"), std::string::npos);
  fs::remove_all(folder_);
  fs::create_directories(folder_);
  ASSERT_EQ(mkfifo(cache_.c_str(), 0600), 0);  // nobody writes to it: that would take forever
  tuning::forget(cache_);
  EXPECT_NE(said_of_two_plans().find("no regular file"), std::string::npos);
  const Variable nowhere("TILEMAMBA_TUNING_CACHE", "/proc/none/tuning.json");
  EXPECT_EQ(said_of_two_plans(), "");  // there is none
  expect_error(ErrorCode::io, {"/proc/none"}, [&] { (void)tune({plain()}, {"scalar", 0.01, {}, {}}); });
}

TEST_F(Tuning, ALinkToTheFileStaysOne) {
  fs::create_directories(folder_ / "elsewhere");
  const fs::path target = folder_ / "elsewhere" / "real.json";
  std::ofstream(target) << foreign;
  fs::create_symlink(target, folder_ / "tuning.json");
  tuning::store(cache_, answer("scalar", plain(), Schedule::fused, "q24"));
  EXPECT_TRUE(fs::is_symlink(folder_ / "tuning.json"));
  EXPECT_EQ(tuning_records(target.string()).size(), 2u);
}

/// Eight processes tune and change one file at once, and nothing is lost; who reads it meanwhile always finds a whole
/// one.
TEST_F(Tuning, ManyProcessesLoseNothing) {
  constexpr int processes = 8;
  const int rounds = static_cast<int>(draws(10));
  write(foreign);
  const TuningRecord record = answer("tunable", plain(), Schedule::fused, "fast");
  std::vector<pid_t> children;
  for (int p = 0; p < processes; ++p) {
    const pid_t child = fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    try {
      TuningRecord mine = record;
      for (int round = 0; round < rounds; ++round) {
        mine.problem = "of process " + std::to_string(p) + ", round " + std::to_string(round);
        mine.milliseconds = round;
        tuning::store(cache_, mine);
        mine.problem = "of all";
        tuning::store(cache_, mine);
        Problem problem = plain();
        problem.state = 8 + p;  // a class of its own
        const std::vector<Tuned> found = tune({problem}, {"tunable", 1e-3, {}, {}});
        const std::vector<TuningRecord> records = tuning_records(cache_);
        if (found.size() != 1) _exit(2);
        if (!found[0].is_default && std::count(records.begin(), records.end(), found[0].record) != 1) _exit(3);
      }
      _exit(0);
    } catch (...) {
      _exit(1);
    }
  }
  int reads = 0;
  std::size_t running = children.size();
  while (running > 0) {
    ASSERT_NO_THROW((void)tuning_records(cache_)) << "after " << reads << " reads";
    ++reads;
    int status = 0;
    if (waitpid(-1, &status, WNOHANG) <= 0) continue;
    EXPECT_EQ(status, 0);
    --running;
  }
  std::set<std::string> found;
  std::size_t tuned = 0;
  for (const TuningRecord& each : tuning_records(cache_)) {
    EXPECT_TRUE(found.insert(each.problem).second) << each.problem;
    if (each.problem.starts_with("f32 ")) ++tuned;
  }
  EXPECT_EQ(found.size(), 2 + tuned + static_cast<std::size_t>(processes * rounds));  // "of all", and the foreign one
  for (const char* part : {"\"note\"", "an abacus", "\"colour\": \"red\""}) {
    EXPECT_NE(bytes_of(cache_).find(part), std::string::npos) << part;
  }
  std::printf("%d processes, %d rounds, %zu of them with an answer, %d reads meanwhile\n", processes, rounds, tuned,
              reads);
}

// --------------------------------------------------------------------------------------------------------------- plans

TEST_F(Tuning, PlansFollowTheCache) {
  const auto planned = [](const Problem& problem, const Choice& choice) {
    const Plan plan(problem, choice);
    return std::string(name(plan.schedule())) + " " + std::string(plan.policy());
  };
  const Choice free{"scalar", Schedule::automatic, ""};
  ASSERT_EQ(planned(plain(), free), "fused q16");
  write(tuning::merged({}, answer("scalar", plain(), Schedule::staged, "q64")));
  EXPECT_EQ(planned(plain(), free), "staged q64");
  EXPECT_EQ(planned(plain(33), free), "staged q64") << "of the same class";
  EXPECT_EQ(planned(plain(300), free), "fused q16") << "of another class";
  // What the caller insists on comes first.
  EXPECT_EQ(planned(plain(), {"scalar", Schedule::fused, ""}), "fused q16");
  EXPECT_EQ(planned(plain(), {"scalar", Schedule::staged, ""}), "staged q64");
  EXPECT_EQ(planned(plain(), {"scalar", Schedule::staged, "q16"}), "staged q16");
  EXPECT_EQ(planned(plain(), {"scalar", Schedule::automatic, "q24"}), "fused q24");
  int defaults = 0;
  for (const Candidate& candidate : candidates(plain())) {
    if (candidate.backend != "scalar" || !candidate.is_default) continue;
    EXPECT_EQ(std::string(name(candidate.schedule)) + " " + candidate.policy, "staged q64");
    ++defaults;
  }
  EXPECT_EQ(defaults, 1);
  const Variable none("TILEMAMBA_TUNING_CACHE", (cache_ + ".absent").c_str());
  EXPECT_EQ(planned(plain(), free), "fused q16");
}

TEST_F(Tuning, OnlyAnswersForThisPlaceCount) {
  const auto changes = std::vector<void (*)(TuningRecord&)>{
      [](TuningRecord& r) { r.device += " II"; },         [](TuningRecord& r) { r.driver = "1"; },
      [](TuningRecord& r) { r.library = "0.0.9"; },       [](TuningRecord& r) { r.backend = "kokkos-serial"; },
      [](TuningRecord& r) { r.problem += " tf32"; },      [](TuningRecord& r) { r.policy = "q1000"; },
      [](TuningRecord& r) { r.schedule = "alphabetic"; }, [](TuningRecord& r) { r.policy = ""; },
  };
  for (const auto& change : changes) {
    TuningRecord record = answer("scalar", plain(), Schedule::staged, "q64");
    change(record);
    write(tuning::merged({}, record));
    EXPECT_EQ(Plan(plain(), {"scalar", Schedule::automatic, ""}).policy(), "q16");
  }
}

/// A sequence packed among others is of another class than alone, and must not differ by a bit.
TEST_F(Tuning, BatchInvariantProblemsTakeTheDefault) {
  Problem problem = plain();
  const TuningRecord record = answer("scalar", problem, Schedule::staged, "q64");
  write(tuning::merged({}, record));
  problem.options.batch_invariant = true;
  ASSERT_EQ(problem_class(problem), record.problem);
  EXPECT_EQ(Plan(problem, {"scalar", Schedule::automatic, ""}).policy(), "q16");
  expect_error(ErrorCode::invalid_argument, {"batch_invariant"}, [&] {
    (void)tune({problem}, {"scalar", 0.01, {}, {}});
  });
}

TEST_F(Tuning, DispatchSaysSo) {
  const Variable verbose("TILEMAMBA_VERBOSE", "dispatch");
  write(tuning::merged({}, answer("scalar", plain(), Schedule::staged, "q64")));
  EXPECT_NE(said_of_two_plans().find("scalar staged q64: taken, by the tuning cache " + cache_), std::string::npos);
}

/// The file is read once; a process that goes on planning is not surprised by others' tuning.
TEST_F(Tuning, IsReadOnce) {
  const Choice free{"scalar", Schedule::automatic, ""};
  EXPECT_EQ(Plan(plain(), free).policy(), "q16");
  tuning::store(cache_, answer("scalar", plain(), Schedule::staged, "q64"));
  EXPECT_EQ(Plan(plain(), free).policy(), "q16");
  tuning::forget(cache_);
  EXPECT_EQ(Plan(plain(), free).policy(), "q64");
}

TEST_F(Tuning, TheOneCallFormFollowsTheCache) {
  Spec spec;
  Call by_cache(spec), forced(spec);
  write(tuning::merged({}, answer("scalar", by_cache.problem(), Schedule::staged, "q64")));
  scan(by_cache.arguments, by_cache.options, {"scalar", Schedule::automatic, ""});
  scan(forced.arguments, forced.options, {"scalar", Schedule::staged, "q64"});
  expect_same_outputs(by_cache.arguments, forced.arguments);
  const Variable none("TILEMAMBA_TUNING_CACHE", (cache_ + ".absent").c_str());
  Call by_default(spec), default_forced(spec);
  scan(by_default.arguments, by_default.options, {"scalar", Schedule::automatic, ""});
  scan(default_forced.arguments, default_forced.options, {"scalar", Schedule::fused, "q16"});
  expect_same_outputs(by_default.arguments, default_forced.arguments);
}

// ---------------------------------------------------------------------------------------------------------- the search

TEST_F(Tuning, FindsTheFastestThatIsRight) {
  std::vector<std::string> steps;
  const std::vector<Tuned> found = tune({plain(32), plain(64), plain(100)},
                                        {"tunable", 30, {}, [&](const std::string& step) { steps.push_back(step); }});
  ASSERT_EQ(found.size(), 2u) << "two of the three are of one class";
  for (const Tuned& tuned : found) {
    EXPECT_FALSE(tuned.is_default);
    EXPECT_EQ(tuned.record.policy, "fast");
    EXPECT_GT(tuned.record.milliseconds, 0);
    EXPECT_GT(tuned.record.default_milliseconds, 20);
    const auto lost = [&](const std::string& policy) {
      for (const std::string& line : tuned.lost) {
        if (line.starts_with("fused " + policy + ":")) return line;
      }
      return std::string();
    };
    EXPECT_EQ(tuned.lost.size(), 5u);
    EXPECT_NE(lost("wrong").find("wrong answer"), std::string::npos) << lost("wrong");
    EXPECT_NE(lost("failing").find("out of ink"), std::string::npos) << lost("failing");
    EXPECT_NE(lost("spilling").find("beside its memory"), std::string::npos) << lost("spilling");
    EXPECT_NE(lost("hopeless").find("left out"), std::string::npos) << lost("hopeless");
    EXPECT_NE(lost("slow").find("ms"), std::string::npos) << lost("slow");
  }
  EXPECT_FALSE(steps.empty());
  EXPECT_EQ(tuning_records(cache_), (std::vector{found[0].record, found[1].record}));
  EXPECT_EQ(Plan(plain(), {"tunable", Schedule::automatic, ""}).policy(), "fast") << "at once, in this process too";
}

TEST_F(Tuning, NoBudgetNoClass) {
  EXPECT_TRUE(tune({plain()}, {"scalar", 0, {}, {}}).empty());
  EXPECT_TRUE(tune({}, {}).empty());
  EXPECT_FALSE(fs::exists(cache_));
}

/// Every kind of problem can be tuned on every backend, and every candidate of these is right.
TEST_F(Tuning, EveryKindOfProblem) {
  Spec spec;
  spec.tokens = 150, spec.heads = 3, spec.head_dim = 24, spec.state = 20, spec.z = true;
  spec.skip = SkipForm::per_channel, spec.dt_bias = DType::f32, spec.initial_states = DType::f32;
  spec.chunk_states = DType::f32, spec.options.chunk_states_every = 32;
  Spec packed = spec;
  packed.pack({100, 0, 77, 64});
  Spec documents = spec;
  documents.chunk_states.reset(), documents.options.chunk_states_every = 0;
  documents.batch = 2, documents.new_document = 0.05;
  for (const Spec& each : {spec, packed, documents}) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      for (const bool softplus : {false, true}) {
        Spec typed = each;
        typed.type(dtype);
        Call call(typed);
        Problem problem = call.problem();
        problem.options.dt_softplus = softplus;
        for (const std::string& member : expected_backends()) {
          if (home_of(member).kind != DeviceKind::cpu) continue;
          const std::vector<Tuned> found = tune({problem}, {member, 1e-3, {}, {}});
          ASSERT_EQ(found.size(), 1u);
          for (const std::string& lost : found[0].lost) {
            EXPECT_EQ(lost.find("wrong"), std::string::npos) << member << ' ' << lost << ", " << typed;
            EXPECT_EQ(lost.find("beside"), std::string::npos) << member << ' ' << lost << ", " << typed;
          }
        }
      }
    }
  }
}

TEST_F(Tuning, UnknownBackendsAreNamed) {
  expect_error(ErrorCode::no_backend, {"abacus", "scalar"}, [&] { (void)tune({plain()}, {"abacus", 1, {}, {}}); });
}

}  // namespace
}  // namespace tilemamba::test
