// SPDX-License-Identifier: Apache-2.0
#include "tests/backend_test.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <map>
#include <ostream>
#include <sstream>

#include "core/mirror.hpp"

namespace tilemamba::test {
namespace {

Problem probe_problem(const Device& device, DType dtype, std::int64_t head_dim, std::int64_t state) {
  Problem problem;
  problem.batch = 1, problem.tokens = 300, problem.heads = 2, problem.groups = 1;
  problem.head_dim = head_dim, problem.state = state;
  problem.x = problem.dt = problem.y = dtype;
  problem.final_states = DType::f32;
  problem.device = device;
  return problem;
}

/// Problems that between them are within reach of every policy: policies may be made for a type or a size.
std::vector<Problem> probes(const Device& device) {
  std::vector<Problem> all;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const auto& [head_dim, state] : {std::pair{16, 16}, {64, 64}, {64, 128}, {128, 256}}) {
      all.push_back(probe_problem(device, dtype, head_dim, state));
    }
  }
  return all;
}

std::vector<Target> find_targets(bool defaults_only) {
  const std::vector<std::string> names = expected_backends();
  std::vector<Target> all;
  std::vector<Device> devices;
  for (const std::string& name : names) {
    const Device home = home_of(name);
    if (std::find(devices.begin(), devices.end(), home) == devices.end()) devices.push_back(home);
  }
  std::vector<Problem> problems;
  for (const Device& device : devices) {
    for (const Problem& problem : probes(device)) problems.push_back(problem);
  }
  for (const Problem& problem : problems) {
    for (const Candidate& candidate : candidates(problem)) {
      if (!candidate.refusal.empty() || std::find(names.begin(), names.end(), candidate.backend) == names.end())
        continue;
      const auto same = [&](const Target& target) {
        return target.backend == candidate.backend && target.schedule == candidate.schedule &&
               (defaults_only || target.policy == candidate.policy);
      };
      if (std::none_of(all.begin(), all.end(), same))
        all.push_back({candidate.backend, candidate.schedule, candidate.policy});
    }
  }
  return all;
}

std::string in_words(const golden::Worst& worst, const char* what) {
  std::ostringstream out;
  out << "\n  " << what << ": " << worst.value << " of its bar, at " << worst.place;
  return out.str();
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Target& target) {
  return out << target.backend << ' ' << name(target.schedule) << ' ' << target.policy;
}

std::vector<std::string> expected_backends() {
  std::vector<std::string> names;
  // A build made on one machine may be tested on another, which has other devices.
  const char* const here = std::getenv("TILEMAMBA_TEST_MEMBERS");
  std::istringstream list(here != nullptr ? here : TILEMAMBA_TEST_BACKENDS);
  for (std::string entry; std::getline(list, entry, ',');) names.push_back(entry);
  return names;
}

const std::vector<Target>& targets() {
  static const std::vector<Target> all = [] {
    std::vector<Target> found = find_targets(false);
    std::vector<std::string> names;
    for (const Target& target : found) names.push_back(target.backend);
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    for (const std::string& backend : names) found.push_back({backend, Schedule::automatic, ""});
    return found;
  }();
  return all;
}

std::vector<Target> default_targets() { return find_targets(true); }

std::string target_name(const testing::TestParamInfo<Target>& info) {
  std::ostringstream out;
  out << info.param;
  std::string text = out.str();
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return text;
}

std::optional<Candidate> candidate_of(const Target& target, const Problem& problem) {
  const bool free = target.schedule == Schedule::automatic;
  for (const Candidate& candidate : candidates(problem)) {
    if (candidate.backend == target.backend &&
        (free ? candidate.is_default : candidate.schedule == target.schedule && candidate.policy == target.policy))
      return candidate;
  }
  return {};
}

const std::map<DType, std::int64_t>& reach_of(const Target& target) {
  static std::map<std::string, std::map<DType, std::int64_t>> known;
  const auto [entry, fresh] = known.try_emplace(testing::PrintToString(target));
  if (fresh) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      for (const std::int64_t state : {16, 64, 128, 256, 512}) {
        const auto found = candidate_of(target, probe_problem(home_of(target.backend), dtype, 64, state));
        if (found && found->refusal.empty()) entry->second[dtype] = state;
      }
    }
  }
  return entry->second;
}

