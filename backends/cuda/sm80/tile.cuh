// SPDX-License-Identifier: Apache-2.0
/// @file
/// The tile operations on mma.sync, ldmatrix and cp.async.
///
/// A warp owns 16 channels of a head and, where the state is wide, a part of its columns. Its accumulators of the state
/// are, once packed, an operand of the next product, and what ldmatrix loads of x transposed is both x and x^T: neither
/// the state nor the weighted x goes through shared memory. Scores are cut into columns of 16 x 16 blocks that all
/// warps of a block share, whichever head they work for, and come from the same fragments of C as the product with the
/// state; each head's decayed scores then go through shared memory.
///
/// Where several warps have a part of the columns each, the products of the state with C are summed between them, and
/// each goes on with a share of the chunk's rows.
#pragma once

#include <type_traits>

#include "backends/cuda/common/element.cuh"
#include "backends/cuda/sm80/policy.hpp"
#include "core/tile/concepts.hpp"
#include "core/tile/scalar.hpp"
#include "core/tile/tile.hpp"
#include "core/tile/view.hpp"
#include "kernels/sequences.hpp"

namespace tilemamba::cuda::sm80 {

using tile::N;
using tile::P;
using tile::Part;
using tile::Q;

/// What a call may have beside the common: known when the kernel is compiled, or when it runs. A plain call has no
/// seq_idx, z or chunk_states, y is of x's type, and x, B, C and y can be moved 16 bytes at a time.
template <bool plain>
struct Features {
  static constexpr bool documents = false;
  static constexpr bool wide = false;
};
template <>
struct Features<false> {
  bool documents;  ///< there is a seq_idx
  bool wide;       ///< y is fp32 and x is not
};

template <class E, Tiling tiling, bool plain_>
struct Worker : Features<plain_> {
  using Features<plain_>::documents;
  using Features<plain_>::wide;
  static constexpr bool plain = plain_;
  using Element = E;
  using Pair = typename E::Pair;
  static constexpr int q = tiling.chunk, p = tiling.channels, n = tiling.state, parts = tiling.parts;
  static constexpr int most_workers = tiling.workers, blocks_at_once = tiling.blocks;
  static constexpr int channel_blocks = p / 16;
  static constexpr int head_warps = channel_blocks * parts;
  static constexpr int warps = most_workers * head_warps;
  /// There are registers for addresses that are kept from chunk to chunk.
  static constexpr bool roomy = plain && n <= 64 && blocks_at_once * warps <= 8;
  static constexpr int threads = warps * 32;
  /// Warps that take part in a head's rows once the parts are summed, and the 16-row blocks of each.
  static constexpr int owners = parts < q / 16 ? parts : q / 16;
  static constexpr int own = q / 16 / owners;

  unsigned top;  ///< where the next tile begins in shared memory
  int warp, lane;
  int first_column;   ///< of the state, of those that this block holds
  unsigned exchange;  ///< where the parts of a sum meet
  unsigned skip;      ///< where the D of this worker's channels lie, in shared memory
  bool active;        ///< this warp's channels exist

  template <class Axis>
  static constexpr int extent = std::is_same_v<Axis, Q>   ? q
                                : std::is_same_v<Axis, P> ? p
                                                          : n* parts;

  TILEMAMBA_DEVICE unsigned take(unsigned bytes) {
    const unsigned at = top;
    top += bytes;
    return at;
  }
  TILEMAMBA_DEVICE int worker() const { return warp / head_warps; }
  TILEMAMBA_DEVICE int head_warp() const { return warp % head_warps; }
  TILEMAMBA_DEVICE int channel() const { return head_warp() % channel_blocks * 16; }
  TILEMAMBA_DEVICE int part() const { return parts == 1 ? 0 : head_warp() / channel_blocks; }
  TILEMAMBA_DEVICE int first_row() const { return part() * own * 16; }
  TILEMAMBA_DEVICE bool has_rows() const { return owners == parts || part() < owners; }
  /// The warps of this head meet. Barrier 0 is the block's.
  TILEMAMBA_DEVICE void meet_head() const { meet(1 + worker(), head_warps * 32); }

  // ------------------------------------------------------------------------------------------------------------------
  // types
  /// Elements in shared memory, 16-byte chunks of a row swizzled so that fragments are read without bank conflicts
  /// along either axis.
  template <class Row, class Column>
  struct Plane {
    static constexpr int height = extent<Row>, width = extent<Column>;
    static constexpr int chunks = width * E::size / 16;
    static constexpr bool swizzled = width * E::size % 128 == 0;
    static constexpr int pitch = swizzled ? width * E::size : (chunks | 1) * 16;
    static constexpr unsigned bytes = (height * pitch + 127) / 128 * 128;
    unsigned base;
    Plane() = default;
    TILEMAMBA_DEVICE explicit Plane(unsigned at) : base(at) {}

    static TILEMAMBA_DEVICE int swizzle(int row) {
      if constexpr (!swizzled) return 0;
      return E::size == 2 ? row & 7 : ((row ^ (row >> 1)) & 3) * 2;
    }
    TILEMAMBA_DEVICE unsigned chunk_offset(int row, int chunk) const {
      return base + row * pitch + (chunk ^ swizzle(row)) * 16;
    }
    TILEMAMBA_DEVICE unsigned offset(int row, int column) const {
      return chunk_offset(row, column * E::size / 16) + column * E::size % 16;
    }
    /// Two elements of a row.
    TILEMAMBA_DEVICE Pair& pair(int row, int column) const {
      return *reinterpret_cast<Pair*>(shared_memory + offset(row, column));
    }
    /// The pair at an offset found once, moved by eights.
    static TILEMAMBA_DEVICE Pair& pair_at(unsigned offset, int rows8, int columns8) {
      const unsigned across = columns8 == 0 ? offset : next_eight_columns(offset);
      return *reinterpret_cast<Pair*>(shared_memory + across + rows8 * 8 * pitch);
    }
    /// An address moved by whole blocks of 16 x 16; both counts are known to the compiler.
    static TILEMAMBA_DEVICE unsigned moved(unsigned address, int rows16, int columns16) {
      const int along = columns16 * 16 * E::size;
      const unsigned across = swizzled ? (address ^ (along & 127)) + (along & ~127) : address + along;
      return across + rows16 * 16 * pitch;
    }
    static TILEMAMBA_DEVICE unsigned next_eight_columns(unsigned address) {
      return swizzled ? address ^ (8 * E::size) : address + 8 * E::size;
    }
  };
  template <class Row, class Column, unsigned uses>
  struct Shared : Plane<Row, Column> {
    static constexpr bool placed_by_driver = uses == tile::elementwise;  // z, which is rarely there
    Shared() = default;
    TILEMAMBA_DEVICE explicit Shared(Worker& w)
        : Plane<Row, Column>(w.take(placed_by_driver ? 0 : Plane<Row, Column>::bytes)) {}
  };
  /// y on its way out, in its own type.
  template <class Row, class Column>
  struct Leaving : Plane<Row, Column> {
    static constexpr int wide_pitch = extent<Column> * 4 + 16;
    static constexpr unsigned wide_bytes = extent<Row> * wide_pitch;
    Leaving() = default;
    TILEMAMBA_DEVICE explicit Leaving(Worker& w)
        : Plane<Row, Column>(w.take(w.wide ? wide_bytes : Plane<Row, Column>::bytes)) {}
    TILEMAMBA_DEVICE unsigned wide_offset(int row, int column) const {
      return this->base + row * wide_pitch + column * 4;
    }
  };

