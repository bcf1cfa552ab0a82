// SPDX-License-Identifier: Apache-2.0
/// @file
/// The tile operations on a Kokkos team, generic over the execution space.
///
/// Every tile is an array in the team's scratch memory, rows padded to whole vectors. On a CPU a team is one thread,
/// its loops run over vectors, and the tiles of a block stay in the core's cache; on a GPU the same loops are spread
/// over the team's threads. All arithmetic is fp32, whatever the tensors hold: they are converted tile by tile, on the
/// way in and out. (Where a CPU multiplies bf16 itself, bf16_worker.hpp derives from this one.)
///
/// States, and operands made of them, are kept transposed (n outside, p inside): then every one of the four products
/// has an innermost loop over contiguous columns, and only B is needed both ways round.
#pragma once

#include <Kokkos_Core.hpp>
#include <type_traits>
#include <utility>

#include "core/tile/concepts.hpp"
#include "core/tile/scalar.hpp"
#include "core/tile/tile.hpp"
#include "core/tile/view.hpp"

namespace tilemamba::kokkos {

using tile::N;
using tile::P;
using tile::Part;
using tile::Q;

/// Rows and columns of tiles are padded to a multiple of this.
inline constexpr int padding = 16;
TILEMAMBA_FN constexpr int least(int a, int b) { return b < a ? b : a; }
TILEMAMBA_FN constexpr int padded(int extent, int multiple = padding) {
  return (extent + multiple - 1) / multiple * multiple;
}

/// Slices of a block, which share C, B and C.B^T.
inline constexpr int most_workers = 4;

/// What one thread computes of a product in its registers: `rows` x `columns` elements, in vectors of `lanes`; and how
/// many rows of a state's vectors it keeps there in the recurrence. A GPU's threads have columns that lie apart, so
/// that those of neighbours lie together.
template <bool on_host>
struct Register {
  static constexpr int rows = 4, columns = 4, lanes = 1, state_rows = 8;
  using Vector = float;
};
template <>
struct Register<true> {
#if defined(__AVX512F__)
  static constexpr int rows = 8, columns = 16, lanes = 16, state_rows = 16;
#elif defined(__AVX__)
  static constexpr int rows = 4, columns = 16, lanes = 8, state_rows = 8;
#elif defined(__ARM_NEON)
  static constexpr int rows = 4, columns = 16, lanes = 4, state_rows = 16;
#else
  static constexpr int rows = 2, columns = 16, lanes = 4, state_rows = 8;
#endif
  using Vector __attribute__((vector_size(lanes * sizeof(float)), may_alias)) = float;
};

/// What an operand of a product is made of: here one element; a worker that multiplies pairs has words of two.
template <class Word>
struct Operands {
  static constexpr int elements = 1;
  template <class Lanes>
  TILEMAMBA_FN static void multiply_add(Lanes& sum, Word left, const Lanes& right) {
    sum += left * right;
  }
};

/// Hands out scratch memory; over a null pointer it only counts.
struct Scratch {
  char* base = nullptr;
  std::size_t used = 0;