Plan plan_on(const Target& target, const Arguments& arguments, const Options& options) {
  return Plan(Problem::of(placed_on(home_of(target.backend), arguments), options), target.choice());
}

void scan_on(const Target& target, const Arguments& arguments, const Options& options) {
  Mirror mirror(plan_on(target, arguments, options), arguments);
  scan(mirror.arguments(), options, target.choice());
  mirror.fetch();
  EXPECT_TRUE(mirror.intact());
}

bool run_on(const Target& target, const Arguments& arguments, const Options& options) {
  const Problem problem = Problem::of(placed_on(home_of(target.backend), arguments), options);
  const std::optional<Candidate> found = candidate_of(target, problem);
  if (!found || !found->refusal.empty()) {
    const auto reach = reach_of(target).find(problem.x);
    // A policy may move 16 bytes at a time.
    const bool uneven = problem.head_dim % 8 != 0 || problem.state % 8 != 0;
    EXPECT_TRUE(uneven || reach == reach_of(target).end() || reach->second < problem.state)
        << target << " takes this type and size of state and yet refuses the problem";
    const ErrorCode code = found ? ErrorCode::unsupported : ErrorCode::no_backend;
    if (target.schedule != Schedule::automatic)
      expect_error(code, {target.backend, found ? found->refusal : "that it has:"},
                   [&] { (void)Plan(problem, target.choice()); });
    return false;
  }
  const Plan plan(problem, target.choice());
  EXPECT_EQ(plan.backend(), target.backend);
  EXPECT_EQ(plan.schedule(), found->schedule);
  EXPECT_EQ(plan.policy(), found->policy);
  EXPECT_EQ(plan.workspace_bytes(), found->workspace_bytes)
      << "the plan and its candidate disagree about the workspace";
  Mirror mirror(plan, arguments);
  plan.execute(mirror.arguments(), mirror.workspace(), plan.workspace_bytes());
  mirror.fetch();
  EXPECT_TRUE(mirror.intact()) << "the call wrote beside its workspace of " << plan.workspace_bytes()
                               << " bytes, or, on a device, beside a tensor or into an input";
  return true;
}

const Expected& expected_of(const Spec& spec) {
  static std::map<std::string, Expected> known;
  const auto [entry, fresh] = known.try_emplace(to_string(spec));
  if (fresh) {
    const Call call(spec);
    entry->second = expected_of(call.arguments, call.options);
  }
  return entry->second;
}

double expect_within_bars(const Arguments& arguments, const Options& options, const Expected& expected) {
  const golden::Shares shares = shares_of(arguments, options, expected);
  EXPECT_TRUE(shares.pass()) << in_words(shares.out, "y") << in_words(shares.block, "block")
                             << in_words(shares.row, "row") << (shares.state ? in_words(*shares.state, "state") : "")
                             << (shares.chunk_state ? in_words(*shares.chunk_state, "chunk state") : "");
  return shares.worst();
}

void expect_same_bits(const Tensor& left, const Tensor& right, const std::string& what) {
  ASSERT_EQ(left.dtype, right.dtype) << what;
  ASSERT_EQ(size(left), size(right)) << what;
  const std::vector<std::byte> left_bits = bits(left), right_bits = bits(right);
  if (left_bits == right_bits) return;
  const std::size_t width = size_of(left.dtype);
  std::int64_t differ = 0, first = -1;
  for (std::int64_t k = 0; k < size(left); ++k) {
    if (std::memcmp(left_bits.data() + k * width, right_bits.data() + k * width, width) == 0) continue;
    if (differ++ == 0) first = k;
  }
  ADD_FAILURE() << what << ": " << differ << " of " << size(left) << " elements differ; the first is element " << first
                << ", " << reference::load(left.dtype, left_bits.data(), first) << " against "
                << reference::load(right.dtype, right_bits.data(), first);
}

