// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the walk needs to know of wgmma.
#pragma once

#include "backends/cuda/sm90/heads.cuh"
#include "backends/cuda/sm90/scores.cuh"

namespace tilemamba::cuda::sm90 {

struct Cores {
  template <class K>
  using HeadWorker = sm90::HeadWorker<K>;
  template <class K>
  using ScoreWorker = sm90::ScoreWorker<K>;

  /// Unless something else needs the registers: a gate, or the fp32 weights of fp16 beside documents or a chain.
  static constexpr bool prepares_early(DType type, Features features) {
    return !features.rich && !((features.documents || features.chained) && type == DType::f16);
  }
  // Registers go where the accumulators are.
  static constexpr int head_registers(int n, Features features, int parts) {
    if (parts > 1) return features.scored ? 200 : 184;
    return n == 64 ? 160 : 176;
  }
  static constexpr int score_registers(int n, Features features, int parts) {
    if (parts > 1) return features.scored ? 72 : 104;
    if (n == 64) return 144;
    return features.documents ? 112 : 120;
  }

  // No memory of its own.
  static constexpr unsigned shared_bytes = 0;
  static TILEMAMBA_DEVICE void init_barriers(unsigned) {}
  template <class K>
  static TILEMAMBA_DEVICE void begin() {}
  template <class K>
  static TILEMAMBA_DEVICE void end() {}
};

}  // namespace tilemamba::cuda::sm90