  template <class Word = float>
  KOKKOS_FUNCTION Word* take(int words) {
    static_assert(sizeof(Word) == sizeof(float));
    const std::size_t offset = used;
    used += (static_cast<std::size_t>(words) * sizeof(Word) + 63) / 64 * 64;
    return reinterpret_cast<Word*>(base + offset);
  }
};

/// The extents of a problem's tiles under a policy, padded.
struct Extents {
  int chunk, channels, state;
};

/// What every tile is: `height` rows of `width` contiguous words, here floats. A copy is the same tile.
template <class Word>
struct MatrixOf {
  Word* data = nullptr;
  int height = 0, width = 0;
  [[nodiscard]] TILEMAMBA_FN Word& at(int row, int column) const { return data[row * width + column]; }
};
using Matrix = MatrixOf<float>;

/// Elements of a tile, whatever its words are: one, or the vector that begins there.
TILEMAMBA_FN float element(const Matrix& tile, int row, int column) { return tile.at(row, column); }
template <class Lanes>
TILEMAMBA_FN void get_lanes(Lanes& to, const Matrix& tile, int row, int column) {
  to = *reinterpret_cast<const Lanes*>(&tile.at(row, column));
}
template <class Lanes>
TILEMAMBA_FN void put_lanes(const Matrix& tile, int row, int column, const Lanes& from) {
  *reinterpret_cast<Lanes*>(&tile.at(row, column)) = from;
}

/// Calls f with a function that loads an element of this dtype, so that the loops inside f are compiled for each.
template <class F>
TILEMAMBA_FN void with_loads(const void* data, DType dtype, const F& f) {
  switch (dtype) {
    case DType::f32:
      f([p = static_cast<const float*>(data)](std::int64_t i) { return p[i]; });
      break;
    case DType::f16:
      f([p = static_cast<const std::uint16_t*>(data)](std::int64_t i) { return tile::from_f16(p[i]); });
      break;
    case DType::bf16:
      f([p = static_cast<const std::uint16_t*>(data)](std::int64_t i) { return tile::from_bf16(p[i]); });
      break;
    case DType::i32:
      break;
  }
}
template <class F>
TILEMAMBA_FN void with_stores(void* data, DType dtype, const F& f) {
  switch (dtype) {
    case DType::f32:
      f([p = static_cast<float*>(data)](std::int64_t i, float v) { p[i] = v; });
      break;
    case DType::f16:
      f([p = static_cast<std::uint16_t*>(data)](std::int64_t i, float v) { p[i] = tile::to_f16(v); });
      break;
    case DType::bf16:
      f([p = static_cast<std::uint16_t*>(data)](std::int64_t i, float v) { p[i] = tile::to_bf16(v); });
      break;
    case DType::i32:
      break;
  }
}

template <class ExecutionSpace>
struct Worker {
  using Space = ExecutionSpace;
  using Member = typename Kokkos::TeamPolicy<Space>::member_type;
  static constexpr bool on_host =
      Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Space::memory_space>::accessible;
  using Block = Register<on_host>;
  static constexpr int most_workers = kokkos::most_workers;
  static constexpr int state_padding = padding;

  const Member* team;
  Scratch scratch;
  Extents extents;

  KOKKOS_FUNCTION Worker(const Member* of_block, const Scratch& memory, const Extents& of_tiles)
      : team(of_block), scratch(memory), extents(of_tiles) {}

  template <class Axis>
  [[nodiscard]] TILEMAMBA_FN int extent() const {
    if constexpr (std::is_same_v<Axis, Q>) return extents.chunk;
    if constexpr (std::is_same_v<Axis, P>) return extents.channels;
    if constexpr (std::is_same_v<Axis, N>) return extents.state;
  }
  template <class Word = float>
  TILEMAMBA_FN MatrixOf<Word> take(int height, int width) {
    return {scratch.template take<Word>(height * width), height, width};
  }

  // ------------------------------------------------------------------------------------------------------------------
  // types
  /// A tile that lies as its axes say.
  template <class Row, class Column>
  struct Plain : Matrix {
    Plain() = default;
    TILEMAMBA_FN explicit Plain(Worker& w) : Matrix(w.take(w.template extent<Row>(), w.template extent<Column>())) {}
  };
  /// A tile that lies the other way round.
  template <class Row, class Column>
  struct Transposed : Matrix {
    Transposed() = default;
    TILEMAMBA_FN explicit Transposed(Worker& w)
        : Matrix(w.take(w.template extent<Column>(), w.template extent<Row>())) {}
  };
  /// A tile that is multiplied both ways round.
  template <class Row, class Column>
  struct Twice : Plain<Row, Column> {
    Transposed<Row, Column> transposed;
    Twice() = default;
    TILEMAMBA_FN explicit Twice(Worker& w) : Plain<Row, Column>(w), transposed(w) {}
  };
  /// x itself, or a copy with something changed.
  template <class Row, class Column>
  struct CopyOrAlias : Matrix {
    float* own = nullptr;
    CopyOrAlias() = default;
    TILEMAMBA_FN explicit CopyOrAlias(Worker& w)
        : Matrix(w.take(w.template extent<Row>(), w.template extent<Column>())), own(data) {}
  };
  /// Another tile under another name.
  struct Alias : Matrix {
    Alias() = default;
    TILEMAMBA_FN explicit Alias(Worker&) {}
  };

  template <class Row, class Column, unsigned uses>
  using Shared = std::conditional_t<(uses & tile::as_Bt) != 0, Twice<Row, Column>, Plain<Row, Column>>;
  template <class Row, class Column, Part part = Part::full>
  using Accumulator = Plain<Row, Column>;
  template <class Row, class Column, unsigned use, Part part = Part::full>
  using Operand =
      std::conditional_t<use == tile::as_Bt, Transposed<Row, Column>,
                         std::conditional_t<use == tile::as_B, CopyOrAlias<Row, Column>, Plain<Row, Column>>>;
  template <class Row, class Column>
  using Leaving = Alias;
  template <class Row, class Column>
  using State = Transposed<Row, Column>;