  template <class Row, class Column, Part part = Part::full>
  struct Accumulator {  // this warp's rows and 16 columns
    float r[own][2][4];
    Accumulator() = default;
    TILEMAMBA_DEVICE explicit Accumulator(Worker&) {}
  };
  template <class Row, class Column>
  struct Accumulator<Row, Column, Part::lower> {
    // Blocks of 16 x 16. A warp has a block column, or every so manyth block of one; those above the diagonal mean
    // nothing. Or, where the state's columns are in parts, every so manyth block on or below the diagonal.
    static constexpr int side = extent<Row> / 16, blocks = side * (side + 1) / 2;
    static constexpr int crews = warps < side ? 1 : warps / side;
    static constexpr int share = parts == 1 ? (side + crews - 1) / crews : (blocks + warps - 1) / warps;
    float r[share][2][4];
    Accumulator() = default;
    TILEMAMBA_DEVICE explicit Accumulator(Worker&) {}
    static TILEMAMBA_DEVICE int crew(const Worker& w) { return crews == 1 ? 0 : w.warp / side; }
    static TILEMAMBA_DEVICE int column(const Worker& w) {  // so that a scheduler's warps have as much as another's
      return w.warp < warps / 2 ? w.warp % side : side - 1 - (w.warp - warps / 2) % side;
    }
    /// The row and column of a block among those on or below the diagonal.
    static TILEMAMBA_DEVICE void place(int block, int& i, int& j) {
      i = 0;
#pragma unroll
      for (int k = 1; k < side; ++k) i += block >= k * (k + 1) / 2;
      j = block - i * (i + 1) / 2;
    }
    /// f(index in r, block row, block column)
    template <class F>
    static TILEMAMBA_DEVICE void each_block(const Worker& w, F f) {
#pragma unroll
      for (int s = 0; s < share; ++s) {
        if constexpr (parts == 1) {
          const int i = s * crews + crew(w), j = column(w);
          if (i >= j && i < side) f(s, i, j);
        } else {
          const int block = w.warp + s * warps;
          if (blocks % warps != 0 && s + 1 == share && block >= blocks) continue;
          int i, j;
          place(block, i, j);
          f(s, i, j);
        }
      }
    }
  };
  template <class Row, class Column>
  struct State {  // this warp's 16 rows (channels) and its part of the columns
    float r[n / 8][4];
    State() = default;
    TILEMAMBA_DEVICE explicit State(Worker&) {}
  };

  template <class Row, class Column, unsigned use, Part part = Part::full>
  struct Operand {  // x, or x weighted: this warp's 16 columns
    Pair r[extent<Row> / 16][4];
    Operand() = default;
    TILEMAMBA_DEVICE explicit Operand(Worker&) {}
  };
  template <class Row, class Column, Part part>
  struct Operand<Row, Column, tile::as_A, part> : Plane<Row, Column> {
    Operand() = default;
    TILEMAMBA_DEVICE explicit Operand(Worker& w) : Plane<Row, Column>(w.take(Plane<Row, Column>::bytes)) {}
  };
  template <class Row, class Column, Part part>
  struct Operand<Row, Column, tile::as_Bt, part> {  // a packed state
    Pair r[n / 8][2];
    Operand() = default;
    TILEMAMBA_DEVICE explicit Operand(Worker&) {}
  };

  template <class T, class Axis>
  struct Line {
    unsigned base;
    Line() = default;
    TILEMAMBA_DEVICE explicit Line(Worker& w) : base(w.take(extent<Axis> * 4)) {}
    TILEMAMBA_DEVICE T& at(int i) const { return reinterpret_cast<T*>(shared_memory + base)[i]; }
  };
  template <class Axis>
  using Vector = Line<float, Axis>;
  template <class Axis>
  using Weights = Line<float, Axis>;
  template <class Axis>
  using Ordinals = Line<int, Axis>;
  /// What sums along a chunk are made in. Under strong decay cum is large and its differences may be small: for fp32 it
  /// must be known to more digits than it has.
  static constexpr bool precise = E::size == 4;
  using Sum = std::conditional_t<precise, double, float>;
  /// For fp32 what each cum, rounded, lacks of the sum. Decays are found where they are needed: exponentials by all
  /// warps cost less than a table by the one that sums the decays.
  struct DecayTable {
    Vector<Q> lacking;
    DecayTable() = default;
    TILEMAMBA_DEVICE explicit DecayTable(Worker& w) {
      if constexpr (precise) lacking = Vector<Q>(w);
    }
  };
  /// Products are done when they return, but for the sum of their parts.
  struct [[nodiscard]] Token {
    Accumulator<Q, P>* partial = nullptr;
    Accumulator<Q, Q, Part::lower>* scores = nullptr;
  };

