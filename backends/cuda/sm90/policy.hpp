// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tile configurations of the wgmma backend, in the order of preference among those that the state fits in.
#pragma once

#include "backends/cuda/tma/policy.hpp"

namespace tilemamba::cuda::sm90 {

inline constexpr std::array policies = {
    tma::Policy{"wgmma-q64n64w2", 64, 1, 1, {1.4, 0.5, 4.0, 2.0, 3.5, 1.3, 3.3, 2.5, 0.1}},
    tma::Policy{"wgmma-q64n128w2", 128, 1, 1, {1.75, 0.6, 5.3, 4.1, 4.5, 1.3, 4.6, 3.0, 0.3}},
    tma::Policy{"wgmma-q64n256w2c2", 256, 2, 1, {1.9, 0.65, 10.5, 4.0, 4.0, 1.7, 1.8, 3.2, 0.2}},
    tma::Policy{"wgmma-q64n512w2c4", 512, 4, 2, {1.9, 0.75, 10.5, 4.0, 4.0, 2.2, 10.5, 2.8, 0.2}},
};

}  // namespace tilemamba::cuda::sm90
