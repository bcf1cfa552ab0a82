// SPDX-License-Identifier: Apache-2.0
/// @file
/// Backends that nobody has run: tried in a process of its own before they are used, and what becomes of the verdict.
#include "core/proof.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "core/registry.hpp"
#include "tests/backend_test.hpp"

namespace tilemamba::test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr const char* module_file = TILEMAMBA_TEST_MODULES "/tilemamba_backend_unproven.so";

std::string bytes_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// A folder of its own for the proofs and for the log of what `novel` was made ready for.
class Proof : public testing::Test {
 protected:
  Proof() {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    proof::forget(file_);  // of the test before
  }
  ~Proof() override { fs::remove_all(folder_); }
  void SetUp() override {
    if (*TILEMAMBA_TEST_EMULATOR != '\0') GTEST_SKIP() << "under an emulator no program can be started as it is";
    static const bool once = [] {
      registry().add({"novel", "novelty", module_file});
      registry().add({"settled", "novelty", module_file});
      return true;
    }();
    (void)once;
  }

  static Problem plain(DType x = DType::bf16) {
    Spec spec;
    spec.type(x);
    return Call(spec).problem();
  }
  static std::string planned(const std::string& backend, DType x = DType::bf16) {
    return std::string(Plan(plain(x), {backend, Schedule::automatic, ""}).backend());
  }
  static const Entry& novel() { return *registry().named("novel").front(); }
  static proof::Record record(const std::string& verdict, const std::string& reason) {
    proof::Record its = proof::place_of(novel(), {}, novel().backend->offers(plain()).front(), DType::bf16);
    its.verdict = verdict, its.reason = reason;
    return its;
  }
  void write(const std::string& text) const {
    std::ofstream(file_, std::ios::binary | std::ios::trunc) << text;
    proof::forget(file_);
  }
  [[nodiscard]] std::vector<proof::Record> kept() const {
    return fs::exists(file_) ? proof::parse(bytes_of(file_)) : std::vector<proof::Record>();
  }
  /// The processes, but for this one, in which `novel` was made ready.
  [[nodiscard]] std::set<pid_t> provers() const {
    std::set<pid_t> all;
    std::ifstream in(log_);
    for (std::string line; std::getline(in, line);) {
      std::istringstream words(line);
      pid_t process = 0;
      std::string unproven;
      int open_files = -1;
      words >> process >> unproven >> open_files;
      if (process == getpid() || unproven != "trusted") continue;
      all.insert(process);
      EXPECT_EQ(open_files, 0) << "it keeps files open that are not its own";
    }
    return all;
  }

  const fs::path folder_ = fs::path(testing::TempDir()) / ("tilemamba_proofs_" + std::to_string(getpid()));
  const std::string file_ = (folder_ / "proofs.json").string();
  const std::string log_ = (folder_ / "log").string();
  const Variable cache_{"TILEMAMBA_TUNING_CACHE", (folder_ / "tuning.json").c_str()};
  const Variable logged_{"TILEMAMBA_TEST_LOG", log_.c_str()};
  const Variable fault_{"TILEMAMBA_TEST_FAULT", nullptr};
  const Variable driver_{"TILEMAMBA_TEST_DRIVER", "1.0"};
  const Variable allowed_{"TILEMAMBA_UNPROVEN", "1"};
  const Variable backend_{"TILEMAMBA_BACKEND", nullptr};
};

TEST_F(Proof, NothingIsTriedUnlessItIsAllowed) {
  {
    const Variable not_allowed("TILEMAMBA_UNPROVEN", nullptr);
    expect_error(ErrorCode::no_backend, {"never run by us", "TILEMAMBA_UNPROVEN=1"}, [] { (void)planned("novel"); });
    EXPECT_EQ(planned("novelty"), "settled");
  }
  {
    const Variable trusted("TILEMAMBA_UNPROVEN", "trusted");  // by who works on it
    EXPECT_EQ(planned("novel"), "novel");
  }
  EXPECT_TRUE(provers().empty());
  EXPECT_TRUE(kept().empty());
}

