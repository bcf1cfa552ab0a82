// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which backend runs a call: an argument of the API before TILEMAMBA_BACKEND before what the devices are; a forced
/// backend runs or fails with its reason; a backend whose vendor's library is missing is no more than a reason.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/registry.hpp"
#include "tests/backend_test.hpp"

namespace tilemamba::test {
namespace {

constexpr const char* dummy_module = TILEMAMBA_BROKEN_MODULES "/tilemamba_backend_dummy.so";

class Selection : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    static const bool once = [] {
      registry().add({"dummy", "dummy", dummy_module});
      return true;
    }();
    (void)once;
  }

  static Problem problem() { return Call(Spec{}).problem(); }
  static std::optional<BackendInfo> info(const std::string& member) {
    for (const BackendInfo& backend : backends()) {
      if (backend.name == member) return backend;
    }
    return {};
  }
  static bool expected(const std::string& member) {
    const auto all = expected_backends();
    return std::find(all.begin(), all.end(), member) != all.end();
  }

 private:
  Variable backend_{"TILEMAMBA_BACKEND", nullptr};
  Variable verbose_{"TILEMAMBA_VERBOSE", nullptr};
};

TEST_F(Selection, EveryExpectedBackendCanRun) {
  for (const std::string& member : expected_backends()) {
    SCOPED_TRACE(member);
    const auto backend = info(member);
    ASSERT_TRUE(backend.has_value());
    EXPECT_TRUE(backend->can_run) << backend->reason;
    EXPECT_FALSE(backend->devices.empty());
    EXPECT_EQ(backend->family, member.substr(0, member.find('-')));
  }
}

TEST_F(Selection, MemberIsExact) {
  for (const std::string& member : expected_backends()) {
    EXPECT_EQ(Plan(problem(), {member, Schedule::automatic, ""}).backend(), member);
  }
}

TEST_F(Selection, FamilyPicksItsFirstMemberThatCanRun) {
  std::map<std::string, std::string> first;
  for (const BackendInfo& backend : backends()) {
    if (backend.can_run) first.try_emplace(backend.family, backend.name);
  }
  ASSERT_FALSE(first.empty());
  for (const auto& [family, member] : first)
    EXPECT_EQ(Plan(problem(), {family, Schedule::automatic, ""}).backend(), member);
}

/// A backend that nobody has run on a device is there, and does nothing unless it is said to by name.
class Unproven : public Backend {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return "unproven"; }
  [[nodiscard]] Probe probe() const override { return {can_run, can_run ? "a word" : "no device", {"a device"}}; }
  [[nodiscard]] bool proven() const noexcept override { return false; }
  [[nodiscard]] std::string cannot_address(const Device&) const override { return ""; }
  [[nodiscard]] std::vector<Offer> offers(const Problem&) const override { return {}; }
  [[nodiscard]] std::unique_ptr<Executable> prepare(const Problem&, const Offer&, Outcome&) const override {
    return nullptr;
  }
  [[nodiscard]] void* allocate(const Device&, std::size_t) const noexcept override { return nullptr; }
  void release(const Device&, void*) const noexcept override {}
  bool can_run = true;
};
TEST_F(Selection, WhatHasNeverRunDoesNotRunUnlessItIsAllowedTo) {
  Unproven backend;
  const Entry entry{{"unproven", "family", "", false}, &backend, "", ""};
  {
    const Variable allowed("TILEMAMBA_UNPROVEN", nullptr);
    const Probe found = probe(entry);
    EXPECT_FALSE(found.can_run);
    EXPECT_NE(found.reason.find("unproven was never run by us"), std::string::npos) << found.reason;
    EXPECT_NE(found.reason.find("TILEMAMBA_UNPROVEN=1"), std::string::npos) << found.reason;
    backend.can_run = false;  // then its own reason is the one to read
    EXPECT_EQ(probe(entry).reason, "no device");
    backend.can_run = true;
  }
  const Variable allowed("TILEMAMBA_UNPROVEN", "1");
  EXPECT_TRUE(probe(entry).can_run);
  EXPECT_EQ(probe(entry).reason, "a word");
}

