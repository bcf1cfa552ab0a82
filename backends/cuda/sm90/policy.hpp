// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tile configurations of the wgmma backend, in the order of preference among those that the state fits in.
#pragma once

#include "backends/cuda/tma/policy.hpp"

namespace tilemamba::cuda::sm90 {

inline constexpr std::array policies = {
    tma::Policy{"wgmma-q64n64w2", 64, 1, {1.5, 0.7, 5.0, 4.0, 0.5}},
    tma::Policy{"wgmma-q64n128w2", 128, 1, {1.85, 0.78, 5.0, 4.0, 0.8}},
    tma::Policy{"wgmma-q64n256w2c2", 256, 2, {2.1, 0.78, 6.0, 4.0, 0.8}},
    tma::Policy{"wgmma-q64n512w2c4", 512, 4, {2.1, 0.78, 6.0, 4.0, 0.8}},
};

}  // namespace tilemamba::cuda::sm90