TEST_F(Proof, WhatIsRightIsUsedAndTriedOnce) {
  // A file that is left open does not reach the process that tries (`provers` looks).
  const int descriptor = open("/dev/null", O_RDONLY);  // NOLINT: without O_CLOEXEC
  EXPECT_EQ(planned("novel"), "novel");
  close(descriptor);
  EXPECT_EQ(provers().size(), 1u);
  EXPECT_EQ(kept(), std::vector{record("right", "")});
  EXPECT_EQ(planned("novelty"), "novel");
  EXPECT_EQ(provers().size(), 1u) << "tried again in the same process";
  proof::forget(file_);
  EXPECT_EQ(planned("novel"), "novel");
  EXPECT_EQ(provers().size(), 1u) << "tried again, though the file has the answer";
  // Another dtype of x is other code.
  EXPECT_EQ(planned("novel", DType::f32), "novel");
  EXPECT_EQ(planned("novel", DType::f16), "novel");
  EXPECT_EQ(provers().size(), 3u);
  EXPECT_EQ(kept().size(), 3u);
  // And it runs.
  Call call(Spec{});
  scan(call.arguments, call.options, {"novel", Schedule::automatic, ""});
  expect_within_bars(call.arguments, call.options, expected_of(Spec{}));
}

TEST_F(Proof, DISABLED_PlansNovel) {
  const std::string folder = std::getenv("TILEMAMBA_TEST_FOLDER");
  const Variable cache("TILEMAMBA_TUNING_CACHE", (folder + "/tuning.json").c_str());
  const Variable log("TILEMAMBA_TEST_LOG", (folder + "/log").c_str());
  EXPECT_EQ(planned("novel"), "novel");
}
TEST_F(Proof, TheNextProcessDoesNotTryAgain) {
  EXPECT_EQ(planned("novel"), "novel");
  const std::string folder = "TILEMAMBA_TEST_FOLDER='" + folder_.string() + "'";
  (void)run_again(folder, "Proof.DISABLED_PlansNovel");
  EXPECT_EQ(provers().size(), 1u);
  fs::remove(file_);
  (void)run_again(folder, "Proof.DISABLED_PlansNovel");
  EXPECT_EQ(provers().size(), 2u);
  EXPECT_EQ(kept(), std::vector{record("right", "")});
}

TEST_F(Proof, WhatIsNotRightIsRefused) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> faults = {
      {"is wrong", {"a batch: ", "y ", "of its bar", "head"}},
      {"loses a row", {"of its bar", "tokens"}},
      {"loses states", {"a state", "of its bar", "sequence"}},
      {"spills", {"beside its memory"}},
      {"fails", {"a batch", "out of ink"}},
      {"varies", {"the same call gave other bits"}},
      {"crashes", {"signal 11"}},
      {"exits", {"exit status 7"}},
  };
  for (const auto& [fault, words] : faults) {
#if defined(__SANITIZE_ADDRESS__)
    if (fault == "crashes") continue;  // the sanitizer makes an exit of it
#endif
    SCOPED_TRACE(fault);
    fs::remove(file_);
    fs::remove(log_);
    proof::forget(file_);
    {
      const Variable now("TILEMAMBA_TEST_FAULT", fault.c_str());
      // Whoever left the choice to us gets the next candidate, and is told if they want to know.
      const Variable verbose("TILEMAMBA_VERBOSE", "dispatch");
      testing::internal::CaptureStderr();
      EXPECT_EQ(planned("novelty"), "settled");
      const std::string said = testing::internal::GetCapturedStderr();
      for (const std::string& word : words) EXPECT_NE(said.find(word), std::string::npos) << said;
      EXPECT_NE(said.find("settled fused first: taken"), std::string::npos) << said;
    }
    // Whoever insisted gets the reason. It is kept: nothing is tried again, not even in another process.
    std::vector<std::string> all = words;
    all.insert(all.end(), {"novel fused first", "never run by us", "as played by tests", "proofs.json"});
    for (int again = 0; again < 2; ++again) {
      expect_error(ErrorCode::no_backend, all, [] { (void)planned("novel"); });
      proof::forget(file_);
    }
    EXPECT_EQ(provers().size(), 1u);
    ASSERT_EQ(kept().size(), 1u);
    EXPECT_EQ(kept()[0], record("wrong", kept()[0].reason));
    // Nor is its second policy taken instead.
    EXPECT_EQ(planned("novelty"), "settled");
    EXPECT_EQ(provers().size(), 1u);
  }
}

