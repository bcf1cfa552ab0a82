// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the walk needs to know of tcgen05.
#pragma once

#include "backends/cuda/sm100/heads.cuh"
#include "backends/cuda/sm100/scores.cuh"

namespace tilemamba::cuda::sm100 {

struct Cores {
  template <class K>
  using HeadWorker = sm100::HeadWorker<K>;
  template <class K>
  using ScoreWorker = sm100::ScoreWorker<K>;

  /// States need no registers.
  static constexpr bool prepares_early(DType, Features) { return true; }
  static constexpr int head_registers(int, Features, int) { return 176; }
  static constexpr int score_registers(int, Features, int) { return 112; }

  // The address of tensor memory, and the barriers of products.
  static constexpr unsigned shared_bytes = 8 + 8 * product_barriers;
  static TILEMAMBA_DEVICE void init_barriers(unsigned at) {
    for (int k = 0; k < product_barriers; ++k) barrier_init(at + 8 + 8 * k, 1);
  }
  /// Of tensor memory. Where there are heads nobody else is on the multiprocessor: a block has nearly all of its shared
  /// memory. Of those that make scores two are.
  template <class K>
  static constexpr unsigned columns = allocated_columns(requires { typename K::HeadWorker; } ? InputsAt::end
                                                                                             : ScoresAt::end);
  /// All threads.
  template <class K>
  static TILEMAMBA_DEVICE void begin() {
    if (threadIdx.x < 32) {
      tensor_allocate(shared_address(K::cores_at), columns<K>);
      tensor_relinquish();
    }
    meet(0, K::threads);
  }
  template <class K>
  static TILEMAMBA_DEVICE void end() {
    fence_before_sync();
    meet(0, K::threads);
    if (threadIdx.x >= 32) return;
    fence_after_sync();
    tensor_release(*reinterpret_cast<const unsigned*>(shared_memory + K::cores_at), columns<K>);
  }
};

}  // namespace tilemamba::cuda::sm100
