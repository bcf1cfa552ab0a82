// SPDX-License-Identifier: Apache-2.0
/// @file
/// From the table of policies to kernels: what is listed there is compiled, and nothing else.
#pragma once

#include <utility>

#include "backends/hip/device.hpp"
#include "backends/hip/kernels.hpp"

namespace tilemamba::hip {

template <class W, Step step>
__global__ void __launch_bounds__(W::threads) kernel(const Call call, const HeadBlocks heads, int column_blocks) {
  perform<W, step>(call, heads, column_blocks);
}

template <class Target, DType type>
Kernels kernels_for(std::size_t wanted) {
  Kernels found;
  [&]<std::size_t... index>(std::index_sequence<index...>) {
    const auto look = [&]<std::size_t i>(std::integral_constant<std::size_t, i>) {
      constexpr Policy policy = policies_of<Target>[i];
      if constexpr (policy.x == type) {
        if (i != wanted) return;
        each_step<policy.schedule>([&]<Step step>(std::integral_constant<Step, step>) {
          using W = Worker<Device<Target>, type, tiling_of(policies_of<Target>[i], step)>;
          found[static_cast<std::size_t>(step)] = {reinterpret_cast<const void*>(&kernel<W, step>),
                                                   shape_of<W, step>()};
        });
      }
    };
    (look(std::integral_constant<std::size_t, index>{}), ...);
  }
  (std::make_index_sequence<policies_of<Target>.size()>{});
  return found;
}

}  // namespace tilemamba::hip