TEST_F(Proof, WhatHangsIsEnded) {
  const Variable now("TILEMAMBA_TEST_FAULT", "hangs");
  const Offer offer = novel().backend->offers(plain()).front();
  const auto begin = std::chrono::steady_clock::now();
  const proof::Verdict verdict =
      proof::prove(novel(), {}, offer, DType::bf16, find_in_module_folders({proof::helper}), 5000ms);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
  EXPECT_FALSE(verdict.right);
  EXPECT_TRUE(verdict.lasting);
  EXPECT_EQ(verdict.reason, "it was not done after 5 s");
  ASSERT_EQ(provers().size(), 1u);
  EXPECT_NE(kill(*provers().begin(), 0), 0) << "the process is still there";
  proof::store(file_, record("wrong", verdict.reason));
  expect_error(ErrorCode::no_backend, {"not done after 5 s"}, [] { (void)planned("novel"); });
  EXPECT_EQ(planned("novelty"), "settled");
  EXPECT_EQ(provers().size(), 1u);
}

/// What says nothing of the backend holds for this process only.
TEST_F(Proof, WhatWasNotTriedIsNotKept) {
  const Offer offer = novel().backend->offers(plain()).front();
  const auto prove = [&](const std::string& prover) {
    return proof::prove(novel(), {}, offer, DType::bf16, prover, proof::limit);
  };
  const std::string prover = find_in_module_folders({proof::helper});
  {
    const proof::Verdict absent = prove((folder_ / "absent").string());
    EXPECT_FALSE(absent.right || absent.lasting);
    EXPECT_NE(absent.reason.find("absent cannot be started: No such file"), std::string::npos) << absent.reason;
    expect_error(ErrorCode::no_backend, {"not part of this installation", "absent_helper", "/tilemamba"},
                 [] { (void)find_in_module_folders({"absent_helper"}); });
  }
  {
    const Variable now("TILEMAMBA_TEST_FAULT", "is ended");  // as a shell or a scheduler would
    const proof::Verdict ended = prove(prover);
    EXPECT_FALSE(ended.right || ended.lasting);
    EXPECT_NE(ended.reason.find("signal 15"), std::string::npos) << ended.reason;
    expect_error(ErrorCode::no_backend, {"signal 15"}, [] { (void)planned("novel"); });
  }
  {
    auto* const before = std::signal(SIGCHLD, SIG_IGN);  // the system forgets how children end
    const proof::Verdict unseen = prove(prover);
    std::signal(SIGCHLD, before);
    EXPECT_FALSE(unseen.right || unseen.lasting);
    EXPECT_NE(unseen.reason.find("waits for all children"), std::string::npos) << unseen.reason;
  }
  {
    const Entry other{{"another", "another", ""}, novel().backend, "", novel().file};  // not in the module
    const proof::Verdict not_run = proof::prove(other, {}, offer, DType::bf16, prover, proof::limit);
    EXPECT_FALSE(not_run.right || not_run.lasting);
    EXPECT_NE(not_run.reason.find("was built without another"), std::string::npos) << not_run.reason;
  }
  EXPECT_TRUE(kept().empty());
}

