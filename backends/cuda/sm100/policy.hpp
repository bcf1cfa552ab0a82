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
    tma::Policy{"tcgen05-q64n128w2", 128, 1, 1, {10.08, 1.69, 3.10, 0.65, 9.16, 0.98, 10.26, 2.42, 0.05}},
    tma::Policy{"tcgen05-q64n256w2c2", 256, 2, 2, {10.72, 2.00, 3.37, 0.65, 5.12, 1.23, 9.73, 2.80, 0.26}},
    tma::Policy{"tcgen05-q64n512w2c4", 512, 4, 4, {9.63, 1.70, 6.57, 0.65, 4.86, 1.77, 3.07, 2.47, 7.66}},
};

}  // namespace tilemamba::cuda::sm100
