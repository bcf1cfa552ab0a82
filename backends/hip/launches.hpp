// SPDX-License-Identifier: Apache-2.0
/// @file
/// The launches of a call, for whoever performs them.
#pragma once

#include "backends/hip/driver.hpp"

namespace tilemamba::hip {

/// How a kernel is to be launched.
struct Shape {
  int threads = 0;
  unsigned narrow_bytes = 0;  ///< local memory of a block
  unsigned wide_bytes = 0;    ///< the same where y is fp32 and x is not
  unsigned gate_bytes = 0;    ///< more where there is a gate

  [[nodiscard]] unsigned bytes(const Problem& problem) const {
    const bool wide = problem.y == DType::f32 && problem.x != DType::f32;
    return (wide ? wide_bytes : narrow_bytes) + (problem.z ? gate_bytes : 0);
  }
};
template <class W>
[[nodiscard]] constexpr Shape shape_of_fused() {
  return {W::threads, FusedLayout<W>::narrow_bytes, FusedLayout<W>::wide_bytes, FusedLayout<W>::gate_bytes};
}
template <class W>
[[nodiscard]] constexpr Shape shape_of_sum_segments() {
  return {W::threads, StateLayout<W>::bytes, StateLayout<W>::bytes, 0};
}

enum class Step { tabulate, sum_segments, fused };

/// launch(step, blocks, heads, column_blocks) for each launch of a call, in order.
template <class Launch>
void each_launch(const Call& call, const Problem& problem, const Policy& policy, Launch&& launch) {
  const auto& sequences = call.sequences;
  const HeadBlocks out(call, policy.out.channels, policy.out.workers);
  const HeadBlocks state(call, policy.state.channels, policy.state.workers);
  const int column_blocks = static_cast<int>(kernels::divide_up<std::int64_t>(problem.state, policy.state.state));
  if (sequences.cu_seqlens != nullptr) launch(Step::tabulate, std::int64_t{1}, out, 1);
  if (sequences.slots > 0)
    launch(Step::sum_segments, sequences.most_units() * state.slices() * column_blocks, state, column_blocks);
  launch(Step::fused, sequences.most_units() * out.count, out, 1);
}

}  // namespace tilemamba::hip