  template <class Axis>
  struct Vector {
    float* data = nullptr;
    int height = 0, width = 1;
    Vector() = default;
    TILEMAMBA_FN explicit Vector(Worker& w)
        : data(w.scratch.take(w.template extent<Axis>())), height(w.template extent<Axis>()) {}
    [[nodiscard]] TILEMAMBA_FN float& at(int row, int) const { return data[row]; }
  };
  template <class Axis>
  using Weights = Vector<Axis>;
  template <class Axis>
  struct Ordinals {
    int* data = nullptr;
    int height = 0;
    Ordinals() = default;
    TILEMAMBA_FN explicit Ordinals(Worker& w)
        : data(w.scratch.template take<int>(w.template extent<Axis>())), height(w.template extent<Axis>()) {}
    [[nodiscard]] TILEMAMBA_FN int& at(int row, int) const { return data[row]; }
  };
  /// Room for decay_scores.
  struct DecayTable {
    float* row = nullptr;
    float* column = nullptr;
    DecayTable() = default;
    TILEMAMBA_FN explicit DecayTable(Worker& w)
        : row(w.scratch.take(w.extents.chunk)), column(w.scratch.take(w.extents.chunk)) {}
  };
  /// Products are done when they return.
  struct [[nodiscard]] Token {};
  template <class... Later>
  TILEMAMBA_FN void wait(const Token&, const Later&...) const {}

  // ------------------------------------------------------------------------------------------------------------------
  // vectors
  /// The vector that begins at an element.
  TILEMAMBA_FN static typename Block::Vector& lanes_at(float* element) {
    return *reinterpret_cast<typename Block::Vector*>(element);
  }
  /// 0, 1, 2, ...
  TILEMAMBA_FN static typename Block::Vector ascending() {
    typename Block::Vector result{};
    for (int k = 0; k < Block::lanes; ++k) reinterpret_cast<float*>(&result)[k] = static_cast<float>(k);
    return result;
  }

  // ------------------------------------------------------------------------------------------------------------------
  // loops
  /// f(i), the team's threads sharing the work.
  template <class F>
  TILEMAMBA_FN void each(int count, const F& f) const {
    Kokkos::parallel_for(Kokkos::TeamVectorRange(*team, count), f);
    team->team_barrier();
  }
  /// f(row, column), columns inside.
  template <class F>
  TILEMAMBA_FN void each(int height, int width, const F& f) const {
    Kokkos::parallel_for(Kokkos::TeamThreadRange(*team, height), [&](int row) {
      Kokkos::parallel_for(Kokkos::ThreadVectorRange(*team, width), [&](int column) { f(row, column); });
    });
    team->team_barrier();
  }
  /// f(), by one thread.
  template <class F>
  TILEMAMBA_FN void once(const F& f) const {
    Kokkos::single(Kokkos::PerTeam(*team), f);
    team->team_barrier();
  }

