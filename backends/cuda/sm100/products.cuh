// SPDX-License-Identifier: Apache-2.0
/// @file
/// A block's tensor memory, and how its warpgroups issue products and wait for them.
///
/// Both heads of a block have the same columns: products of 64 rows use half of the lanes, of every 32 the first 16 or
/// the others.
#pragma once

#include "backends/cuda/sm100/ptx.cuh"
#include "backends/cuda/tma/tile.cuh"

namespace tilemamba::cuda::sm100 {

using namespace tma;

inline constexpr int n = 128;  ///< columns of the state that a block has

/// Columns of a tile in tensor memory, behind those of another.
template <class Before, unsigned columns>
struct After {
  static constexpr unsigned at = Before::end, end = at + columns;
};
struct Nothing {
  static constexpr unsigned end = 0;
};
using ScoresAt = After<Nothing, q>;       ///< in the walk of one chunk, and in the other lanes of the next
using OutputsAt = After<ScoresAt, q>;     ///< y^T
using StateAt = After<OutputsAt, n>;      ///< fp32
using MoreAt = After<StateAt, n>;         ///< another state, to be added
using EnteringAt = After<MoreAt, n / 2>;  ///< S_in, in pairs
using WeightedAt = After<EnteringAt, q / 2>;
using InputsAt = After<WeightedAt, q / 2>;  ///< x^T
static_assert(InputsAt::end <= most_columns);

/// What may be under way at a time, each with a barrier of its own: a barrier cannot tell a phase from the one but
/// next.
enum Product {
  scores_product,
  from_state = 1,
  advance = from_state + policy_workers,
  within = advance + policy_workers
};
inline constexpr int product_barriers = within + policy_workers;

struct [[nodiscard]] Token {
  unsigned barrier, parity;
};

/// What the worker K of a warpgroup does with products.
template <class K>
struct Products {
  unsigned tensor = *reinterpret_cast<const unsigned*>(shared_memory + K::cores_at);  ///< address of tensor memory
  unsigned phases = 0;                                                                ///< one bit a barrier

  /// Products by one thread, when what all threads of the warpgroup have stored for them is there, and what they loaded
  /// has left. `group`: of the warpgroups that multiply.
  template <class F>
  TILEMAMBA_DEVICE Token issue(int barrier, int group, int warp, F products) {
    const Token token{shared_address(K::cores_at + 8 + 8 * barrier), parity(barrier)};
    phases ^= 1u << barrier;
    wait_tensor_stores();
    fence_before_sync();
    meet(1 + group, 128);
    if (warp == 0 && elect()) {
      fence_after_sync();
      products();
      commit_products(token.barrier);
    }
    __syncwarp();
    return token;
  }
  /// Of the next product of a barrier.
  [[nodiscard]] TILEMAMBA_DEVICE unsigned parity(int barrier) const { return phases >> barrier & 1; }
  template <class... Later>
  TILEMAMBA_DEVICE void wait(const Token& token, const Later&...) const {
    wait_phase(token.barrier, token.parity);
    fence_after_sync();
  }
};

}  // namespace tilemamba::cuda::sm100