void expect_same_outputs(const Arguments& left, const Arguments& right) {
  expect_same_bits(left.y, right.y, "y");
  ASSERT_EQ(left.final_states.has_value(), right.final_states.has_value());
  if (left.final_states) expect_same_bits(*left.final_states, *right.final_states, "final_states");
  ASSERT_EQ(left.chunk_states.has_value(), right.chunk_states.has_value());
  if (left.chunk_states) expect_same_bits(*left.chunk_states, *right.chunk_states, "chunk_states");
}

void expect_error(ErrorCode code, const std::vector<std::string>& words, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.what();
    for (const std::string& word : words) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos)
          << "no \"" << word << "\" in: " << error.what();
    }
    return;
  } catch (const std::exception& other) {
    ADD_FAILURE() << "not a tilemamba::Error but: " << other.what();
    return;
  }
  ADD_FAILURE() << "no error";
}

std::vector<std::string> run_again(const std::string& environment, const std::string& filter) {
  std::array<char, 4096> self{};
  if (readlink("/proc/self/exe", self.data(), self.size() - 1) < 0) {
    ADD_FAILURE() << "this program's own file cannot be found";
    return {};
  }
  const std::string command = environment + " " TILEMAMBA_TEST_EMULATOR " '" + self.data() +
                              "' --gtest_color=no --gtest_also_run_disabled_tests '--gtest_filter=" + filter + "'";
  std::FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) {
    ADD_FAILURE() << "cannot start: " << command;
    return {};
  }
  std::vector<std::string> lines;
  std::string all;
  std::array<char, 4096> line{};
  while (std::fgets(line.data(), line.size(), pipe) != nullptr) all += lines.emplace_back(line.data());
  EXPECT_EQ(pclose(pipe), 0) << command << '\n' << all;
  return lines;
}

bool BackendTest::run(const Arguments& arguments, const Options& options) {
  const bool ran = run_on(GetParam(), arguments, options);
  if (ran) ++ran_;
  return ran;
}

bool BackendTest::run(Call& call) {
  call.prepare();
  if (!run(call.arguments, call.options)) return false;
  EXPECT_EQ(call.damage(), "") << call.spec;
  return true;
}

bool BackendTest::run_within_bars(const Spec& wanted) {
  const Spec spec = fit(wanted);
  SCOPED_TRACE(to_string(spec));
  Call call(spec);
  if (!run(call)) return false;
  expect_within_bars(call.arguments, call.options, expected_of(spec));
  return true;
}

Spec BackendTest::fit(Spec spec) const {
  const std::map<DType, std::int64_t>& reach = reach_of(GetParam());
  if (reach.empty()) return spec;
  if (reach.count(spec.x) == 0) {
    const DType x = reach.rbegin()->first;
    // What is of x's type, or of dt's, stays so.
    const auto follow = [](DType& type, DType before, DType now) {
      if (type == before) type = now;
    };
    const DType dt = spec.dt;
    follow(spec.dt, spec.x, x);
    if (spec.dt_bias && *spec.dt_bias != DType::f32) follow(*spec.dt_bias, dt, spec.dt);
    if (spec.D != DType::f32) follow(spec.D, spec.x, x);
    follow(spec.y, spec.x, x);
    spec.x = x;
  }
  spec.state = std::min(spec.state, reach.at(spec.x));
  return spec;
}

std::vector<DType> BackendTest::types(std::initializer_list<DType> wanted) {
  std::vector<DType> taken;
  lacks_ = "it takes x of none of the types";
  for (const DType dtype : wanted) {
    if (reach_of(GetParam()).count(dtype) != 0) taken.push_back(dtype);
    lacks_ += ' ' + std::string(name(dtype));
  }
  if (!taken.empty()) lacks_.clear();
  return taken;
}

void BackendTest::TearDown() {
  if (IsSkipped()) return;
  if (ran_ == 0 && !lacks_.empty()) GTEST_SKIP() << GetParam() << ": " << lacks_;
  EXPECT_GT(ran_, 0) << GetParam() << " ran nothing in this test";
}

}  // namespace tilemamba::test
