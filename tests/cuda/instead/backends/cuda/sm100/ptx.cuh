// SPDX-License-Identifier: Apache-2.0
/// @file
/// The wrappers of backends/cuda/sm100/ptx.cuh for a machine that the host plays.
#pragma once

#include "backends/cuda/common/element.cuh"
#include "backends/cuda/sm100/descriptor.hpp"

namespace tilemamba::cuda::sm100 {

// tensor memory
inline void tensor_allocate(unsigned to, unsigned columns) { machine::tensor_allocate(to, columns); }
inline void tensor_relinquish() { machine::tensor_relinquish(); }
inline void tensor_release(unsigned tensor, unsigned columns) { machine::tensor_release(tensor, columns); }
template <int count>
void load_fragments(float (&r)[count], unsigned from) {
  machine::tensor_load(reinterpret_cast<std::uint32_t*>(r), count, from);
}
template <int count>
void store_fragments(unsigned to, const float (&r)[count]) {
  machine::tensor_store(reinterpret_cast<const std::uint32_t*>(r), count, to, true);
}
template <int steps>
void store_operand(unsigned to, const std::uint32_t (&r)[steps][4]) {
  machine::tensor_store(r[0], 4 * steps, to, false);
}
inline void wait_tensor_loads() { machine::wait_tensor_loads(); }
inline void wait_tensor_stores() { machine::wait_tensor_stores(); }

// order among threads
inline void fence_before_sync() { machine::fence_before_sync(); }
inline void fence_after_sync() { machine::fence_after_sync(); }
inline bool elect() { return machine::elect(); }

// products
template <bool accumulate>
void product_of_tensor(unsigned d, unsigned a, std::uint64_t b, std::uint32_t instruction) {
  machine::tensor_multiply({d, a, true, 0, b, instruction, accumulate});
}
template <bool accumulate>
void product_of_shared(unsigned d, std::uint64_t a, std::uint64_t b, std::uint32_t instruction) {
  machine::tensor_multiply({d, 0, false, a, b, instruction, accumulate});
}
inline void commit_products(unsigned barrier) { machine::commit_tensor_products(barrier); }

}  // namespace tilemamba::cuda::sm100