TEST_F(Selection, ArgumentBeforeEnvironmentBeforeDeviceQuery) {
  const std::string by_default(Plan(problem()).backend());
  for (const BackendInfo& backend : backends()) {  // the first that can run
    if (!backend.can_run) continue;
    EXPECT_EQ(by_default, backend.name);
    break;
  }
  for (const std::string& member : expected_backends()) {
    const Variable variable("TILEMAMBA_BACKEND", member.c_str());
    EXPECT_EQ(Plan(problem()).backend(), member);
    EXPECT_EQ(Plan(problem(), {by_default, Schedule::automatic, ""}).backend(), by_default);
  }
  EXPECT_EQ(Plan(problem()).backend(), by_default);
  const Variable cannot_run("TILEMAMBA_BACKEND", "dummy");
  EXPECT_EQ(Plan(problem(), {by_default, Schedule::automatic, ""}).backend(), by_default);
}

/// The one-call form keeps plans; a changed environment must not be answered from there.
TEST_F(Selection, EnvironmentOfTheOneCallForm) {
  Call call(Spec{});
  ASSERT_NO_THROW(scan(call.arguments, call.options));
  const Variable variable("TILEMAMBA_BACKEND", "dummy");
  expect_error(ErrorCode::no_backend, {"dummy", "TILEMAMBA_BACKEND"}, [&] { scan(call.arguments, call.options); });
}

TEST_F(Selection, UnknownNamesListTheValidOnes) {
  std::vector<std::string> words{"cuba"};
  for (const BackendInfo& backend : backends()) words.push_back(backend.name), words.push_back(backend.family);
  expect_error(ErrorCode::no_backend, words, [&] { (void)Plan(problem(), {"cuba", Schedule::automatic, ""}); });
  const Variable variable("TILEMAMBA_BACKEND", "cuba");
  words.emplace_back("TILEMAMBA_BACKEND");
  expect_error(ErrorCode::no_backend, words, [&] { (void)Plan(problem()); });
}

/// Row 18: the library is there and works; the backend says which file of the vendor's is missing.
TEST_F(Selection, MissingVendorLibrary) {
  const auto dummy = info("dummy");
  ASSERT_TRUE(dummy.has_value());
  EXPECT_FALSE(dummy->can_run);
  EXPECT_NE(dummy->reason.find("tilemamba_absent_vendor"), std::string::npos) << dummy->reason;
  EXPECT_TRUE(dummy->devices.empty());

  // Forced, it fails with the probe's reason and never falls back.
  expect_error(ErrorCode::no_backend, {"dummy", "tilemamba_absent_vendor"}, [&] {
    (void)Plan(problem(), {"dummy", Schedule::automatic, ""});
  });
  // Not forced, it is passed over.
  EXPECT_NE(Plan(problem()).backend(), "dummy");
  Call call(Spec{});
  scan(call.arguments, call.options);
  expect_within_bars(call.arguments, call.options, expected_of(Spec{}));
}

TEST_F(Selection, FilesThatAreNoModules) {
  Registry other(
      {{"absent", "absent", "/no/such/folder/tilemamba_backend_absent.so"}, {"library", "library", "libm.so.6"}});
  for (const Entry* entry : other.named("")) {
    EXPECT_EQ(entry->backend, nullptr);
    EXPECT_NE(entry->load_failure.find(entry->row.module), std::string::npos) << entry->load_failure;
  }
  expect_error(ErrorCode::no_backend, {"nothing", "absent", "library"}, [&] { (void)other.named("nothing"); });
}

