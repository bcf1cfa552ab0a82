// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tile configurations of the wgmma backend, in the order of preference among those that the state fits in.
#pragma once

#include "backends/cuda/tma/policy.hpp"

namespace tilemamba::cuda::sm90 {

inline constexpr std::array policies = {
    tma::Policy{"wgmma-q64n64w2", 64, 1, 1, {5.94, 1.48, 3.25, 0.41, 7.78, 0.67, 5.78, 2.06, 0.38}},
    tma::Policy{"wgmma-q64n128w2", 128, 1, 1, {9.58, 1.70, 3.02, 0.67, 8.88, 0.99, 9.97, 2.42, 0.05}},
    tma::Policy{"wgmma-q64n256w2c2", 256, 2, 1, {10.22, 2.07, 4.45, 0.44, 5.80, 1.13, 10.07, 2.73, 0.18}},
    tma::Policy{"wgmma-q64n512w2c4", 512, 4, 2, {8.47, 1.94, 6.80, 0.54, 2.47, 1.35, 3.81, 2.54, 7.91}},
};

}  // namespace tilemamba::cuda::sm90
