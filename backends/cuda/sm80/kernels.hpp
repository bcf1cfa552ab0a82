// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the host knows of the kernels, which are compiled in files of their own.
#pragma once

#include "backends/cuda/sm80/policy.hpp"
#include "kernels/call.hpp"

namespace tilemamba::cuda::sm80 {

/// A plain call, which says of what it lacks that it is not given.
struct PlainCall : kernels::Call {
  struct NoTokens : kernels::TokenView {
    static constexpr bool given = false;
  };
  struct NoStates : kernels::StateView {
    static constexpr bool given = false;
  };
  NoTokens seq_idx, z;
  NoStates chunk_states;
};
struct Kernel {
  const void* function = nullptr;
  int threads = 0;
  SharedMemory shared_memory{};

  [[nodiscard]] unsigned bytes(const Problem& problem) const { return shared_memory.bytes(problem); }
};

/// The kernels of a policy: the one that only sums states, which comes first, and the one that computes outputs.
struct Kernels {
  struct Two {
    Kernel states, outputs;
  };
  Two any;
  Two plain;  ///< for plain calls; null: those of any call
  Two tf32;   ///< where fp32 may be multiplied as tf32; null for 16-bit types
};

// By type and schedule, each in a file of its own; `policy` is an index of `policies`.
[[nodiscard]] Kernels bf16_fused(std::size_t policy);
[[nodiscard]] Kernels bf16_staged(std::size_t policy);
[[nodiscard]] Kernels f16_fused(std::size_t policy);
[[nodiscard]] Kernels f16_staged(std::size_t policy);
[[nodiscard]] Kernels f32_fused(std::size_t policy);
[[nodiscard]] Kernels f32_staged(std::size_t policy);

/// Fills the tables of packed sequences: one block.
[[nodiscard]] Kernel tabulate_kernel();

[[nodiscard]] inline Kernels kernels_of(std::size_t policy) {
  const bool fused = policies[policy].schedule == Schedule::fused;
  switch (policies[policy].x) {
    case DType::bf16:
      return fused ? bf16_fused(policy) : bf16_staged(policy);
    case DType::f16:
      return fused ? f16_fused(policy) : f16_staged(policy);
    default:
      return fused ? f32_fused(policy) : f32_staged(policy);
  }
}

}  // namespace tilemamba::cuda::sm80
