// SPDX-License-Identifier: Apache-2.0
/// @file
/// From the table of policies to kernels: what is listed there is compiled, and nothing else.
#pragma once

#include <utility>

#include "backends/hip/device.hpp"
#include "backends/hip/kernels.hpp"

namespace tilemamba::hip {

template <class W>
__global__ void __launch_bounds__(W::threads) fused_kernel(const Call call, const HeadBlocks heads) {
  fused<W>(call, heads);
}
template <class W>
__global__ void __launch_bounds__(W::threads)
    sum_segments_kernel(const Call call, const HeadBlocks heads, int column_blocks) {
  sum_segments<W>(call, heads, column_blocks);
}

template <class Target, DType type>
Kernels kernels_for(std::size_t wanted) {
  Kernels found;
  [&]<std::size_t... index>(std::index_sequence<index...>) {
    const auto look = [&]<std::size_t i>(std::integral_constant<std::size_t, i>) {
      constexpr Policy policy = policies_of<Target>[i];
      if constexpr (policy.x == type) {
        if (i != wanted) return;
        using Out = Worker<Device<Target>, type, policy.out>;
        using State = Worker<Device<Target>, type, policy.state>;
        found.fused = {reinterpret_cast<const void*>(&fused_kernel<Out>), shape_of_fused<Out>()};
        found.sum_segments = {reinterpret_cast<const void*>(&sum_segments_kernel<State>),
                              shape_of_sum_segments<State>()};
      }
    };
    (look(std::integral_constant<std::size_t, index>{}), ...);
  }
  (std::make_index_sequence<policies_of<Target>.size()>{});
  return found;
}

}  // namespace tilemamba::hip
