// SPDX-License-Identifier: Apache-2.0
/// @file
/// The launches of a call, for whoever performs them.
#pragma once

#include <array>
#include <type_traits>
#include <utility>

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
/// The kernels, but for the one that fills the tables of packed sequences, which has no tiles.
enum class Step { tabulate, sum_segments, fused, cumsum, pass_state, compute_out };
template <Schedule>
inline constexpr std::array<Step, 2> steps_of = {Step::sum_segments, Step::fused};
template <>
inline constexpr std::array<Step, 3> steps_of<Schedule::staged> = {Step::cumsum, Step::pass_state, Step::compute_out};

/// f(std::integral_constant<Step, step>{}) for each step of a schedule.
template <Schedule schedule, class F>
constexpr void each_step(F f) {
  [&]<std::size_t... k>(std::index_sequence<k...>) {
    (f(std::integral_constant<Step, steps_of<schedule>[k]> {}), ...);
  }
  (std::make_index_sequence<steps_of<schedule>.size()>{});
}

/// The tiles of a step.
[[nodiscard]] constexpr Tiling tiling_of(const Policy& policy, Step step) {
  return step == Step::fused || step == Step::compute_out ? policy.out : policy.state;
}

template <class W, Step step>
[[nodiscard]] constexpr Shape shape_of() {
  if constexpr (step == Step::fused || step == Step::compute_out) {
    return {W::threads, FusedLayout<W>::narrow_bytes, FusedLayout<W>::wide_bytes, FusedLayout<W>::gate_bytes};
  } else if constexpr (step == Step::cumsum) {
    return {W::threads, W::waves * Sizes<W>::decays, W::waves * Sizes<W>::decays, 0};
  } else {
    return {W::threads, StateLayout<W>::bytes, StateLayout<W>::bytes, 0};
  }
}
template <class W, Step step>
TILEMAMBA_FN void perform(const Call& call, const HeadBlocks& heads, int column_blocks) {
  if constexpr (step == Step::sum_segments) sum_segments<W>(call, heads, column_blocks);
  if constexpr (step == Step::fused) fused<W>(call, heads);
  if constexpr (step == Step::cumsum) cumsum<W>(call);
  if constexpr (step == Step::pass_state) pass_state<W>(call, heads, column_blocks);
  if constexpr (step == Step::compute_out) compute_out<W>(call, heads);
}

/// launch(step, blocks, heads, column_blocks) for each launch of a call, in order.
template <class Launch>
void each_launch(const Call& call, const Problem& problem, const Policy& policy, Launch&& launch) {
  const auto& sequences = call.sequences;
  const HeadBlocks out(call, policy.out.channels, policy.out.workers);
  const HeadBlocks state(call, policy.state.channels, policy.state.workers);
  const int column_blocks = static_cast<int>(kernels::divide_up<std::int64_t>(problem.state, policy.state.state));
  if (sequences.cu_seqlens != nullptr) launch(Step::tabulate, std::int64_t{1}, out, 1);
  if (policy.schedule == Schedule::staged) {
    const std::int64_t waves = policy.state.waves();
    launch(Step::cumsum, kernels::divide_up(sequences.most_units() * call.heads, waves), state, 1);
    launch(Step::pass_state, sequences.count * state.slices() * column_blocks, state, column_blocks);
    return launch(Step::compute_out, sequences.most_units() * out.count, out, 1);
  }
  if (sequences.slots > 0)
    launch(Step::sum_segments, sequences.most_units() * state.slices() * column_blocks, state, column_blocks);
  launch(Step::fused, sequences.most_units() * out.count, out, 1);
}

}  // namespace tilemamba::hip