  // -------------------------------------------------------------------------------------------------------- from and
  // to memory
  /// out = in^T, a square of `lanes` rows after the other, each turned in registers.
  template <class Word>
  TILEMAMBA_FN void turn(const MatrixOf<Word>& out, const MatrixOf<Word>& in) const {
    using Lanes = typename Block::Vector;
    constexpr int lanes = Block::lanes;
    each(out.height / lanes, out.width / lanes, [&](int block_row, int block_column) {
      Lanes rows[lanes];
      for (int i = 0; i < lanes; ++i) {
        rows[i] = *reinterpret_cast<const Lanes*>(&in.at(block_column * lanes + i, block_row * lanes));
      }
      turn_square<lanes / 2>(rows);
      for (int i = 0; i < lanes; ++i) {
        *reinterpret_cast<Lanes*>(&out.at(block_row * lanes + i, block_column * lanes)) = rows[i];
      }
    });
  }
  /// Exchanges the squares of half the side that lie off the diagonal, then does the same within each square. (A GPU's
  /// squares have one element, and nvcc cannot read the builtin.)
  template <int half, class Lanes>
  TILEMAMBA_FN static void turn_square([[maybe_unused]] Lanes* rows) {
#if !defined(__CUDACC__)
    if constexpr (half > 0) {
      for (int i = 0; i < Block::lanes; ++i) {
        if ((i & half) == 0) exchange<half>(rows[i], rows[i + half], std::make_integer_sequence<int, Block::lanes>());
      }
      turn_square<half / 2>(rows);
    }
#endif
  }
#if !defined(__CUDACC__)
  template <int half, class Lanes, int... k>
  TILEMAMBA_FN static void exchange(Lanes& upper, Lanes& lower, std::integer_sequence<int, k...>) {
    const Lanes left = __builtin_shufflevector(upper, lower, ((k & half) == 0 ? k : Block::lanes + k - half)...);
    lower = __builtin_shufflevector(upper, lower, ((k & half) == 0 ? k + half : Block::lanes + k)...);
    upper = left;
  }
#endif
  /// Zeros outside the first `height` rows and `width` columns.
  template <class Word>
  TILEMAMBA_FN void pad(const MatrixOf<Word>& out, int height, int width) const {
    if (width < out.width) {
      each(height, out.width - width, [&](int i, int j) { out.at(i, width + j) = Word{}; });
    }
    if (height < out.height) {
      each(out.height - height, out.width, [&](int i, int j) { out.at(height + i, j) = Word{}; });
    }
  }
  KOKKOS_FUNCTION void get_rows(const Matrix& out, const tile::TokenView& view, const tile::Tokens& tokens,
                                const tile::Slice& slice) const {
    const std::int64_t origin = view.offset(tokens, slice.head, slice.channel);
    const int width = least(out.width, view.width - slice.channel);
    with_loads(view.data, view.dtype, [&](const auto& load) {
      each(tokens.count, width, [&](int i, int j) { out.at(i, j) = load(origin + i * view.token_stride + j); });
    });
    pad<float>(out, tokens.count, width);
    fetch_soon(view, origin + out.height * view.token_stride, tokens.count, width);
  }
  /// What the next chunk needs is on its way while this one is computed: rows of one head are far apart, and no
  /// hardware guesses them.
  TILEMAMBA_FN static void fetch_soon(const tile::TokenView& view, std::int64_t element, int height, int width) {
    if constexpr (on_host) {
      const auto size = static_cast<std::uintptr_t>(size_of(view.dtype));
      const std::uintptr_t bytes = static_cast<std::uintptr_t>(width) * size;
      auto row = reinterpret_cast<std::uintptr_t>(view.data) + static_cast<std::uintptr_t>(element) * size;
      for (int i = 0; i < height; ++i, row += static_cast<std::uintptr_t>(view.token_stride) * size) {
        for (std::uintptr_t byte = 0; byte < bytes; byte += 64) {
          __builtin_prefetch(reinterpret_cast<const void*>(row + byte));
        }
      }
    }
  }
  template <class Row, class Column>
  TILEMAMBA_FN void get(Plain<Row, Column>& out, const tile::TokenView& view, const tile::Tokens& tokens,
                        const tile::Slice& slice) const {
    get_rows(out, view, tokens, slice);
  }
  template <class Row, class Column>
  TILEMAMBA_FN void get(Twice<Row, Column>& out, const tile::TokenView& view, const tile::Tokens& tokens,
                        const tile::Slice& slice) const {
    get_rows(out, view, tokens, slice);
    turn<float>(out.transposed, out);
  }
  TILEMAMBA_FN void get(Vector<Q>& out, const tile::TokenView& view, const tile::Tokens& tokens, int head) const {
    const std::int64_t origin = view.offset(tokens, head, 0);
    each(out.height, [&](int i) {
      out.data[i] = i < tokens.count ? tile::load(view.data, view.dtype, origin + i * view.token_stride) : 0.0f;
    });
  }
  TILEMAMBA_FN void get(Vector<Q>& out, const tile::ChunkVectors& view, std::int64_t unit, int head) const {
    const float* from = view.at(unit, head);
    each(out.height, [&](int i) { out.data[i] = from[i]; });
  }
  /// f(n, p, rows) for each square of a state in memory, the way it lies in a tile: rows[k] holds channels p, p + 1,
  /// ... of column n + k; zeros outside the state.
  template <class F>
  TILEMAMBA_FN void each_square(const tile::StateView& view, std::int64_t batch, std::int64_t index,
                                const tile::Slice& slice, const F& f) const {
    constexpr int lanes = Block::lanes;
    const std::int64_t origin = view.offset(batch, index, slice);
    const int channels = least(extents.channels, view.channels - slice.channel);
    with_loads(view.data, view.dtype, [&](const auto& load) {
      each(extents.state / lanes, extents.channels / lanes, [&](int square_row, int square_column) {
        const int n = square_row * lanes, p = square_column * lanes;
        typename Block::Vector rows[lanes] = {};
        for (int i = 0; i < least(lanes, channels - p); ++i) {
          const std::int64_t from = origin + (p + i) * view.channel_stride + n;
          auto* row = reinterpret_cast<float*>(&rows[i]);
          if (n + lanes <= view.width) {
            for (int k = 0; k < lanes; ++k) row[k] = load(from + k);
          } else {
            for (int k = 0; k < view.width - n; ++k) row[k] = load(from + k);
          }
        }
        turn_square<lanes / 2>(rows);
        f(n, p, rows);
      });
    });
  }
  TILEMAMBA_FN void get(Transposed<P, N>& out, const tile::StateView& view, std::int64_t batch, std::int64_t index,
                        const tile::Slice& slice) const {
    if (!view.given) return zero(out);
    each_square(view, batch, index, slice, [&](int n, int p, const typename Block::Vector* rows) {
      for (int k = 0; k < Block::lanes; ++k) lanes_at(&out.at(n + k, p)) = rows[k];
    });
  }
  TILEMAMBA_FN void put(const tile::TokenView& view, const tile::Tokens& tokens, const tile::Slice& slice,
                        const Matrix& in) const {
    const std::int64_t origin = view.offset(tokens, slice.head, slice.channel);
    const int width = least(in.width, view.width - slice.channel);
    with_stores(view.data, view.dtype, [&](const auto& store) {
      each(tokens.count, width, [&](int i, int j) { store(origin + i * view.token_stride + j, in.at(i, j)); });
    });
  }
  TILEMAMBA_FN void put(const tile::StateView& view, std::int64_t batch, std::int64_t index, const tile::Slice& slice,
                        const Transposed<P, N>& in) const {
    constexpr int lanes = Block::lanes;
    const std::int64_t origin = view.offset(batch, index, slice);
    const int channels = least(in.width, view.channels - slice.channel);
    with_stores(view.data, view.dtype, [&](const auto& store) {
      each(in.height / lanes, in.width / lanes, [&](int square_row, int square_column) {
        const int n = square_row * lanes, p = square_column * lanes;
        typename Block::Vector rows[lanes];
        for (int k = 0; k < lanes; ++k) rows[k] = lanes_at(&in.at(n + k, p));
        turn_square<lanes / 2>(rows);
        for (int i = 0; i < least(lanes, channels - p); ++i) {
          const std::int64_t to = origin + (p + i) * view.channel_stride + n;
          const auto* row = reinterpret_cast<const float*>(&rows[i]);
          if (n + lanes <= view.width) {
            for (int k = 0; k < lanes; ++k) store(to + k, row[k]);
          } else {
            for (int k = 0; k < view.width - n; ++k) store(to + k, row[k]);
          }
        }
      });
    });
  }
  TILEMAMBA_FN void put(const tile::ChunkVectors& view, std::int64_t unit, int head, const Vector<Q>& in) const {
    float* to = view.at(unit, head);
    each(in.height, [&](int i) { to[i] = in.data[i]; });
  }
  TILEMAMBA_FN void put(const tile::ChunkVectors& view, std::int64_t unit, int head, float value) const {
    once([&] { *view.at(unit, head) = value; });
  }

