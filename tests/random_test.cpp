// SPDX-License-Identifier: Apache-2.0
/// @file
/// Problems drawn at random, every feature in play, against the recurrence; bars computed as for the stored cases.
/// To see a failure again: TILEMAMBA_TEST_SEED=<the seed it names> TILEMAMBA_TEST_DRAWS=0.
#include "tests/backend_test.hpp"

namespace tilemamba::test {
namespace {

class RandomProblems : public BackendTest {};

TEST_P(RandomProblems, WithinBars) {
  for (std::int64_t k = 0; k < draws(40); ++k) {
    const std::uint64_t seed = first_seed() + static_cast<std::uint64_t>(k);
    SCOPED_TRACE("TILEMAMBA_TEST_SEED=" + std::to_string(seed));
    (void)run_within_bars(draw(seed));
    if (HasFailure()) return;
  }
}

TILEMAMBA_ON_EVERY_TARGET(RandomProblems);

}  // namespace
}  // namespace tilemamba::test