TEST_F(Selection, VerboseDispatchPrintsEveryCandidate) {
  const Variable variable("TILEMAMBA_VERBOSE", "dispatch");
  testing::internal::CaptureStderr();
  const std::string taken(Plan(problem()).backend());
  EXPECT_NE(testing::internal::GetCapturedStderr().find(taken), std::string::npos);

  testing::internal::CaptureStderr();
  expect_error(ErrorCode::no_backend, {}, [&] { (void)Plan(problem(), {"dummy", Schedule::automatic, ""}); });
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("tilemamba_absent_vendor"), std::string::npos) << text;

  // Every backend is a candidate if the tensors are where none can go.
  Problem far = problem();
  far.device = {DeviceKind::cuda, 0};
  testing::internal::CaptureStderr();
  expect_error(ErrorCode::no_backend, {}, [&] { (void)Plan(far); });
  const std::string all = testing::internal::GetCapturedStderr();
  for (const BackendInfo& backend : backends()) EXPECT_NE(all.find(backend.name), std::string::npos) << all;
}

TEST_F(Selection, SilentOtherwise) {
  testing::internal::CaptureStderr();
  Call call(Spec{});
  scan(call.arguments, call.options, {expected_backends().front(), Schedule::automatic, ""});
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(Selection, Candidates) {
  std::map<std::string, int> defaults;
  std::set<std::string> seen;
  for (const Candidate& candidate : candidates(problem())) {
    if (!candidate.refusal.empty()) {
      EXPECT_FALSE(candidate.is_default);
      continue;
    }
    SCOPED_TRACE(candidate.backend + ' ' + std::string(name(candidate.schedule)) + ' ' + candidate.policy);
    EXPECT_NE(candidate.schedule, Schedule::automatic);
    EXPECT_TRUE(
        seen.insert(candidate.backend + ' ' + std::string(name(candidate.schedule)) + ' ' + candidate.policy).second)
        << "listed twice";
    const Plan plan(problem(), {candidate.backend, candidate.schedule, candidate.policy});
    EXPECT_EQ(plan.backend(), candidate.backend);
    EXPECT_EQ(plan.schedule(), candidate.schedule);
    EXPECT_EQ(plan.policy(), candidate.policy);
    EXPECT_EQ(plan.workspace_bytes(), candidate.workspace_bytes);
    if (!candidate.is_default) continue;
    ++defaults[candidate.backend];
    const Plan by_default(problem(), {candidate.backend, Schedule::automatic, ""});
    EXPECT_EQ(by_default.schedule(), candidate.schedule);
    EXPECT_EQ(by_default.policy(), candidate.policy);
  }
  for (const std::string& member : expected_backends()) EXPECT_EQ(defaults[member], 1) << member;
}

/// The staged schedule keeps the states of all chunks in x's type and 8 bytes a token and head, tokens rounded up to
/// whole chunks in each sequence; 1 % and 64 KiB are for tables and alignment. A plan does not know the lengths of
/// packed sequences: it must do for any. The chunk is in the policy's name: q64... (Not in HIP's, which are left out.)
TEST_F(Selection, WorkspaceOfTheStagedSchedule) {
  Spec spec;
  spec.type(DType::bf16);
  spec.batch = 3, spec.tokens = 1000, spec.heads = 6, spec.head_dim = 64, spec.state = 128, spec.z = true;
  Spec packed = spec;
  packed.pack({1, 1000, 0, 64, 999});
  int checked = 0;
  for (const Spec& each : {spec, packed}) {
    for (const Candidate& candidate : candidates(Call(each).problem())) {
      if (candidate.schedule != Schedule::staged || !candidate.refusal.empty()) continue;
      if (candidate.policy.front() != 'q') continue;
      const double chunk = std::strtod(candidate.policy.c_str() + 1, nullptr);
      ASSERT_GT(chunk, 0) << candidate.policy;
      const double most = std::floor((each.tokens + 5 * (chunk - 1)) / chunk);  // of 5 sequences
      const double chunks = each.lengths ? most : 3 * std::ceil(1000 / chunk);
      const double states = chunks * 6 * 64 * 128 * 2, steps = chunks * chunk * 6 * 8;
      EXPECT_LE(static_cast<double>(candidate.workspace_bytes), 1.01 * (states + steps) + 65536)
          << candidate.backend << ' ' << candidate.policy << ", " << each;
      ++checked;
    }
  }
  EXPECT_GT(checked, 0);
}

}  // namespace
}  // namespace tilemamba::test