TEST_F(Proof, OnlyVerdictsForThisPlaceCount) {
  write(proof::merged({}, record("wrong", "as the file has it")));
  expect_error(ErrorCode::no_backend, {"as the file has it"}, [] { (void)planned("novel"); });
  EXPECT_TRUE(provers().empty());
  const auto changes = std::vector<void (*)(proof::Record&)>{
      [](proof::Record& r) { r.device += " II"; },     [](proof::Record& r) { r.driver = "2.0"; },
      [](proof::Record& r) { r.library = "0.0.9"; },   [](proof::Record& r) { r.module[0] ^= 1; },
      [](proof::Record& r) { r.backend = "settled"; }, [](proof::Record& r) { r.schedule = "staged"; },
      [](proof::Record& r) { r.policy = "second"; },   [](proof::Record& r) { r.x = "f32"; },
      [](proof::Record& r) { r.verdict = "fair"; },
  };
  std::size_t tried = 0;
  for (const auto& change : changes) {
    proof::Record its = record("wrong", "as the file has it");
    change(its);
    write(proof::merged({}, its));
    EXPECT_EQ(planned("novel"), "novel");
    EXPECT_EQ(provers().size(), ++tried);
    EXPECT_EQ(kept().size(), its.verdict == "fair" ? 1u : 2u) << "others' verdicts stay";
  }
  // The device's driver now is another one than then.
  const Variable newer("TILEMAMBA_TEST_DRIVER", "1.1");
  proof::forget(file_);
  EXPECT_EQ(planned("novel"), "novel");
  EXPECT_EQ(provers().size(), ++tried);
}

TEST_F(Proof, AModuleThatChangedIsAnotherOne) {
  const fs::path copy = folder_ / "module.so";
  fs::copy_file(module_file, copy);
  const Entry before{{"novel", "novelty", ""}, novel().backend, "", copy.string()};
  std::ofstream(copy.string() + ".new") << bytes_of(copy.string()) << '\0';
  const Entry after{{"novel", "novelty", ""}, novel().backend, "", copy.string() + ".new"};
  const Offer offer = novel().backend->offers(plain()).front();
  EXPECT_EQ(proof::place_of(before, {}, offer, DType::bf16), record("", ""));
  EXPECT_NE(proof::place_of(after, {}, offer, DType::bf16).module, record("", "").module);
}

/// Such a file is ignored with a word, nobody's work in it is written over, and all goes on.
TEST_F(Proof, DamagedFilesAreIgnoredWithAWord) {
  const std::string whole = proof::merged({}, record("wrong", "as the file has it"));
  for (const auto& [text, word] : std::vector<std::pair<std::string, std::string>>{
           {"", "no JSON"},
           {whole.substr(0, whole.size() / 2), "no JSON"},
           {R"({"format": "tilemamba tuning", "version": 1, "entries": []})", "format"},
           {R"({"format": "tilemamba proofs", "version": 2, "entries": []})", "another version"},
       }) {
    SCOPED_TRACE(text);
    write(text);
    fs::remove(log_);
    testing::internal::CaptureStderr();
    EXPECT_EQ(planned("novel"), "novel");
    EXPECT_EQ(planned("novel"), "novel");
    EXPECT_EQ(planned("novel", DType::f32), "novel");
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("earlier proofs are ignored"), std::string::npos) << said;
    EXPECT_NE(said.find("the proof is not kept"), std::string::npos) << said;
    EXPECT_NE(said.find(word), std::string::npos) << said;
    EXPECT_NE(said.find("remove it"), std::string::npos) << said;
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 2) << "each once: " << said;
    EXPECT_EQ(provers().size(), 2u);
    EXPECT_EQ(bytes_of(file_), text);
  }
  fs::remove(file_);
  proof::forget(file_);
  const Variable nowhere("TILEMAMBA_TUNING_CACHE", "/proc/none/tuning.json");
  testing::internal::CaptureStderr();
  EXPECT_EQ(planned("novel"), "novel");
  EXPECT_NE(testing::internal::GetCapturedStderr().find("/proc/none"), std::string::npos);
}