  // ----------------------------------------------------------------------------------------------------------------
  // elementwise
  template <class V>
  TILEMAMBA_FN static auto value(const tile::Rows<V>& argument, int row, int) {
    return argument.vector.at(row, 0);
  }
  template <class V>
  TILEMAMBA_FN static auto value(const tile::Columns<V>& argument, int, int column) {
    return argument.vector.at(column, 0);
  }
  template <class T>
  TILEMAMBA_FN static float value(const tile::Same<T>& argument, int row, int column) {
    return argument.tile.at(row, column);
  }
  TILEMAMBA_FN static bool value(const tile::Inside& argument, int row, int) { return row < argument.count; }

  template <class T, class F, class... Arguments>
  TILEMAMBA_FN void map(T& target, const F& f, const Arguments&... arguments) const {
    each(target.height, target.width,
         [&](int i, int j) { target.at(i, j) = f(target.at(i, j), value(arguments, i, j)...); });
  }
  template <class F, class... Arguments>
  TILEMAMBA_FN void map(Vector<Q>& target, const F& f, const Arguments&... arguments) const {
    each(target.height, [&](int i) { target.data[i] = f(target.data[i], value(arguments, i, 0)...); });
  }
  template <class T>
  TILEMAMBA_FN void zero(T& target) const {
    each(target.height, target.width, [&](int i, int j) { target.at(i, j) = 0.0f; });
  }
  TILEMAMBA_FN void operand(Transposed<P, N>& out, const Transposed<P, N>& source) const {
    each(out.height, out.width, [&](int n, int p) { out.at(n, p) = source.at(n, p); });
  }
  template <class Row, class Column, class F>
  TILEMAMBA_FN void operand_if(bool condition, CopyOrAlias<Row, Column>& out, const Plain<Row, Column>& source,
                               const F& f) const {
    out.data = condition ? out.own : source.data;
    if (condition) each(out.height, out.width, [&](int i, int j) { out.at(i, j) = f(source.at(i, j)); });
  }
  TILEMAMBA_FN void keep_last(Twice<Q, N>& B, const Ordinals<Q>& document) const {
    const int first = document.data[0], kept = last(document);
    if (first == kept) return;
    map(
        B, [=](float b, int ordinal) { return tile::select(ordinal == kept, b, 0.0f); }, tile::rows(document));
  }
  TILEMAMBA_FN void narrow(Alias& out, const Matrix& source) const { static_cast<Matrix&>(out) = source; }

