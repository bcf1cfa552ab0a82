// SPDX-License-Identifier: Apache-2.0
/// @file
/// How measured times are judged.
#pragma once

#include <cstddef>
#include <vector>

namespace tilemamba::tuning {

/// The index of the candidate that wins, by its times, of which there are several; the default's times come first. The
/// default stays unless a candidate gains more than 2 %, by the medians and by the shortest times, and more than the
/// noise: three quarters of its times lie below three quarters of the default's. Fewer than three times prove nothing.
[[nodiscard]] std::size_t winner(std::vector<std::vector<double>> seconds);

/// The middle one; infinite if there is none.
[[nodiscard]] double median(std::vector<double> values);

}  // namespace tilemamba::tuning
