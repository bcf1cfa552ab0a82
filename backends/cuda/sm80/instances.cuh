// SPDX-License-Identifier: Apache-2.0
/// @file
/// From the table of policies to kernels: what is listed there is compiled, and nothing else.
#pragma once

#include <algorithm>
#include <utility>

#include "backends/cuda/sm80/driver.cuh"
#include "backends/cuda/sm80/kernels.hpp"

namespace tilemamba::cuda::sm80 {

template <class Function>
const void* address(Function* function) {
  return reinterpret_cast<const void*>(function);
}

/// Whether a policy says what the layout of its blocks needs, and no less than its other kernels do.
template <class Layout>
constexpr bool says(const SharedMemory& bytes, unsigned others) {
  return bytes == SharedMemory{Layout::narrow_bytes, Layout::wide_bytes, Layout::gate_bytes} && others <= bytes.narrow;
}

template <class E, std::size_t index>
Kernels make_kernels() {
  constexpr Policy policy = policies[index];
  using Out = Worker<E, policy.out, false>;
  using State = Worker<E, policy.state, false>;
  [[maybe_unused]] constexpr unsigned ring = StateLayout<State>::bytes;
  Kernels kernels;
  if constexpr (policy.schedule == Schedule::fused) {
    using Layout = FusedLayout<Out>;
    static_assert(says<Layout>(policy.shared_memory, ring));
    kernels.sum_segments = {address(sum_segments<State>), State::threads, {ring, ring, 0}};
    kernels.fused = {address(fused<Out>), Out::threads, policy.shared_memory};
    if constexpr (E::size == 2) {
      using PlainOut = Worker<E, policy.out, true>;
      using PlainState = Worker<E, policy.state, true>;
      kernels.plain_sum_segments = {address(sum_segments<PlainState>), State::threads, {ring, ring, 0}};
      kernels.plain_fused = {address(fused<PlainOut>), Out::threads, policy.shared_memory};
    }
  } else {
    using Layout = OutLayout<Out>;
    static_assert(
        policy.out.columns() < 512 || policy.shared_memory.wide + policy.shared_memory.gate <= least_shared_memory,
        "the last resort must fit everywhere");
    constexpr unsigned vectors = 4 * Sizes<State>::decays;
    static_assert(says<Layout>(policy.shared_memory, std::max(ring, vectors)));
    kernels.cumsum = {address(cumsum<State>), 128, {vectors, vectors, 0}};
    kernels.pass_state = {address(pass_state<State>), State::threads, {ring, ring, 0}};
    kernels.compute_out = {address(compute_out<Out>), Out::threads, policy.shared_memory};
  }
  return kernels;
}

/// The kernels of the policy at run-time index `wanted`, which is of this type and schedule.
template <class E, Schedule schedule>
Kernels find_kernels(std::size_t wanted) {
  Kernels found;
  [&]<std::size_t... index>(std::index_sequence<index...>) {
    const auto look = [&]<std::size_t i>(std::integral_constant<std::size_t, i>) {
      if constexpr (policies[i].x == E::dtype && policies[i].schedule == schedule) {
        if (i == wanted) found = make_kernels<E, i>();
      }
    };
    (look(std::integral_constant<std::size_t, index>{}), ...);
  }
  (std::make_index_sequence<policies.size()>{});
  return found;
}

}  // namespace tilemamba::cuda::sm80
