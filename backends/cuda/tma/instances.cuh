// SPDX-License-Identifier: Apache-2.0
/// @file
/// From the table of variants to kernels: what is listed there is compiled, and nothing else.
#pragma once

#include <utility>

#include "backends/cuda/tma/score_chunks.cuh"
#include "backends/cuda/tma/sum_segments.cuh"
#include "backends/cuda/tma/walk.cuh"

namespace tilemamba::cuda::tma {

template <class K>
Kernel kernel_of_scores() {
  return {reinterpret_cast<const void*>(&score_chunks<K>), K::threads, K::shared_bytes};
}

/// `n`: columns of a block of the walk, of which `parts` make a state; in the first pass, of `sum_parts`.
template <class Cores, class E, int n, int parts = 1, int sum_parts = parts>
Kernels find_kernels(std::size_t wanted) {
  Kernels found;
  const auto look = [&]<std::size_t index>(std::integral_constant<std::size_t, index>) {
    constexpr Features features = variants[index];
    if constexpr (parts > 1 || !features.scored) {
      if (index != wanted) return;
      using Out = WalkKernel<Cores, E, n, variants[index], parts>;
      using Sum = SumKernel<Cores, E, n * parts / sum_parts, Features{variants[index].documents}, sum_parts>;
      found.walk = {reinterpret_cast<const void*>(&walk<Out>), Out::threads, Out::shared_bytes};
      if constexpr (!features.chained)
        found.sum_segments = {reinterpret_cast<const void*>(&sum_segments<Sum>), Sum::threads, Sum::shared_bytes};
      if constexpr (features.scored) found.score_chunks = kernel_of_scores<ScoreKernel<Cores, E, n, parts>>();
    }
  };
  [&]<std::size_t... index>(std::index_sequence<index...>) {
    (look(std::integral_constant<std::size_t, index>{}), ...);
  }
  (std::make_index_sequence<variants.size()>{});
  return found;
}

}  // namespace tilemamba::cuda::tma