  // ---------------------------------------------------------------------------------------------------------------
  // along a chunk
  TILEMAMBA_FN void scan(Vector<Q>& v, const Ordinals<Q>& document) const {
    once([&] {
      float sum = 0.0f;
      for (int i = 0; i < v.height; ++i) {
        const bool starts = i == 0 || document.data[i] != document.data[i - 1];
        v.data[i] = sum = starts ? v.data[i] : v.data[i] + sum;
      }
    });
  }
  TILEMAMBA_FN void scan_back(Vector<Q>& v) const {
    once([&] {
      float sum = 0.0f;
      for (int i = v.height - 1; i >= 0; --i) {
        const float here = v.data[i];
        v.data[i] = sum;
        sum += here;
      }
    });
  }
  TILEMAMBA_FN void scan_changes(Ordinals<Q>& out, const tile::TokenView& view, const tile::Tokens& tokens) const {
    if (!view.given) {
      each(out.height, [&](int i) { out.data[i] = 0; });
      return;
    }
    const auto* id = static_cast<const std::int32_t*>(view.data) + view.offset(tokens, 0, 0);
    once([&] {
      int changes = 0;
      for (int i = 0; i < out.height; ++i) {
        const bool has_previous = i > 0 || !tokens.begins;
        if (i < tokens.count && has_previous) changes += id[i * view.token_stride] != id[(i - 1) * view.token_stride];
        out.data[i] = changes;
      }
    });
  }
  template <class V>
  [[nodiscard]] TILEMAMBA_FN auto first(const V& v) const {
    return known(v.data[0]);
  }
  template <class V>
  [[nodiscard]] TILEMAMBA_FN auto last(const V& v) const {
    return known(v.data[v.height - 1]);
  }
  /// All have it before one of them changes where it came from.
  template <class T>
  [[nodiscard]] TILEMAMBA_FN T known(T value) const {
    if constexpr (!on_host) team->team_barrier();
    return value;
  }

  // ------------------------------------------------------------------------------------------------------------
  // operations by name
  TILEMAMBA_FN void weigh(Plain<Q, P>& y, const Vector<Q>& weights) const {
    map(
        y, [](float v, float weight) { return tile::weigh(v, weight); }, tile::rows(weights));
  }
  TILEMAMBA_FN void weigh(Plain<Q, P>& out, const Plain<Q, P>& x, const Vector<Q>& weights) const {
    each(out.height, out.width, [&](int i, int p) { out.at(i, p) = tile::weigh(x.at(i, p), weights.data[i]); });
  }
  TILEMAMBA_FN void decay(Transposed<P, N>& S, float factor) const {
    map(S, [=](float s) { return tile::weigh(s, factor); });
  }
  TILEMAMBA_FN void tabulate(DecayTable&, const Vector<Q>&, const Vector<Q>&, const Ordinals<Q>&, float) const {}

