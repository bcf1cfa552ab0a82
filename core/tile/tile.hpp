// SPDX-License-Identifier: Apache-2.0
/// @file
/// The words that the algorithm's text and every backend share: axes, uses, map arguments, product modes.
/// docs/tile-interface.md explains each; concepts.hpp is the list that the compiler checks.
///
/// A tile's shape is written in axes, not numbers: the text says Accumulator<Q, P> and the backend knows how long its Q
/// and P are, at compile time or at run time. A product whose axes do not meet does not compile, on any backend.
#pragma once

#include <cstdint>

#include "core/tile/config.hpp"

namespace tilemamba::tile {

struct Q {};  ///< tokens of a chunk
struct P {};  ///< channels of a head (a slice of the head dimension, where the policy cuts it)
struct N {};  ///< state size

/// Which part of a square tile of tokens holds anything. `lower`: only row >= column; a backend may skip the rest.
enum class Part { full, lower };

/// What a tile is used for; the backend picks a layout that serves all of them, or refuses to compile.
/// as_A: a in a*b and a*b^T; as_At: a in a^T*b; as_B: b in a*b and a^T*b; as_Bt: b in a*b^T.
enum Use : unsigned { as_A = 1, as_At = 2, as_B = 4, as_Bt = 8, elementwise = 16 };

// ------------------------------------------------------------------------------------------------------ arguments of a
// map map(target, f, arguments...) sets every element of target to f(element, argument values...).

/// The value of a vector along the tile's rows at this element's row.
template <class V>
struct Rows {
  const V& vector;
};
/// The value of a vector along the tile's columns at this element's column.
template <class V>
struct Columns {
  const V& vector;
};
/// The same element of another tile.
template <class T>
struct Same {
  const T& tile;
};
/// A bool: is this element's row below `count`?
struct Inside {
  int count;
};

template <class V>
TILEMAMBA_FN Rows<V> rows(const V& vector) {
  return {vector};
}
template <class V>
TILEMAMBA_FN Columns<V> columns(const V& vector) {
  return {vector};
}
template <class T>
TILEMAMBA_FN Same<T> same(const T& tile) {
  return {tile};
}
TILEMAMBA_FN Inside inside(int count) { return {count}; }

// -------------------------------------------------------------------------------------------------------- modes of a
// product

/// mma(set(y), a, b): y = a b.
template <class T>
struct Set {
  T& target;
};
/// mma(add(y), a, b): y = y + a b.
template <class T>
struct Add {
  T& target;
};
template <class T>
TILEMAMBA_FN Set<T> set(T& target) {
  return {target};
}
template <class T>
TILEMAMBA_FN Add<T> add(T& target) {
  return {target};
}

}  // namespace tilemamba::tile