  // --------------------------------------------------------------------------------------------------------------
  // fragments
  /// What a fragment is for: its four pairs (two eights of rows by two eights of the inner dimension) are in the order
  /// in which the instruction wants them, so that none is moved.
  enum class Side {
    a,  ///< rows first: the a of a product
    b,  ///< inner dimension first: the b of eight columns, and that of the next eight
  };
  /// How far pair `k` lies from the first, in eights.
  template <Side side>
  static constexpr int row_of(int k) {
    return side == Side::a ? k % 2 : k / 2;
  }
  template <Side side>
  static constexpr int inner_of(int k) {
    return side == Side::a ? k / 2 : k % 2;
  }
  /// Where this lane reads fragments of a plane as it stands, and transposed.
  template <Side side, class T>
  TILEMAMBA_DEVICE unsigned rows_address(const T& plane, int row, int column) const {
    if constexpr (E::size == 2) {
      const int k = lane / 8;
      return shared_address(plane.offset(row + lane % 8 + row_of<side>(k) * 8, column + inner_of<side>(k) * 8));
    }
    return shared_address(plane.offset(row + lane / 4, column + lane % 4 * 2));
  }
  struct ColumnsAddress {
    unsigned at[E::size == 2 ? 1 : 2];
  };
  template <Side side, class T>
  TILEMAMBA_DEVICE ColumnsAddress columns_address(const T& plane, int column) const {
    if constexpr (E::size == 2) {
      const int k = lane / 8;
      return {{shared_address(plane.offset(lane % 8 + inner_of<side>(k) * 8, column + row_of<side>(k) * 8))}};
    } else {
      return {{shared_address(plane.offset(lane % 4 * 2, column + lane / 4)),
               shared_address(plane.offset(lane % 4 * 2 + 1, column + lane / 4))}};
    }
  }
  /// Pairs along rows: the plane's columns are the product's inner dimension.
  template <Side side, class T>
  static TILEMAMBA_DEVICE void load_rows(Pair (&r)[4], const T&, unsigned address, int rows16, int columns16) {
    const unsigned at = T::moved(address, rows16, columns16);
    if constexpr (E::size == 2) {
      ldmatrix(r, at);
    } else {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        r[k] = load_shared_pair((inner_of<side>(k) == 0 ? at : T::next_eight_columns(at)) +
                                row_of<side>(k) * 8 * T::pitch);
      }
    }
  }
  /// Pairs along columns: the plane's rows are the product's inner dimension.
  template <Side side, class T>
  static TILEMAMBA_DEVICE void load_columns(Pair (&r)[4], const T&, const ColumnsAddress& address, int rows16,
                                            int columns16) {
    if constexpr (E::size == 2) {
      ldmatrix_transposed(r, T::moved(address.at[0], rows16, columns16));
    } else {
      const unsigned first = T::moved(address.at[0], rows16, columns16);
      const unsigned second = T::moved(address.at[1], rows16, columns16);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int down = inner_of<side>(k) * 8 * T::pitch;
        r[k] = {load_shared((row_of<side>(k) == 0 ? first : T::next_eight_columns(first)) + down),
                load_shared((row_of<side>(k) == 0 ? second : T::next_eight_columns(second)) + down)};
      }
    }
  }

  // -------------------------------------------------------------------------------------------------------- from and
  // to memory
  static TILEMAMBA_DEVICE bool aligned(const tile::TokenView& view, int size) {
    const std::int64_t strides = view.batch_stride | view.token_stride | view.head_stride;
    return ((reinterpret_cast<std::uintptr_t>(view.data) | (strides * size)) & 15) == 0;
  }
  /// The tiles of a group are moved by all warps, those of a head by the head's, 16 bytes at a time: who moves what.
  template <class Row, class Column, class Stored>
  struct Crew {
    static constexpr bool of_group = std::is_same_v<Column, N>;
    static constexpr int per_chunk = 16 / static_cast<int>(sizeof(Stored)), chunks = extent<Column> / per_chunk;
    static constexpr int size = (of_group ? warps : head_warps) * 32, rows = size / chunks;  ///< rows of a pass
    static_assert(size % chunks == 0);
    static constexpr int passes = (extent<Row> + rows - 1) / rows;
    int chunk, row;
    TILEMAMBA_DEVICE explicit Crew(const Worker& w) {
      const int me = (of_group ? w.warp : w.head_warp()) * 32 + w.lane;
      chunk = me % chunks, row = me / chunks;
    }
  };
  /// A tensor of a plain call, read or written chunk after chunk, forwards (1) or backwards (-1): where this thread is.
  template <class Column, int direction = 1>
  struct Stream {
    using Its = Crew<Q, Column, std::conditional_t<E::size == 2, std::uint16_t, float>>;
    char* at;
    int wanted;  ///< bytes, of 16
  };
  template <class Column, int direction = 1>
  TILEMAMBA_DEVICE Stream<Column, direction> stream(const tile::TokenView& view, const tile::Tokens& tokens,
                                                    const tile::Slice& slice) const {
    using Its = typename Stream<Column, direction>::Its;
    const Its me(*this);
    const int column = (Its::of_group ? first_column : slice.channel) + me.chunk * Its::per_chunk;
    const int wanted = kernels::greatest(0, kernels::least(Its::per_chunk, view.width - column)) * E::size;
    const std::int64_t origin = view.offset(tokens, Its::of_group ? slice.group : slice.head, wanted > 0 ? column : 0);
    return {static_cast<char*>(view.data) + (origin + me.row * view.token_stride) * E::size, wanted};
  }
  /// f(pass, row, address) for the rows of the next chunk, of which `count` exist.
  template <class Column, int direction, class F>
  TILEMAMBA_DEVICE void each_row(Stream<Column, direction>& stream, const tile::TokenView& view, F f) const {
    using Its = typename Stream<Column, direction>::Its;
    static_assert(q % Its::rows == 0 || Its::rows % q == 0);
    const std::int64_t step = view.token_stride * (Its::rows * E::size);
    char* at = stream.at;
#pragma unroll
    for (int k = 0; k < Its::passes; ++k) {
      f(k, at);
      at += step;
    }
    stream.at += view.token_stride * (direction * q * E::size);
  }
  template <class Column, int direction, unsigned uses>
  TILEMAMBA_DEVICE void get(Shared<Q, Column, uses>& out, Stream<Column, direction>& stream,
                            const tile::TokenView& view, int count) const {
    using T = Shared<Q, Column, uses>;
    using Its = typename Stream<Column, direction>::Its;
    const Its me(*this);
    if (Its::rows > q && me.row >= q) return;
    const unsigned to = shared_address(out.chunk_offset(me.row, me.chunk));
    const auto place = [&](int k) {
      return Its::rows % 8 == 0 || !T::swizzled ? to + k * Its::rows * T::pitch
                                                : shared_address(out.chunk_offset(me.row + k * Its::rows, me.chunk));
    };
    if (count == q) {
      each_row(stream, view, [&](int k, const char* from) { copy_async(place(k), from, stream.wanted); });
    } else {
      each_row(stream, view, [&](int k, const char* from) {
        copy_async(place(k), from, me.row + k * Its::rows < count ? stream.wanted : 0);
      });
    }
  }
  TILEMAMBA_DEVICE void put(Stream<P>& stream, const tile::TokenView& view, int count, const Leaving<Q, P>& in) const {
    using Its = typename Stream<P>::Its;
    const Its me(*this);
    each_row(stream, view, [&](int k, char* to) {
      const int row = me.row + k * Its::rows;
      if (stream.wanted > 0 && row < count)
        *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(shared_memory + in.chunk_offset(row, me.chunk));
    });
  }
  /// In the background where memory is aligned to 16 bytes, else element by element. What lies beyond the sequence or
  /// the width is zero and not read.
  template <class Column, unsigned uses, class View>
  TILEMAMBA_DEVICE void get(Shared<Q, Column, uses>& out, const View& view, const tile::Tokens& tokens,
                            const tile::Slice& slice) const {
    using T = Shared<Q, Column, uses>;
    constexpr bool of_group = std::is_same_v<Column, N>;
    constexpr int crew = (of_group ? warps : head_warps) * 32;
    constexpr int per_chunk = 16 / E::size;
    constexpr int rows = crew / T::chunks;  // of a pass
    static_assert(crew % T::chunks == 0);
    const int me = (of_group ? warp : head_warp()) * 32 + lane;
    const int chunk = me % T::chunks, row = me / T::chunks;
    const int column = (of_group ? first_column : slice.channel) + chunk * per_chunk;
    const int wanted = kernels::least(per_chunk, view.width - column) * E::size;
    const int count = wanted > 0 ? tokens.count : 0;
    const std::int64_t origin = view.offset(tokens, of_group ? slice.group : slice.head, wanted > 0 ? column : 0);
    if (plain || aligned(view, E::size)) {
      const char* from = static_cast<const char*>(view.data) + (origin + row * view.token_stride) * E::size;
      const std::int64_t step = view.token_stride * (rows * E::size);
      const unsigned to = shared_address(out.chunk_offset(row, chunk));
#pragma unroll
      for (int k = 0; k < (q + rows - 1) / rows; ++k) {
        const int here = row + k * rows;
        if (q % rows != 0 && here >= q) break;
        copy_async(
            rows % 8 == 0 || !T::swizzled ? to + k * rows * T::pitch : shared_address(out.chunk_offset(here, chunk)),
            from, here < count ? wanted : 0);
        from += step;
      }
    } else {
#pragma unroll 1
      for (int here = row; here < q; here += rows) {
        alignas(16) Pair pairs[per_chunk / 2];
#pragma unroll
        for (int k = 0; k < per_chunk / 2; ++k) {
          const auto element = [&](int e) {
            const bool inside = here < count && e * E::size < wanted;
            return inside ? tile::load(view.data, E::dtype, origin + here * view.token_stride + e) : 0.0f;
          };
          pairs[k] = E::pack(element(2 * k), element(2 * k + 1));
        }
        *reinterpret_cast<uint4*>(shared_memory + out.chunk_offset(here, chunk)) =
            *reinterpret_cast<const uint4*>(pairs);
      }
    }
  }

  static constexpr int each = q < 32 ? 1 : q / 32;  ///< elements of a vector that a lane has
  TILEMAMBA_DEVICE int token(int e) const { return lane * each + e; }
  TILEMAMBA_DEVICE bool exists(int i) const { return q >= 32 || i < q; }
  /// f(i, e) for this lane's elements.
  template <class F>
  TILEMAMBA_DEVICE void each_token(F f) const {
#pragma unroll
    for (int e = 0; e < each; ++e) {
      if (exists(token(e))) f(token(e), e);
    }
  }

  /// The steps of a chunk on their way: loaded long before they are wanted, in the registers of the warp that will want
  /// them, and as they are in memory, so that nobody waits for them before.
  struct Steps {
    std::uint32_t r[each];
    DType dtype;
  };
  template <class View>
  TILEMAMBA_DEVICE void get(Steps& out, const View& view, const tile::Tokens& tokens, int head) const {
    const std::int64_t origin = view.offset(tokens, head, 0);
    out.dtype = view.dtype;
#pragma unroll
    for (int e = 0; e < each; ++e) {
      const int i = token(e);
      const std::int64_t at = origin + i * view.token_stride;
      out.r[e] = 0;
      if (i >= tokens.count) continue;
      if (view.dtype == DType::f32) {
        out.r[e] = static_cast<const std::uint32_t*>(view.data)[at];
      } else {
        out.r[e] = static_cast<const std::uint16_t*>(view.data)[at];
      }
    }
  }
  TILEMAMBA_DEVICE void get(Vector<Q>& out, const Steps& steps, const tile::Tokens&, int) const {
    each_token([&](int i, int e) {
      out.at(i) = steps.dtype == DType::f32 ? __uint_as_float(steps.r[e]) : unpack(steps.dtype, steps.r[e]).x;
    });
  }
  TILEMAMBA_DEVICE void get(Vector<Q>& out, const tile::TokenView& view, const tile::Tokens& tokens, int head) const {
    Steps steps;
    get(steps, view, tokens, head);
    get(out, steps, tokens, head);
  }
  TILEMAMBA_DEVICE void get(Vector<Q>& out, const tile::ChunkVectors& view, std::int64_t unit, int head) const {
    const float* from = view.at(unit, head);
    each_token([&](int i, int) { out.at(i) = from[i]; });
    __syncwarp();
  }
  TILEMAMBA_DEVICE void put(const tile::ChunkVectors& view, std::int64_t unit, int head, const Vector<Q>& in) const {
    float* to = view.at(unit, head);
    each_token([&](int i, int) { to[i] = in.at(i); });
  }
  TILEMAMBA_DEVICE void put(const tile::ChunkVectors& view, std::int64_t unit, int head, float value) const {
    if (lane == 0) *view.at(unit, head) = value;
  }

  // ------------------------------------------------------------------------------------------------------------ states
  // in memory
  /// f(j, half, offset, elements): two neighbouring elements of the state, of which 0, 1 or 2 exist.
  template <class F>
  TILEMAMBA_DEVICE void each_pair(const tile::StateView& view, std::int64_t batch, std::int64_t index,
                                  const tile::Slice& slice, F f) const {
    const std::int64_t origin = view.offset(batch, index, slice);
    const int first = first_column + part() * n + lane % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = channel() + lane / 4 + half * 8;
      const int width = slice.channel + row < view.channels ? view.width : 0;
      const std::int64_t at = origin + row * view.channel_stride + first;
#pragma unroll
      for (int j = 0; j < n / 8; ++j) f(j, half, at + j * 8, width - (first + j * 8));
    }
  }
  static TILEMAMBA_DEVICE bool paired(const tile::StateView& view) {
    const std::int64_t strides =
        view.batch_stride | view.index_stride | view.head_stride | view.channel_stride | view.width;
    const auto size = static_cast<std::uintptr_t>(size_of(view.dtype));
    return (strides & 1) == 0 && reinterpret_cast<std::uintptr_t>(view.data) % (2 * size) == 0;
  }
  static TILEMAMBA_DEVICE float2 unpack(DType dtype, std::uint32_t v) {
    return dtype == DType::bf16 ? Bf16::unpack(v) : F16::unpack(v);
  }
  static TILEMAMBA_DEVICE std::uint32_t pack(DType dtype, float low, float high) {
    return dtype == DType::bf16 ? Bf16::pack(low, high) : F16::pack(low, high);
  }
  /// f(j, half, values)
  template <class F>
  TILEMAMBA_DEVICE void load_state(const tile::StateView& view, std::int64_t batch, std::int64_t index,
                                   const tile::Slice& slice, F f) const {
    const bool pairs = paired(view);
    if (view.dtype == DType::f32) {
      const auto* data = static_cast<const float*>(view.data);
      if (pairs) {
        each_pair(view, batch, index, slice, [&](int j, int half, std::int64_t at, int count) {
          f(j, half, count > 0 ? *reinterpret_cast<const float2*>(data + at) : float2{});
        });
      } else {
        each_pair(view, batch, index, slice, [&](int j, int half, std::int64_t at, int count) {
          f(j, half, float2{count > 0 ? data[at] : 0.0f, count > 1 ? data[at + 1] : 0.0f});
        });
      }
    } else {
      const auto* data = static_cast<const std::uint16_t*>(view.data);
      if (pairs) {
        each_pair(view, batch, index, slice, [&](int j, int half, std::int64_t at, int count) {
          f(j, half, unpack(view.dtype, count > 0 ? *reinterpret_cast<const std::uint32_t*>(data + at) : 0u));
        });
      } else {
        each_pair(view, batch, index, slice, [&](int j, int half, std::int64_t at, int count) {
          const std::uint32_t low = count > 0 ? data[at] : 0u, high = count > 1 ? data[at + 1] : 0u;
          f(j, half, unpack(view.dtype, low | high << 16));
        });
      }
    }
  }
  TILEMAMBA_DEVICE void get(State<P, N>& out, const tile::StateView& view, std::int64_t batch, std::int64_t index,
                            const tile::Slice& slice) const {
    if (!view.given) return zero(out);
    if (in_blocks(view)) {
      each_block<4>(view, index, slice, [&](int k, const uint4* from, bool exists) {
        Block<4> block{};
#pragma unroll
        for (int w = 0; w < 2; ++w) {
          if (exists) block.words[w] = from[w * 32];
        }
#pragma unroll
        for (int e = 0; e < 8; ++e) out.r[2 * k + e / 4][e % 4] = block.numbers[e];
      });
      return;
    }
    load_state(view, batch, index, slice, [&](int j, int half, float2 v) {
      out.r[j][half * 2] = v.x;
      out.r[j][half * 2 + 1] = v.y;
    });
  }
  /// States of the workspace lie in blocks of 16 x 16, each as its warp's lanes hold it: 16 bytes of every lane, then
  /// the next. Where they are not made of whole blocks they lie as any other.
  static TILEMAMBA_DEVICE bool in_blocks(const tile::StateView& view) {
    return view.channel_stride == stride_of_blocks;
  }
  template <int size>
  union Block {
    uint4 words[size / 2];
    float numbers[size * 2];
    Pair pairs[4];
  };
  /// f(k, address of its first word, does it exist?) for the k-th block of columns, of elements of so many bytes.
  template <int size, class F>
  TILEMAMBA_DEVICE void each_block(const tile::StateView& view, std::int64_t index, const tile::Slice& slice,
                                   F f) const {
    const int row = slice.channel + channel(), first = (first_column + part() * n) / 16;
    const int count = row < view.channels ? view.width / 16 : 0;
    const std::int64_t state = index * view.index_stride + slice.head * view.head_stride;
    const std::int64_t origin = state + static_cast<std::int64_t>(row) * view.width + first * 256;
    auto* const data = reinterpret_cast<uint4*>(static_cast<char*>(view.data) + origin * size) + lane;
#pragma unroll
    for (int k = 0; k < n / 16; ++k) f(k, data + k * (size * 16), first + k < count);
  }
  /// Where a lane has its share of the k-th block that its warp has in shared memory from `base` on.
  static constexpr unsigned blocks_bytes = warps * n * 16 * E::size;
  TILEMAMBA_DEVICE unsigned block_offset(unsigned base, int k) const {
    return base + (warp * (n / 16) + k) * 256 * E::size + lane * 16;
  }
  /// A state on its way to shared memory; each lane brings what it will get.
  TILEMAMBA_DEVICE void fetch(unsigned base, const tile::StateView& view, std::int64_t index,
                              const tile::Slice& slice) const {
    if (in_blocks(view)) {
      each_block<E::size>(view, index, slice, [&](int k, const uint4* from, bool exists) {
#pragma unroll
        for (int w = 0; w < E::size / 2; ++w) {
          copy_async(shared_address(block_offset(base, k) + w * 512), from + w * 32, exists ? 16 : 0);
        }
      });
    } else {
      load_state(view, 0, index, slice, [&](int j, int half, float2 v) {
        const int pair = half * 2 + j % 2, of_word = 16 / static_cast<int>(sizeof(Pair));
        reinterpret_cast<Pair*>(shared_memory + block_offset(base, j / 2) + pair / of_word * 512)[pair % of_word] =
            E::pack(v.x, v.y);
      });
    }
  }
  TILEMAMBA_DEVICE void get(Operand<P, N, tile::as_Bt>& out, unsigned base) const {
#pragma unroll
    for (int k = 0; k < n / 16; ++k) {
      Block<E::size> block;
#pragma unroll
      for (int w = 0; w < E::size / 2; ++w) {
        block.words[w] = *reinterpret_cast<const uint4*>(shared_memory + block_offset(base, k) + w * 512);
      }
#pragma unroll
      for (int h = 0; h < 4; ++h) out.r[2 * k + h % 2][h / 2] = block.pairs[h];
    }
  }
  TILEMAMBA_DEVICE void put(const tile::StateView& view, std::int64_t index, const tile::Slice& slice,
                            const Operand<P, N, tile::as_Bt>& in) const {
    if (in_blocks(view)) {
      each_block<E::size>(view, index, slice, [&](int k, uint4* to, bool exists) {
        if (!exists) return;
        Block<E::size> block;
#pragma unroll
        for (int h = 0; h < 4; ++h) block.pairs[h] = in.r[2 * k + h % 2][h / 2];
#pragma unroll
        for (int w = 0; w < E::size / 2; ++w) to[w * 32] = block.words[w];
      });
    } else {
      each_pair(view, 0, index, slice, [&](int j, int half, std::int64_t at, int count) {
        const float2 v = E::unpack(in.r[j][half]);
        if (count > 0) tile::store(view.data, E::dtype, at, v.x);
        if (count > 1) tile::store(view.data, E::dtype, at + 1, v.y);
      });
    }
  }
  TILEMAMBA_DEVICE void put(const tile::StateView& view, std::int64_t batch, std::int64_t index,
                            const tile::Slice& slice, const State<P, N>& in) const {
    if (in_blocks(view)) {
      each_block<4>(view, index, slice, [&](int k, uint4* to, bool exists) {
        if (!exists) return;
        Block<4> block;
#pragma unroll
        for (int e = 0; e < 8; ++e) block.numbers[e] = in.r[2 * k + e / 4][e % 4];
#pragma unroll
        for (int w = 0; w < 2; ++w) to[w * 32] = block.words[w];
      });
      return;
    }
    const bool pairs = paired(view);
    if (view.dtype == DType::f32) {
      auto* data = static_cast<float*>(view.data);
      each_pair(view, batch, index, slice, [&](int j, int half, std::int64_t at, int count) {
        const float2 v = {in.r[j][half * 2], in.r[j][half * 2 + 1]};
        if (pairs && count > 0) {
          *reinterpret_cast<float2*>(data + at) = v;
        } else {
          if (count > 0) data[at] = v.x;
          if (count > 1) data[at + 1] = v.y;
        }
      });
    } else {
      auto* data = static_cast<std::uint16_t*>(view.data);
      each_pair(view, batch, index, slice, [&](int j, int half, std::int64_t at, int count) {
        const std::uint32_t v = pack(view.dtype, in.r[j][half * 2], in.r[j][half * 2 + 1]);
        if (pairs && count > 0) {
          *reinterpret_cast<std::uint32_t*>(data + at) = v;
        } else {
          if (count > 0) data[at] = static_cast<std::uint16_t>(v);
          if (count > 1) data[at + 1] = static_cast<std::uint16_t>(v >> 16);
        }
      });
    }
  }

  // ------------------------------------------------------------------------------------------------------------- y on
  // its way out
  template <class Stored, class Offset>
  TILEMAMBA_DEVICE void put_rows(const tile::TokenView& view, const tile::Tokens& tokens, const tile::Slice& slice,
                                 Offset offset) const {
    constexpr int per_chunk = 16 / static_cast<int>(sizeof(Stored)), chunks = p / per_chunk;
    constexpr int crew = head_warps * 32, rows = crew / chunks;
    const int me = head_warp() * 32 + lane, chunk = me % chunks, row = me / chunks;
    const int column = slice.channel + chunk * per_chunk;
    const int wanted = kernels::least(per_chunk, view.width - column);
    if (wanted <= 0) return;
    Stored* to = static_cast<Stored*>(view.data) + view.offset(tokens, slice.head, column) + row * view.token_stride;
    const std::int64_t step = view.token_stride * rows;
    const bool whole = plain || (wanted == per_chunk && aligned(view, sizeof(Stored)));
#pragma unroll 4
    for (int here = row; here < tokens.count; here += rows) {
      const uint4 v = *reinterpret_cast<const uint4*>(shared_memory + offset(here, chunk));
      if (whole) {
        *reinterpret_cast<uint4*>(to) = v;
      } else {
        const auto* elements = reinterpret_cast<const Stored*>(shared_memory + offset(here, chunk));
        for (int e = 0; e < wanted; ++e) to[e] = elements[e];
      }
      to += step;
    }
  }
  template <class View>
  TILEMAMBA_DEVICE void put(const View& view, const tile::Tokens& tokens, const tile::Slice& slice,
                            const Leaving<Q, P>& in) const {
    if (E::size == 4 || wide) {
      put_rows<float>(view, tokens, slice, [&](int row, int chunk) {
        return E::size == 4 ? in.chunk_offset(row, chunk) : in.wide_offset(row, chunk * 4);
      });
    } else {
      put_rows<std::uint16_t>(view, tokens, slice, [&](int row, int chunk) { return in.chunk_offset(row, chunk); });
    }
  }
  TILEMAMBA_DEVICE void narrow(Leaving<Q, P>& out, const Accumulator<Q, P>& y) const {
    if (!has_rows()) return;
    const int row = first_row() + lane / 4, column = channel() + lane % 4 * 2;
    const unsigned at = out.offset(row, column);
#pragma unroll
    for (int k = 0; k < 4 * own; ++k) {
      const int i = k / 4, j = k % 2, half = k / 2 % 2;
      const float low = y.r[i][j][half * 2], high = y.r[i][j][half * 2 + 1];
      if (E::size == 2 && wide) {
        *reinterpret_cast<float2*>(shared_memory + out.wide_offset(row + i * 16 + half * 8, column + j * 8)) = {low,
                                                                                                                high};
      } else {
        out.pair_at(at, i * 2 + half, j) = E::pack(low, high);
      }
    }
  }

  // ----------------------------------------------------------------------------------------------------------------
  // elementwise
  template <class Axis>
  static TILEMAMBA_DEVICE float value(const tile::Rows<Vector<Axis>>& a, int row, int) {
    return a.vector.at(row);
  }
  template <class Axis>
  TILEMAMBA_DEVICE int value(const tile::Rows<Ordinals<Axis>>& a, int row, int) const {
    return documents ? a.vector.at(row) : 0;
  }
  template <class Row, class Column, unsigned uses>
  static TILEMAMBA_DEVICE float value(const tile::Same<Shared<Row, Column, uses>>& a, int row, int column) {
    const float2 v = E::unpack(a.tile.pair(row, column & ~1));
    return column & 1 ? v.y : v.x;
  }
  static TILEMAMBA_DEVICE bool value(const tile::Inside& a, int row, int) { return row < a.count; }

  template <class F, class... Arguments>
  TILEMAMBA_DEVICE void map(Accumulator<Q, P>& target, F f, const Arguments&... arguments) const {
    if (!has_rows()) return;
#pragma unroll
    for (int i = 0; i < own; ++i) {
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const int j = k / 4, e = k % 4;
        const int row = first_row() + i * 16 + lane / 4 + e / 2 * 8, column = channel() + j * 8 + lane % 4 * 2 + e % 2;
        target.r[i][j][e] = f(target.r[i][j][e], value(arguments, row, column)...);
      }
    }
  }
  template <class F>
  TILEMAMBA_DEVICE void map(State<P, N>& target, F f, const tile::Same<State<P, N>>& other) const {
#pragma unroll
    for (int k = 0; k < n / 2; ++k) target.r[k / 4][k % 4] = f(target.r[k / 4][k % 4], other.tile.r[k / 4][k % 4]);
  }
  template <class F, class... Arguments>
  TILEMAMBA_DEVICE void map(Vector<Q>& target, F f, const Arguments&... arguments) const {
    each_token([&](int i, int) { target.at(i) = f(target.at(i), value(arguments, i, 0)...); });
    __syncwarp();
  }
  TILEMAMBA_DEVICE void zero(State<P, N>& S) const {
#pragma unroll
    for (int k = 0; k < n / 2; ++k) S.r[k / 4][k % 4] = 0.0f;
  }
  /// Fragments of this warp's columns of x, each pair (two tokens of a channel) changed by f(low, high, first token).
  template <unsigned use, unsigned uses, class F>
  TILEMAMBA_DEVICE void load_operand(Operand<Q, P, use>& out, const Shared<Q, P, uses>& x, F f) const {
    constexpr Side side = use == tile::as_At ? Side::a : Side::b;
    const ColumnsAddress at = columns_address<side>(x, channel());
#pragma unroll
    for (int k = 0; k < q / 16; ++k) {
      load_columns<side>(out.r[k], x, at, k, 0);
#pragma unroll
      for (int h = 0; h < 4; ++h) out.r[k][h] = f(out.r[k][h], k * 16 + inner_of<side>(h) * 8 + lane % 4 * 2);
    }
  }
  template <unsigned use, unsigned uses, class F>
  TILEMAMBA_DEVICE void operand_if(bool condition, Operand<Q, P, use>& out, const Shared<Q, P, uses>& x, F f) const {
    load_operand(out, x, [&](Pair v, int) {
      const float2 pair = E::unpack(v);
      return condition ? E::pack(f(pair.x), f(pair.y)) : v;
    });
  }
  TILEMAMBA_DEVICE void operand(Operand<P, N, tile::as_Bt>& out, const State<P, N>& S) const {
#pragma unroll
    for (int j = 0; j < n / 8; ++j) {
      out.r[j][0] = E::pack(S.r[j][0], S.r[j][1]);
      out.r[j][1] = E::pack(S.r[j][2], S.r[j][3]);
    }
  }

  // ---------------------------------------------------------------------------------------------------------------
  // along a chunk By one warp; the block's barriers hand the results to the others.
  /// Inclusive sums of f(i), restarted where the document changes: this lane's.
  template <class F>
  TILEMAMBA_DEVICE void sums(Sum (&sum)[each], const Ordinals<Q>& document, F f) const {
    int its[each];
#pragma unroll
    for (int e = 0; e < each; ++e) {
      sum[e] = exists(token(e)) ? f(token(e)) : 0.0f;
      its[e] = documents && exists(token(e)) ? document.at(token(e)) : 0;
      if (e > 0 && its[e] == its[e - 1]) sum[e] += sum[e - 1];
    }
    Sum total = sum[each - 1];
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const Sum before = __shfl_up_sync(~0u, total, d);
      const int theirs = __shfl_up_sync(~0u, its[each - 1], d);
      if (lane >= d && theirs == its[each - 1]) total += before;
    }
    const Sum before = __shfl_up_sync(~0u, total, 1);
    const int theirs = __shfl_up_sync(~0u, its[each - 1], 1);
