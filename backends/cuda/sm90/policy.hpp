// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tile configurations of the wgmma backend, in the order of preference among those that the state fits in.
#pragma once

#include "backends/cuda/tma/policy.hpp"

namespace tilemamba::cuda::sm90 {

inline constexpr std::array policies = {
    tma::Policy{"wgmma-q64n64w2", 64, 1, 1, {6.17, 1.56, 3.34, 0.29, 4.46, 0.64, 5.82, 2.07, 0.32}},
    tma::Policy{"wgmma-q64n128w2", 128, 1, 1, {10.12, 1.67, 3.19, 0.57, 6.36, 0.97, 10.27, 2.40, 0.07}},
    tma::Policy{
        "wgmma-q64n256w2c2", 256, 2, 1, {10.99, 1.97, 4.20, 0.42, 8.06, 1.14, 10.56, 2.60, 0.27, 3, 0.018, 1.80}},
    tma::Policy{
        "wgmma-q64n512w2c4", 512, 4, 2, {11.95, 1.72, 4.55, 0.72, 5.18, 1.45, 3.36, 3.55, 4.32, 3, 0.033, 1.52}},
};

}  // namespace tilemamba::cuda::sm90