TEST_F(Proof, EveryTruncationAndFlippedByteGivesAnErrorOrRecords) {
  const std::string whole = proof::merged({}, record("wrong", "a reason"));
  for (std::size_t length = 0; length + 2 < whole.size(); ++length) {
    expect_error(ErrorCode::damaged_file, {}, [&] { (void)proof::parse(whole.substr(0, length)); });
  }
  Random random(3);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const char byte : {static_cast<char>(random.bits()), '"', '{', '9', '\0'}) {
      std::string text = whole;
      text[at] = byte;
      try {
        for (const proof::Record& each : proof::parse(text)) (void)proof::merged(text, each);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::damaged_file);
      }
    }
  }
}

TEST_F(Proof, ThreadsWaitForOneVerdict) {
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([] { EXPECT_EQ(planned("novel"), "novel"); });
  threads.clear();
  EXPECT_EQ(provers().size(), 1u);
}

/// Processes that try at once lose no verdict, and who reads meanwhile finds a whole file.
TEST_F(Proof, ManyProcessesLoseNothing) {
  const std::vector<DType> types = {DType::bf16, DType::f16, DType::f32};
  std::size_t running = 0;
  for (const DType type : types) {
    for (const char* policy : {"first", "second"}) {
      if (fork() == 0) {
        try {
          (void)Plan(plain(type), {"novel", Schedule::fused, policy});
          _exit(0);
        } catch (...) {
          _exit(1);
        }
      }
      ++running;
    }
  }
  while (running > 0) {
    ASSERT_NO_THROW((void)kept());
    int status = 0;
    if (waitpid(-1, &status, WNOHANG) <= 0) continue;
    EXPECT_EQ(status, 0);
    --running;
  }
  std::set<std::string> found;
  for (const proof::Record& each : kept()) {
    EXPECT_EQ(each.verdict, "right");
    found.insert(each.policy + each.x);
  }
  EXPECT_EQ(found.size(), 6u);
  EXPECT_EQ(kept().size(), 6u);
}

TEST_F(Proof, ListsSayWhatIsKnownAndTryNothing) {
  const auto info = [] {
    for (const BackendInfo& backend : backends()) {
      if (backend.name == "novel") return backend;
    }
    return BackendInfo{};
  };
  {
    const Variable not_allowed("TILEMAMBA_UNPROVEN", nullptr);
    EXPECT_FALSE(info().can_run);
    EXPECT_NE(info().reason.find("never run by us"), std::string::npos) << info().reason;
  }
  EXPECT_TRUE(info().can_run);
  EXPECT_FALSE(info().proven);
  EXPECT_EQ(info().reason, "for tests of proofs; never run by us: it proves itself when it is first planned");
  (void)candidates(plain());
  EXPECT_TRUE(provers().empty());
  const Variable verbose("TILEMAMBA_VERBOSE", "dispatch");
  testing::internal::CaptureStderr();
  EXPECT_EQ(planned("novel"), "novel");
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("novel fused first: never run by us, tried on small problems in x of bf16"), std::string::npos)
      << said;
  EXPECT_NE(said.find("taken, never run by us, but it proved itself here"), std::string::npos) << said;
  EXPECT_NE(info().reason.find("never run by us; right on "), std::string::npos) << info().reason;
  EXPECT_NE(info().reason.find("as played by tests with driver 1.0: fused first bf16"), std::string::npos);
  write(proof::merged({}, record("wrong", "y 3 of its bar")));
  EXPECT_NE(info().reason.find("wrong on "), std::string::npos);
  EXPECT_NE(info().reason.find("first bf16, y 3 of its bar"), std::string::npos);
}

}  // namespace
}  // namespace tilemamba::test
