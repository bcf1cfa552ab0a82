// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tile configurations of the wgmma backend, in the order of preference among those that the state fits in.
#pragma once

#include "backends/cuda/tma/policy.hpp"

namespace tilemamba::cuda::sm90 {

inline constexpr std::array policies = {
    tma::Policy{"wgmma-q64n64w2", 64, 1, 1, {6.39, 1.54, 2.65, 0.40, 7.31, 0.69, 5.55, 2.11, 0.39}},
    tma::Policy{"wgmma-q64n128w2", 128, 1, 1, {10.08, 1.69, 3.10, 0.65, 9.16, 0.98, 10.26, 2.42, 0.05}},
    tma::Policy{"wgmma-q64n256w2c2", 256, 2, 1, {10.72, 2.00, 3.37, 0.67, 5.12, 1.23, 9.73, 2.80, 0.26}},
    tma::Policy{"wgmma-q64n512w2c4", 512, 4, 2, {9.63, 1.70, 6.57, 0.88, 4.86, 1.77, 3.07, 2.47, 7.66}},
};

}  // namespace tilemamba::cuda::sm90
