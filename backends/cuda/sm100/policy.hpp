// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tile configurations of the tcgen05 backend, in the order of preference among those that the state fits in.
///
/// Every product is accumulated transposed, as on Hopper: channels are the 64 rows of the instruction. So the packed
/// state is an operand where it lies, in tensor memory, which only a product's first operand may be; and with 64 rows
/// a warp loads of its 16 rows what wgmma would have left in its registers. The other way round, or with 128 rows, the
/// state would have to go through shared memory to be multiplied. A state of up to 64 columns is padded to 128: its
/// models are few.
///
/// No device has been asked what anything costs: the figures are those of an H200.
#pragma once

#include "backends/cuda/tma/policy.hpp"

namespace tilemamba::cuda::sm100 {

inline constexpr std::array policies = {
    tma::Policy{"tcgen05-q64n128w2", 128, 1, 1, {10.12, 1.67, 3.19, 0.57, 6.36, 0.97, 10.27, 2.40, 0.07}},
    tma::Policy{
        "tcgen05-q64n256w2c2", 256, 2, 2, {10.99, 1.97, 4.20, 0.57, 8.06, 1.14, 10.56, 2.60, 0.27, 3, 0.018, 1.80}},
    tma::Policy{
        "tcgen05-q64n512w2c4", 512, 4, 4, {11.95, 1.72, 4.55, 0.57, 5.18, 1.45, 3.36, 3.55, 4.32, 3, 0.033, 1.52}},
};

}  // namespace tilemamba::cuda::sm100
