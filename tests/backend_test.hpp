// SPDX-License-Identifier: Apache-2.0
/// @file
/// What every test of a backend stands on. A test's body is written once and stamped for each target: a backend, a
/// schedule and a policy, forced by name. A test fails if something else ran, or if nothing did.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <tilemamba/tilemamba.hpp>

#include "core/golden.hpp"
#include "tests/problems.hpp"

namespace tilemamba::test {

struct Target {
  std::string backend;
  Schedule schedule = Schedule::automatic;
  std::string policy;
  [[nodiscard]] Choice choice() const { return {backend, schedule, policy}; }
};
std::ostream& operator<<(std::ostream& out, const Target& target);

/// Members that this build must be able to run here.
[[nodiscard]] std::vector<std::string> expected_backends();
/// Every schedule and policy of every expected backend that can run, and for each backend what it chooses when it is
/// free to.
[[nodiscard]] const std::vector<Target>& targets();
/// One target a backend and schedule: for tests of what does not depend on the tile.
[[nodiscard]] std::vector<Target> default_targets();
[[nodiscard]] std::string target_name(const testing::TestParamInfo<Target>& target);

/// What a target takes: its policy may be made for a type or a size of state. @returns for each type of x the largest N
/// of those tried (16, 64, 128, 256, 512).
[[nodiscard]] const std::map<DType, std::int64_t>& reach_of(const Target& target);

/// The plan of a call whose tensors are to be where the target can reach them.
[[nodiscard]] Plan plan_on(const Target& target, const Arguments& arguments, const Options& options);
/// The one-call form, forced, on tensors that are where the target can reach them; the outputs come back.
void scan_on(const Target& target, const Arguments& arguments, const Options& options);

/// Plans and runs as `target` forces it, with a workspace of exactly the bytes asked for, full of NaN and watched.
/// @returns false if this policy refuses the problem (a policy may, a whole schedule of a CPU backend may not).
/// Fails the test if another backend, schedule or policy was bound, if anything beside the workspace was written to, or
/// if a refusal gives no reason.
[[nodiscard]] bool run_on(const Target& target, const Arguments& arguments, const Options& options);

using calls::expected_of;
/// The same for `Call(spec)` as it was made; remembered, since every target asks again.
[[nodiscard]] const Expected& expected_of(const Spec& spec);

/// Fails unless the outputs in `arguments` are within their bars. @returns the worst share of a bar.
double expect_within_bars(const Arguments& arguments, const Options& options, const Expected& expected);

/// Fails, saying how many elements differ and the first, unless the two tensors hold the same values bit for bit.
void expect_same_bits(const Tensor& left, const Tensor& right, const std::string& what);
/// The same for all outputs of two calls.
void expect_same_outputs(const Arguments& left, const Arguments& right);

/// Fails unless `call` throws `Error` with this code whose message holds every one of `words`.
void expect_error(ErrorCode code, const std::vector<std::string>& words, const std::function<void()>& call);

/// Runs this program again in a process of its own with `environment` ("NAME=value ...") and the tests of `filter`,
/// disabled ones included. @returns its output in lines; fails the test if it did not end well.
[[nodiscard]] std::vector<std::string> run_again(const std::string& environment, const std::string& filter);

/// Sets a variable of the environment for a scope; null takes it away.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    value == nullptr ? unsetenv(name) : setenv(name, value, 1);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

class BackendTest : public testing::TestWithParam<Target> {
 protected:
  [[nodiscard]] bool run(const Arguments& arguments, const Options& options = {});
  /// Runs, and fails if the call touched anything but its outputs.
  [[nodiscard]] bool run(Call& call);
  /// Runs `Call(fit(spec))` and compares it with the recurrence.
  [[nodiscard]] bool run_within_bars(const Spec& spec);
  /// The same in a type that the target takes and with a state that it has room for.
  [[nodiscard]] Spec fit(Spec spec) const;
  /// Those of `wanted` that the target takes as the type of x. If a test runs nothing because there are none, it is
  /// skipped and says so.
  [[nodiscard]] std::vector<DType> types(std::initializer_list<DType> wanted);
  void TearDown() override;

 private:
  int ran_ = 0;
  std::string lacks_;
};

#define TILEMAMBA_ON_EVERY_TARGET(suite) \
  INSTANTIATE_TEST_SUITE_P(On, suite, testing::ValuesIn(tilemamba::test::targets()), tilemamba::test::target_name)
#define TILEMAMBA_ON_DEFAULT_TARGETS(suite)                                                  \
  INSTANTIATE_TEST_SUITE_P(On, suite, testing::ValuesIn(tilemamba::test::default_targets()), \
                           tilemamba::test::target_name)

}  // namespace tilemamba::test