  /// Exponents are summed from token to token and never subtracted: nothing cancels, and a document's start makes them
  /// minus infinity. Only the blocks on the diagonal take an exponential per element; elsewhere it is a factor of the
  /// row (what is left since the row's block began) times a factor of the column (what was left then), both at most 1
  /// for a decay. Above the diagonal blocks nothing is written, and nothing is read by mma_AB.
  template <class Decayed>
  KOKKOS_FUNCTION void decay_scores(Decayed& out, const Plain<Q, Q>& scores, const Vector<Q>&, const Vector<Q>& delta,
                                    const Ordinals<Q>& document, const DecayTable& table, float rate,
                                    const tile::HeadView&, int) const {
    constexpr int lanes = Block::lanes;
    using Lanes = typename Block::Vector;
    const auto starts = [&](int i) { return i > 0 && document.data[i] != document.data[i - 1]; };
    each(out.height / padding, [&](int block) {
      float exponent = 0.0f;
      for (int i = block * padding; i < (block + 1) * padding; ++i) {
        exponent = starts(i) ? tile::minus_infinity : exponent + delta.data[i] * rate;
        table.row[i] = exponent;
      }
    });
    each(out.height / lanes, [&](int piece) {
      Lanes& row = lanes_at(table.row + piece * lanes);
      row = tile::exp2(row);
    });
    for (int top = 0; top < out.height; top += padding) {
      each(padding, top / lanes, [&](int k, int piece) {
        const int i = top + k, j = piece * lanes;
        const Lanes left = tile::weigh(lanes_at(table.column + j), Lanes{} + table.row[i]);
        put_lanes(out, i, j, tile::weigh(lanes_at(&scores.at(i, j)), left));
      });
      each(top / lanes, [&](int piece) {
        Lanes& column = lanes_at(table.column + piece * lanes);
        column = tile::weigh(column, Lanes{} + table.row[top + padding - 1]);
      });
      each(padding / lanes, [&](int piece) {
        const int j = top + piece * lanes;
        const Lanes offset = ascending();
        Lanes exponent = Lanes{} + tile::minus_infinity;  // of the tokens that are still to come
        Lanes left{};
        for (int i = top; i < top + padding; ++i) {
          exponent = starts(i) ? Lanes{} + tile::minus_infinity : exponent + delta.data[i] * rate;
          exponent = tile::select(offset == static_cast<float>(i - j), Lanes{}, exponent);
          left = tile::weigh(lanes_at(delta.data + j), tile::exp2(exponent));
          put_lanes(out, i, j, tile::weigh(lanes_at(&scores.at(i, j)), left));
        }
        lanes_at(table.column + j) = left;
      });
    }
  }

  /// A worker has all columns of its state.
  template <class Summed>
  TILEMAMBA_FN void sum_columns(Summed&) const {}
  template <class X>
  TILEMAMBA_FN void add_skip(Plain<Q, P>& y, const X& x, const tile::HeadView& D, const tile::Slice& slice) const {
    if (!D.given) return;
    if (D.channel_stride == 0) {
      const float d = tile::value(D, slice.head);
      each(y.height, y.width / Block::lanes, [&](int i, int piece) {
        typename Block::Vector x_i;
        get_lanes(x_i, x, i, piece * Block::lanes);
        lanes_at(&y.at(i, piece * Block::lanes)) += d * x_i;
      });
      return;
    }
    const std::int64_t origin = slice.head * D.head_stride + slice.channel;
    with_loads(D.data, D.dtype, [&](const auto& load) {
      each(y.height, least(y.width, D.width - slice.channel),
           [&](int i, int p) { y.at(i, p) += load(origin + p) * element(x, i, p); });
    });
  }

  /// S = keep_i S + delta_i x_i B_i^T and y_i = S C_i for the first `count` tokens; a document starts from S = 0. A few
  /// rows of S^T stay in registers for all tokens.
  template <class X>
  KOKKOS_FUNCTION void recur(Plain<Q, P>& y, Transposed<P, N>& S, const X& x, const Plain<Q, N>& B,
                             const Plain<Q, N>& C, const Vector<Q>& keep, const Vector<Q>& delta,
                             const Ordinals<Q>& document, int count) const {
    constexpr int rows = Block::state_rows, lanes = Block::lanes;
    using Lanes = typename Block::Vector;
    const auto starts = [&](int i) { return document.data[i] != (i == 0 ? 0 : document.data[i - 1]); };
    each(S.width / lanes, [&](int piece) {
      const int column = piece * lanes;
      for (int row = 0; row < S.height; row += rows) {
        Lanes state[rows];
        for (int r = 0; r < rows; ++r) state[r] = lanes_at(&S.at(row + r, column));
        for (int i = 0; i < count; ++i) {
          const float step = delta.data[i];
          if (starts(i)) {
            for (int r = 0; r < rows; ++r) state[r] = Lanes{};
          }
          Lanes input{};
          if (step != 0.0f) {
            get_lanes(input, x, i, column);
            input *= step;
          }
          const float* b = &B.at(i, row);
          const float* c = &C.at(i, row);
          Lanes sum[2] = {row == 0 ? Lanes{} : lanes_at(&y.at(i, column)), Lanes{}};
          for (int r = 0; r < rows; ++r) {
            state[r] = keep.data[i] * state[r] + input * b[r];
            sum[r % 2] += state[r] * c[r];
          }
          lanes_at(&y.at(i, column)) = sum[0] + sum[1];
        }
        for (int r = 0; r < rows; ++r) lanes_at(&S.at(row + r, column)) = state[r];
      }
    });
  }