#pragma unroll
    for (int e = 0; e < each; ++e) sum[e] += lane > 0 && theirs == its[e] ? before : Sum{};
  }
  TILEMAMBA_DEVICE void scan(Vector<Q>& v, const Ordinals<Q>& document) const {
    Sum sum[each];
    sums(sum, document, [&](int i) { return v.at(i); });
    each_token([&](int i, int e) { v.at(i) = static_cast<float>(sum[e]); });
    __syncwarp();
  }
  TILEMAMBA_DEVICE void scan_back(Vector<Q>& v) const {
    Sum sum[each];
#pragma unroll
    for (int e = each - 1; e >= 0; --e) {
      sum[e] = exists(token(e)) ? v.at(token(e)) : 0.0f;
      if (e + 1 < each) sum[e] += sum[e + 1];
    }
    Sum total = sum[0];
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const Sum later = __shfl_down_sync(~0u, total, d);
      if (lane + d < 32) total += later;
    }
    const Sum next = __shfl_down_sync(~0u, total, 1);
    const Sum after = lane < 31 ? next : Sum{};
    each_token([&](int i, int e) { v.at(i) = static_cast<float>((e + 1 < each ? sum[e + 1] : Sum{}) + after); });
    __syncwarp();
  }
  template <class View>
  TILEMAMBA_DEVICE void scan_changes(Ordinals<Q>& out, const View& view, const tile::Tokens& tokens) const {
    if (!documents) return;
    const auto* id = static_cast<const std::int32_t*>(view.data) + view.offset(tokens, 0, 0);
    int changes[each];
#pragma unroll
    for (int e = 0; e < each; ++e) {
      const int i = token(e);
      const bool has_previous = i > 0 || !tokens.begins;
      changes[e] = i < tokens.count && has_previous ? id[i * view.token_stride] != id[(i - 1) * view.token_stride] : 0;
      if (e > 0) changes[e] += changes[e - 1];
    }
    int total = changes[each - 1];
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const int before = __shfl_up_sync(~0u, total, d);
      if (lane >= d) total += before;
    }
    each_token([&](int i, int e) { out.at(i) = changes[e] + total - changes[each - 1]; });
    __syncwarp();
  }
  TILEMAMBA_DEVICE float first(const Vector<Q>& v) const { return v.at(0); }
  TILEMAMBA_DEVICE float last(const Vector<Q>& v) const { return v.at(q - 1); }
  TILEMAMBA_DEVICE int last(const Ordinals<Q>& v) const { return documents ? v.at(q - 1) : 0; }

  // ---------------------------------------------------------------------------------------------------------
  // operations by name
  /// What is beyond a sequence was loaded as zeros, so only where documents meet has a weight of zero to remove its
  /// value.
  TILEMAMBA_DEVICE float weigh(float v, float weight)
      const {  // Never contracted with a sum that follows: plain kernels and the others give the same bits.
    const float product = __fmul_rn(v, weight);
    return documents && weight == 0.0f ? 0.0f : product;
  }
  TILEMAMBA_DEVICE void weigh(Accumulator<Q, P>& y, const Vector<Q>& weights) const {
    map(
        y, [this](float v, float weight) { return weigh(v, weight); }, tile::rows(weights));
  }
  template <unsigned uses>
  TILEMAMBA_DEVICE void weigh(Operand<Q, P, tile::as_At>& out, const Shared<Q, P, uses>& x,
                              const Vector<Q>& weights) const {
    load_operand(out, x, [&](Pair v, int token) {
      const float2 pair = E::unpack(v);
      const float2 its = *reinterpret_cast<const float2*>(&weights.at(token));
      return E::pack(weigh(pair.x, its.x), weigh(pair.y, its.y));
    });
  }
  TILEMAMBA_DEVICE void decay(State<P, N>& S, float factor) const {
#pragma unroll
    for (int k = 0; k < n / 2; ++k) S.r[k / 4][k % 4] = weigh(S.r[k / 4][k % 4], factor);
  }
  TILEMAMBA_DEVICE void tabulate(DecayTable& table, const Vector<Q>& cum, const Vector<Q>& delta,
                                 const Ordinals<Q>& document, float rate) const {
    if constexpr (precise) {
      Sum sum[each];
      sums(sum, document, [&](int i) { return __fmul_rn(delta.at(i), rate); });
      each_token([&](int i, int e) { table.lacking.at(i) = static_cast<float>(sum[e] - cum.at(i)); });
      __syncwarp();
    }
  }
  template <class View>
  TILEMAMBA_DEVICE void decay_scores(Operand<Q, Q, tile::as_A, Part::lower>& out,
                                     const Accumulator<Q, Q, Part::lower>& scores, const Vector<Q>& cum,
                                     const Vector<Q>& delta, const Ordinals<Q>& document, const DecayTable& table,
                                     float, const View&, int) const {
    // Below the diagonal, unless every digit counts, a weight is a factor of its row and one of its column, either from
    // the end of the block's columns: both are at most what the weight may be.
    constexpr bool by_factors = parts == 1 && !precise;
    using Scores = Accumulator<Q, Q, Part::lower>;
    [[maybe_unused]] float end, factor[4];
    if constexpr (by_factors) {
      const int first = Scores::column(*this) * 16;
      end = cum.at(first + 15);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int column = first + lane % 4 * 2 + k / 2 * 8 + k % 2;
        factor[k] = weigh(delta.at(column), exp2_flushed(end - cum.at(column)));
      }
    }
    // All that is read comes before the first write: the compiler does not know that they are apart.
    Scores::each_block(*this, [&](int s, int i, int j) {
      const int row = i * 16 + lane / 4, column = j * 16 + lane % 4 * 2;
      float weight[2][4];  // as the scores lie
      const auto each_weight = [&](auto seen) {
#pragma unroll
        for (int k = 0; k < 8; ++k) {
          const int its_row = row + k / 2 % 2 * 8, its_column = column + k / 4 * 8 + k % 2;
          float difference = cum.at(its_row) - cum.at(its_column);
          if constexpr (precise) difference += table.lacking.at(its_row) - table.lacking.at(its_column);
          const float exponent = tile::select(seen(its_row, its_column), difference, tile::minus_infinity);
          weight[k / 4][k % 4] = weigh(delta.at(its_column), exp2_flushed(exponent));
        }
      };
      if (by_factors && i != j) {
#pragma unroll
        for (int k = 0; k < 8; ++k) {
          const int its_row = row + k / 2 % 2 * 8, its_column = column + k / 4 * 8 + k % 2;
          const float product = __fmul_rn(exp2_flushed(cum.at(its_row) - end), factor[k / 4 * 2 + k % 2]);
          const bool seen = !documents || document.at(its_row) == document.at(its_column);
          weight[k / 4][k % 4] = tile::select(seen, product, 0.0f);
        }
      } else if (documents || i == j) {
        each_weight([&](int its_row, int its_column) {
          return (i != j || its_column <= its_row) && (!documents || document.at(its_row) == document.at(its_column));
        });
      } else {
        each_weight([](int, int) { return true; });
      }
      const unsigned at = out.offset(row, column);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int h = k / 2, half = k % 2;
        const float* score = &scores.r[s][h][half * 2];
        out.pair_at(at, half, h) =
            E::pack(decayed(score[0], weight[h][half * 2], i == j), decayed(score[1], weight[h][half * 2 + 1], i == j));
      }
    });
  }
  /// On the diagonal a weight of zero hides scores that need not be finite.
  TILEMAMBA_DEVICE float decayed(float score, float weight, bool diagonal) const {
    return documents || diagonal ? tile::weigh(score, weight) : score * weight;
  }
  /// A worker has all columns of its state.
  template <class Summed>
  TILEMAMBA_DEVICE void sum_columns(Summed&) const {}
  /// The D of a worker's channels, brought where add_skip looks for it; by the worker's warps, once.
  static constexpr unsigned skip_bytes = p * 4;
  TILEMAMBA_DEVICE void load_skip(const tile::HeadView& D, const tile::Slice& slice) const {
    const int i = head_warp() * 32 + lane;
    if (i >= p) return;
    const bool exists_here = D.channel_stride == 0 || slice.channel + i < D.width;
    reinterpret_cast<float*>(shared_memory + skip)[i] =
        exists_here ? tile::value(D, slice.head, slice.channel + i) : 0.0f;
  }
  template <class View, unsigned uses>
  TILEMAMBA_DEVICE void add_skip(Accumulator<Q, P>& y, const Shared<Q, P, uses>& x, const View& D,
                                 const tile::Slice&) const {
    if (!D.given || !has_rows()) return;
    const int column = channel() + lane % 4 * 2;
    const unsigned at = x.offset(first_row() + lane / 4, column);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float2 d = *reinterpret_cast<const float2*>(shared_memory + skip + (column + j * 8) * 4);
#pragma unroll
      for (int k = 0; k < 2 * own; ++k) {
        const float2 v = E::unpack(x.pair_at(at, k, j));
        y.r[k / 2][j][k % 2 * 2] += d.x * v.x;
        y.r[k / 2][j][k % 2 * 2 + 1] += d.y * v.y;
      }
    }
  }

  // -------------------------------------------------------------------------------------------------------------------
  // products
  template <class... Later>
  TILEMAMBA_DEVICE void wait(const Token& token, const Later&...) const {
    if constexpr (parts > 1) {
      if (token.partial != nullptr) add_parts(*token.partial);
      if (token.scores != nullptr) add_parts(*token.scores);
    }
  }

  static TILEMAMBA_DEVICE void clear(Accumulator<Q, P>& y) { fill(y.r); }
  static TILEMAMBA_DEVICE void clear(Accumulator<Q, Q, Part::lower>& scores) { fill(scores.r); }
  template <int size>
  static TILEMAMBA_DEVICE void fill(float (&r)[size][2][4]) {
#pragma unroll
    for (int k = 0; k < size * 8; ++k) r[k / 8][k / 4 % 2][k % 4] = 0.0f;
  }
  /// scores += C B^T and y += C S_in^T over the columns at hand, C being read once for both.
  template <unsigned u, unsigned v>
  TILEMAMBA_DEVICE Token mma_ABt(tile::Add<Accumulator<Q, Q, Part::lower>> scores, tile::Add<Accumulator<Q, P>> y,
                                 const Shared<Q, N, u>& C, const Shared<Q, N, v>& B,
                                 const Operand<P, N, tile::as_Bt>& S) const {
    using Scores = Accumulator<Q, Q, Part::lower>;
    const unsigned c_at = rows_address<Side::a>(C, 0, 0);
    const unsigned b_at = rows_address<Side::b>(B, Scores::column(*this) * 16, 0);
#pragma unroll
    for (int k = 0; k < n / 16; ++k) {
      Pair b[4];
      load_rows<Side::b>(b, B, b_at, 0, k);
#pragma unroll
      for (int i = 0; i < q / 16; ++i) {
        Pair c[4];
        load_rows<Side::a>(c, C, c_at, i, k);
        E::mma(y.target.r[i][0], c, S.r[2 * k][0], S.r[2 * k + 1][0]);
        E::mma(y.target.r[i][1], c, S.r[2 * k][1], S.r[2 * k + 1][1]);
        if (Scores::crews > 1 && i % Scores::crews != Scores::crew(*this)) continue;
        // Above the diagonal, too: a branch costs more.
        E::mma(scores.target.r[i / Scores::crews][0], c, b[0], b[1]);
        E::mma(scores.target.r[i / Scores::crews][1], c, b[2], b[3]);
      }
    }
    return {};
  }
  /// scores = C B^T: this warp's blocks; or, where the state's columns are in parts, its part of the sum for some
  /// blocks, which those whose blocks they are put together.
  template <unsigned u, unsigned v>
  TILEMAMBA_DEVICE Token mma_ABt(tile::Set<Accumulator<Q, Q, Part::lower>> scores, const Shared<Q, N, u>& C,
                                 const Shared<Q, N, v>& B) const {
    using Scores = Accumulator<Q, Q, Part::lower>;
    constexpr int crew = most_workers * channel_blocks;
#pragma unroll 1
    for (int block = worker() * channel_blocks + channel() / 16; block < Scores::blocks; block += crew) {
      int i, j;
      Scores::place(block, i, j);
      float sum[2][4];
      multiply_block(sum, C, B, i, j);
#pragma unroll
      for (int h = 0; h < 2; ++h) part_of(block, part(), h) = {sum[h][0], sum[h][1], sum[h][2], sum[h][3]};
    }
    return {nullptr, &scores.target};
  }
  /// A block of C B^T over this warp's part of the columns. Where that is all there is to do, two sums beside each
  /// other: they wait for each other's products less.
  template <class C_tile, class B_tile>
  TILEMAMBA_DEVICE void multiply_block(float (&out)[2][4], const C_tile& C, const B_tile& B, int i, int j) const {
    constexpr int sums = parts > 1 ? 2 : 1;
    float sum[sums][2][4] = {};
    const unsigned c_at = rows_address<Side::a>(C, i * 16, part() * n);
    const unsigned b_at = rows_address<Side::b>(B, j * 16, part() * n);
#pragma unroll 4
    for (int k = 0; k < n / 16; ++k) {
      Pair c[4], b[4];
      load_rows<Side::a>(c, C, c_at, 0, k);
      load_rows<Side::b>(b, B, b_at, 0, k);
      E::mma(sum[k % sums][0], c, b[0], b[1]);
      E::mma(sum[k % sums][1], c, b[2], b[3]);
    }
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      out[k / 4][k % 4] = sums == 1 ? sum[0][k / 4][k % 4] : sum[0][k / 4][k % 4] + sum[sums - 1][k / 4][k % 4];
    }
  }
  /// y = C S_in^T: all rows, this warp's channels and part of the columns
  template <unsigned u>
  TILEMAMBA_DEVICE Token mma_ABt(tile::Set<Accumulator<Q, P>> y, const Shared<Q, N, u>& C,
                                 const Operand<P, N, tile::as_Bt>& S) const {
    if (active) {
      float sum[q / 16][2][4] = {};
      const unsigned at = rows_address<Side::a>(C, 0, part() * n);
#pragma unroll
      for (int k = 0; k < n / 16; ++k) {
#pragma unroll
        for (int i = 0; i < q / 16; ++i) {
          Pair c[4];
          load_rows<Side::a>(c, C, at, i, k);
          E::mma(sum[i][0], c, S.r[2 * k][0], S.r[2 * k + 1][0]);
          E::mma(sum[i][1], c, S.r[2 * k][1], S.r[2 * k + 1][1]);
        }
      }
      give_parts(y.target, sum);
    }
    return {&y.target};
  }
  /// y += decayed x: this warp's rows and channels, causal blocks only
  TILEMAMBA_DEVICE Token mma_AB(tile::Add<Accumulator<Q, P>> y, const Operand<Q, Q, tile::as_A, Part::lower>& decayed,
                                const Operand<Q, P, tile::as_B>& x) const {
    if (!active || !has_rows()) return {};
    const unsigned at = rows_address<Side::a>(decayed, first_row(), 0);
#pragma unroll
    for (int i = 0; i < own; ++i) {
#pragma unroll
      for (int k = 0; k < q / 16; ++k) {
        if (k > first_row() / 16 + i) break;
        Pair a[4];
        load_rows<Side::a>(a, decayed, at, i, k);
        E::mma(y.target.r[i][0], a, x.r[k][0], x.r[k][1]);
        E::mma(y.target.r[i][1], a, x.r[k][2], x.r[k][3]);
      }
    }
    return {};
  }
  /// S += weighted^T B: this warp's channels and part of the columns
  template <unsigned u>
  TILEMAMBA_DEVICE Token mma_AtB(tile::Add<State<P, N>> S, const Operand<Q, P, tile::as_At>& weighted,
                                 const Shared<Q, N, u>& B) const {
    if (!active) return {};
    const ColumnsAddress at = columns_address<Side::b>(B, part() * n);
#pragma unroll
    for (int k = 0; k < q / 16; ++k) {
#pragma unroll
      for (int j = 0; j < n / 16; ++j) {
        Pair b[4];
        load_columns<Side::b>(b, B, at, k, j);
        if (documents) {  // a weight of zero must remove what another document holds
#pragma unroll
          for (Pair& pair : b) {
            const float2 v = E::unpack(pair);
            pair = E::pack(tile::finite_or_zero(v.x), tile::finite_or_zero(v.y));
          }
        }
        E::mma(S.target.r[2 * j], weighted.r[k], b[0], b[1]);
        E::mma(S.target.r[2 * j + 1], weighted.r[k], b[2], b[3]);
      }
    }
    return {};
  }

  // ------------------------------------------------------------------------------------------------------------- sums
  // of parts
  /// Blocks that a warp gives away, and where its block `i` lies among them.
  static constexpr int given_blocks = owners == parts ? q / 16 - own : q / 16;
  static constexpr unsigned rows_bytes = most_workers * head_warps * given_blocks * 2 * 32 * 16;
  static constexpr unsigned scores_bytes = Accumulator<Q, Q, Part::lower>::blocks * parts * 2 * 32 * 16;
  /// Both are never there at once: scores are put together before the block's barrier that the others come after.
  static constexpr unsigned exchange_bytes = parts == 1 ? 0 : rows_bytes > scores_bytes ? rows_bytes : scores_bytes;
  TILEMAMBA_DEVICE float4& part_of(int block, int its_part, int h) const {
    return reinterpret_cast<float4*>(shared_memory + exchange)[((block * parts + its_part) * 2 + h) * 32 + lane];
  }
  /// In the order of the parts, so that it is always the same sum. By all warps of the block.
  TILEMAMBA_DEVICE void add_parts(Accumulator<Q, Q, Part::lower>& scores) const {
    __syncthreads();
    Accumulator<Q, Q, Part::lower>::each_block(*this, [&](int s, int i, int j) {
      const int block = i * (i + 1) / 2 + j;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float4 sum = part_of(block, 0, h);
#pragma unroll
        for (int its_part = 1; its_part < parts; ++its_part) {
          const float4 more = part_of(block, its_part, h);
          sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
        }
        scores.r[s][h][0] = sum.x, scores.r[s][h][1] = sum.y, scores.r[s][h][2] = sum.z, scores.r[s][h][3] = sum.w;
      }
    });
  }
  TILEMAMBA_DEVICE float4& given(int giver, int i, int j) const {
    const int index = owners == parts && i >= giver * own ? i - own : i;
    const int its_warp = worker() * head_warps + giver * channel_blocks + head_warp() % channel_blocks;
    return reinterpret_cast<float4*>(shared_memory + exchange)[((its_warp * given_blocks + index) * 2 + j) * 32 + lane];
  }
  /// Keeps this warp's rows in y and hands the others to their owners.
  TILEMAMBA_DEVICE void give_parts(Accumulator<Q, P>& y, const float (&sum)[q / 16][2][4]) const {
#pragma unroll
    for (int k = 0; k < q / 8; ++k) {
      const int i = k / 2, j = k % 2;
      const bool mine = parts == 1 || i / own == part();
#pragma unroll
      for (int e = 0; e < 4; ++e) y.r[i % own][j][e] = tile::select(mine, sum[i][j][e], y.r[i % own][j][e]);
      if (!mine) given(part(), i, j) = {sum[i][j][0], sum[i][j][1], sum[i][j][2], sum[i][j][3]};
    }
  }
  /// In the order of the parts, so that it is always the same sum.
  TILEMAMBA_DEVICE void add_parts(Accumulator<Q, P>& y) const {
    meet_head();
    if (!active || !has_rows()) return;
#pragma unroll
    for (int k = 0; k < own * 2; ++k) {
      const int i = k / 2, j = k % 2;
#pragma unroll
      for (int other = 0; other < parts; ++other) {
        if (other == part()) continue;
        const float4 more = given(other, part() * own + i, j);
        y.r[i][j][0] += more.x, y.r[i][j][1] += more.y, y.r[i][j][2] += more.z, y.r[i][j][3] += more.w;
      }
    }
  }
};

}  // namespace tilemamba::cuda::sm80
