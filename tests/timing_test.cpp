// SPDX-License-Identifier: Apache-2.0
// Times of calls, on every backend that this machine must be able to run.
#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "core/golden.hpp"
#include "core/mirror.hpp"
#include "core/sample.hpp"
#include "core/workload.hpp"
#include "tests/backend_test.hpp"

namespace tilemamba::test {
namespace {

/// What is timed are calls that do their work, on all of the copies; longer calls take longer.
TEST(Timing, IsOfCallsThatWork) {
  for (const std::string& backend : expected_backends()) {
    SCOPED_TRACE(backend);
    double of_short = 0;
    // On a loaded machine threads wait for each other, in the shortest calls too: up to 12 ms.
    for (const std::int64_t tokens : {64, 16384}) {
      const workload::Inputs inputs({1, tokens, 4, 64, 1, 64}, DType::f32);
      golden::GuardedOutputs outputs(inputs.arguments(), {}, true);
      const Arguments& call = outputs.arguments();
      const Sample sample(Problem::of(call), call);
      outputs.poison();
      const Plan plan(Problem::of(placed_on(home_of(backend), call)), {backend, Schedule::automatic, {}});
      std::vector<Mirror> copies;
      for (int i = 0; i < 3; ++i) copies.emplace_back(plan, call);
      Timing timing(plan, {&copies[0], &copies[1], &copies[2]});
      const Timing::Taken taken = timing.take();
      EXPECT_LT(taken.seconds, 10);
      EXPECT_GE(taken.calls, 1u);
      const bool on_host = home_of(backend).kind == DeviceKind::cpu;  // all of them are the host's tensors
      for (std::size_t i = 0; i < std::min(copies.size(), taken.calls); ++i) {
        if (!on_host) outputs.poison();
        copies[i].fetch();
        EXPECT_TRUE(sample.within(1e-5, call));
      }
      EXPECT_GT(taken.seconds, of_short);
      of_short = taken.seconds;
    }
  }
}

/// A call that fails has no time: here its tensors are those of another plan.
TEST(Timing, FailsWithTheCall) {
  for (const std::string& backend : expected_backends()) {
    SCOPED_TRACE(backend);
    const workload::Inputs small({1, 64, 4, 64, 1, 64}, DType::f32), large({1, 4096, 4, 64, 1, 64}, DType::f32);
    const golden::GuardedOutputs of_small(small.arguments(), {}, true), of_large(large.arguments(), {}, true);
    const Device home = home_of(backend);
    const auto plan_of = [&](const golden::GuardedOutputs& outputs) {
      return Plan(Problem::of(placed_on(home, outputs.arguments())), {backend, Schedule::automatic, {}});
    };
    const Mirror mirror(plan_of(of_small), of_small.arguments());
    const Plan plan = plan_of(of_large);
    expect_error(ErrorCode::invalid_argument, {"tokens T is 64", "4096"},
                 [&] { (void)Timing(plan, {&mirror}).take(); });
  }
}

}  // namespace
}  // namespace tilemamba::test
