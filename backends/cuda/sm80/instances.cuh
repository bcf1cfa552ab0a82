// SPDX-License-Identifier: Apache-2.0
/// @file
/// From the table of policies to kernels: what is listed there is compiled, and nothing else.
#pragma once

#include <algorithm>
#include <utility>

#include "backends/cuda/sm80/driver.cuh"
#include "backends/cuda/sm80/kernels.hpp"
#include "backends/cuda/sm80/tf32.cuh"

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

template <class E, std::size_t index, bool plain>
Kernels::Two make_two() {
  constexpr Policy policy = policies[index];
  using Out = Worker<E, policy.out, plain>;
  using State = Worker<E, policy.state, plain>;
  constexpr unsigned ring = StateLayout<State>::bytes;
  Kernels::Two two{{nullptr, State::threads, {ring, ring, 0}}, {nullptr, Out::threads, policy.shared_memory}};
  if constexpr (policy.schedule == Schedule::fused) {
    static_assert(says<FusedLayout<Out>>(policy.shared_memory, ring));
    two.states.function = address(sum_segments<State>);
    two.outputs.function = address(fused<Out>);
  } else {
    static_assert(says<OutLayout<Out>>(policy.shared_memory, ring));
    two.states.function = address(pass_state<State>);
    two.states.threads += decay_threads;
    two.outputs.function = address(compute_out<Out>);
  }
  return two;
}

template <class E, std::size_t index>
Kernels make_kernels() {
  Kernels kernels;
  kernels.any = make_two<E, index, false>();
  if constexpr (E::size == 2) {
    kernels.plain = make_two<E, index, true>();
  } else {
    kernels.tf32 = make_two<Tf32, index, false>();
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
