// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda/common/ptx.cuh"
#include "backends/cuda/sm80/kernels.hpp"
#include "kernels/call.hpp"

namespace tilemamba::cuda::sm80 {
namespace {

constexpr int most_threads = 512;

/// A thread has a run of sequences; what all runs before it want is summed step by step. One block, of any number of
/// threads.
__global__ void __launch_bounds__(most_threads) tabulate(const __grid_constant__ kernels::Call call) {
  using Wanted = kernels::Sequences::Wanted;
  __shared__ Wanted sums[2][most_threads];
  const kernels::Sequences& sequences = call.sequences;
  const int me = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const std::int64_t run = kernels::divide_up<std::int64_t>(sequences.count, threads);
  const std::int64_t begin = kernels::least(me * run, sequences.count);
  const std::int64_t end = kernels::least(begin + run, sequences.count);
  Wanted mine{};
  for (std::int64_t s = begin; s < end; ++s) mine.add(sequences.wanted(s));
  int side = 0;
  sums[side][me] = mine;
  for (int distance = 1; distance < threads; distance *= 2, side ^= 1) {
    __syncthreads();
    Wanted sum = sums[side][me];
    if (me >= distance) sum.add(sums[side][me - distance]);
    sums[side ^ 1][me] = sum;
  }
  __syncthreads();
  if (begin < end || me == 0) sequences.tabulate(begin, end, me == 0 ? Wanted{} : sums[side][me - 1]);
}

}  // namespace

Kernel tabulate_kernel() { return {reinterpret_cast<const void*>(&tabulate), most_threads}; }

}  // namespace tilemamba::cuda::sm80
