// SPDX-License-Identifier: Apache-2.0
/// @file
/// The two yardsticks of every numerical test. Neither shares a line with the library's kernels: of the library they
/// include the public header only.
///
/// `recurrence` is the operation as its definition has it, token by token in double: the right answer.
/// `chunked` is the chunked form as a careful author would write it in the input's precision: the operands of every
/// product rounded to the input type, float sums, outputs rounded to their own type. Its distance from the right answer
/// is what the input type costs; a backend is allowed 1.5 times that.
#pragma once

#include <cstdint>
#include <functional>
#include <tilemamba/tilemamba.hpp>
#include <vector>

namespace tilemamba::reference {

// ------------------------------------------------------------------------------------------------------------ numbers

/// The value stored in element `index` (counted from `data`), widened.
[[nodiscard]] double load(DType dtype, const void* data, std::int64_t index);
/// Stores `value`, rounded to nearest even, as element `index`.
void store(DType dtype, void* data, std::int64_t index, double value);
/// `value` rounded to nearest even in `dtype`, widened again.
[[nodiscard]] float rounded(DType dtype, float value);

/// Element of a tensor through its strides; as many coordinates as its rank.
template <typename... Coordinate>
[[nodiscard]] double at(const Tensor& tensor, Coordinate... coordinate) {
  std::int64_t offset = 0;
  int dimension = 0;
  ((offset += static_cast<std::int64_t>(coordinate) * tensor.strides[dimension++]), ...);
  return load(tensor.dtype, tensor.data, offset);
}

/// The whole tensor, dense and widened.
[[nodiscard]] std::vector<double> values(const Tensor& tensor);

// ------------------------------------------------------------------------------------------------------------ answers

/// Dense, row-major, in the shapes of `Arguments`.
struct Answer {
  std::vector<double> y;             ///< (B,T,H,P)
  std::vector<double> final_states;  ///< (B,H,P,N), packed: (S,H,P,N); always computed
  std::vector<double> chunk_states;  ///< computed if options.chunk_states_every is not 0
};

/// The right answer. Reads inputs only; outputs in `arguments` need no data.
[[nodiscard]] Answer recurrence(const Arguments& arguments, const Options& options = {});

/// The same-precision chunked form. `y`, `final_states` and `chunk_states` are rounded to the types that `arguments`
/// gives them (y: x's type if it has none there; states: float).
[[nodiscard]] Answer chunked(const Arguments& arguments, const Options& options = {}, std::int64_t chunk = 64);

/// Calls body(0) ... body(count - 1), on as many threads as there are processors.
void parallel_for(std::int64_t count, const std::function<void(std::int64_t)>& body);

}  // namespace tilemamba::reference
