// SPDX-License-Identifier: Apache-2.0
/// @file
/// Problems for tests, drawn from a seed.
#pragma once

#include <cstdint>

#include "core/calls.hpp"

namespace tilemamba::test {

using namespace calls;

/// A problem as the seed has it, all features in play, with at most `work` state updates (tokens x heads x P x N).
[[nodiscard]] Spec draw(std::uint64_t seed, double work = 2e6);

/// The seed that this run's random tests start from: TILEMAMBA_TEST_SEED, else 1.
[[nodiscard]] std::uint64_t first_seed();
/// How many draws a random test makes: `usual`, scaled by TILEMAMBA_TEST_DRAWS (a factor; 0.1 suits a sanitizer's
/// build).
[[nodiscard]] std::int64_t draws(std::int64_t usual);

}  // namespace tilemamba::test