  // -------------------------------------------------------------------------------------------------------------------
  // products
  /// An operand as the inner loop reads it: word (row, k) at data[row * row_stride + k * depth_stride].
  template <class Word>
  struct Left {
    const Word* data;
    int row_stride, depth_stride;
  };
  /// Which part of a product is not worth computing.
  enum class Trim { none, upper_result, upper_left };

  /// out = [out +] left * right, the depth being right's height.
  template <bool add, Trim trim, class Word>
  KOKKOS_FUNCTION Token product(const Matrix& out, const Left<Word>& left, const MatrixOf<Word>& right) const {
    constexpr int rows = Block::rows, columns = Block::columns, lanes = Block::lanes, vectors = columns / lanes;
    using Lanes = typename Block::Vector;
    const int across = out.width / columns, apart = on_host ? lanes : across;
    each(out.height / rows * across, [&](int index) {
      const int row = index / across * rows;
      const int column = index % across * (on_host ? columns : 1);
      if (trim == Trim::upper_result && column >= row + rows) return;
      const int depth = trim == Trim::upper_left ? (row + rows) / Operands<Word>::elements : right.height;
      Lanes sum[rows][vectors];
      for (int r = 0; r < rows; ++r) {
        for (int v = 0; v < vectors; ++v) sum[r][v] = add ? lanes_at(&out.at(row + r, column + v * apart)) : Lanes{};
      }
      const Word* l = left.data + row * left.row_stride;
      const Word* b = right.data + column;
      for (int k = 0; k < depth; ++k) {
        for (int r = 0; r < rows; ++r) {
          for (int v = 0; v < vectors; ++v) {
            Operands<Word>::multiply_add(sum[r][v], l[r * left.row_stride],
                                         *reinterpret_cast<const Lanes*>(b + v * apart));
          }
        }
        l += left.depth_stride;
        b += right.width;
      }
      for (int r = 0; r < rows; ++r) {
        for (int v = 0; v < vectors; ++v) lanes_at(&out.at(row + r, column + v * apart)) = sum[r][v];
      }
    });
    return {};
  }
  template <class Word>
  TILEMAMBA_FN static Left<Word> rows_of(const MatrixOf<Word>& a) {
    return {a.data, a.width, 1};
  }
  template <class Word>
  TILEMAMBA_FN static Left<Word> columns_of(const MatrixOf<Word>& a) {
    return {a.data, 1, a.width};
  }

  /// scores = C B^T
  TILEMAMBA_FN Token mma_ABt(tile::Set<Plain<Q, Q>> scores, const Plain<Q, N>& C, const Twice<Q, N>& B) const {
    return product<false, Trim::upper_result, float>(scores.target, rows_of<float>(C), B.transposed);
  }
  /// y = C S^T
  TILEMAMBA_FN Token mma_ABt(tile::Set<Plain<Q, P>> y, const Plain<Q, N>& C, const Transposed<P, N>& S) const {
    return product<false, Trim::none, float>(y.target, rows_of<float>(C), S);
  }
  /// y = y + decayed x
  TILEMAMBA_FN Token mma_AB(tile::Add<Plain<Q, P>> y, const Plain<Q, Q>& decayed, const CopyOrAlias<Q, P>& x) const {
    return product<true, Trim::upper_left, float>(y.target, rows_of<float>(decayed), x);
  }
  /// S = S + weighted^T B, with S transposed: S^T = S^T + B^T weighted
  TILEMAMBA_FN Token mma_AtB(tile::Add<Transposed<P, N>> S, const Plain<Q, P>& weighted, const Twice<Q, N>& B) const {
    return product<true, Trim::none, float>(S.target, columns_of<float>(B), weighted);
  }
};

}  // namespace tilemamba::kokkos
