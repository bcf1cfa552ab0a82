// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls of the HIP backend on machines that the host plays.
#pragma once

#include <string>
#include <type_traits>

#include "backends/hip/launches.hpp"
#include "tests/hip/stand_in.hpp"

namespace tilemamba::test {

/// All launches of a call, under a policy with these tiles, on a machine M. @returns the first fault, or "".
template <class M, Schedule schedule, DType type, hip::Tiling out, hip::Tiling state>
std::string play(const kernels::Call& call, const Problem& problem) {
  constexpr hip::Policy policy{"played", schedule, type, out, state};
  std::string fault;
  hip::each_launch(call, problem, policy,
                   [&](hip::Step step, std::int64_t blocks, const hip::HeadBlocks& heads, int column_blocks) {
                     if (step == hip::Step::tabulate) return call.sequences.tabulate();
                     hip::each_step<schedule>([&]<hip::Step its>(std::integral_constant<hip::Step, its>) {
                       if (step != its || !fault.empty()) return;
                       using W = hip::Worker<M, type, hip::tiling_of(policy, its)>;
                       constexpr hip::Shape shape = hip::shape_of<W, its>();
                       fault = lanes::run({blocks, shape.threads, M::Target::wave, shape.bytes(problem)},
                                          [&] { hip::perform<W, its>(call, heads, column_blocks); });
                     });
                   });
  return fault;
}

}  // namespace tilemamba::test
