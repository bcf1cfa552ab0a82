// SPDX-License-Identifier: Apache-2.0
/// @file
/// The tile operations on matrix instructions of a wave and local memory, for a machine M (device.hpp, or the tests'
/// own).
///
/// A wave owns 16 channels of a head and, where the state is wide, a part of its columns. All sums are kept transposed:
/// a state's rows are its columns n and a lane's column is a channel; y's rows are channels and a lane's column is a
/// token. So a packed state is an operand of the next product, a token's weight is one number a lane, and a lane has
/// neighbouring channels of y to write. Scores are cut into 16 x 16 blocks that all waves of a block share, whichever
/// head they work for; each head's decayed scores go through local memory.
///
/// Where several waves have a part of the columns each, the products of the state with C are summed between them, and
/// each goes on with a share of the chunk's rows.
#pragma once

#include <cstdint>
#include <type_traits>

#include "backends/hip/fragment.hpp"
#include "backends/hip/policy.hpp"
#include "core/tile/concepts.hpp"
#include "core/tile/scalar.hpp"
#include "core/tile/tile.hpp"
#include "core/tile/view.hpp"
#include "kernels/sequences.hpp"

namespace tilemamba::hip {

using tile::N;
using tile::P;
using tile::Part;
using tile::Q;

template <class M_, DType type_, Tiling tiling>
struct Worker {
  using M = M_;
  using Target = typename M::Target;
  static constexpr DType type = type_;
  using F = Fragments<M, type>;
  using Fragment = typename F::Operand;
  using Block = typename F::Sum;  ///< a lane's part of 16 x 16 elements
  static constexpr int size = F::size;
  static constexpr int q = tiling.chunk, p = tiling.channels, n = tiling.state, parts = tiling.parts;
  static constexpr int most_workers = tiling.workers;
  static constexpr int channel_blocks = p / 16;
  static constexpr int head_waves = channel_blocks * parts;
  static constexpr int waves = most_workers * head_waves;
  static constexpr int threads = waves * Target::wave;
  /// Waves that take part in a head's rows once the parts are summed, and the 16-row blocks of each.
  static constexpr int owners = parts < q / 16 ? parts : q / 16;
  static constexpr int own = q / 16 / owners;

  int wave, lane;
  unsigned top;       ///< where the next tile begins in local memory
  int first_column;   ///< of the state, of those that this block holds
  unsigned exchange;  ///< where the parts of a sum meet
  unsigned skip;      ///< where the D of this worker's channels lie, in local memory
  bool active;        ///< this wave's channels exist
  bool documents;     ///< there is a seq_idx
  bool wide;          ///< y is fp32 and x is not

  template <class Axis>
  static constexpr int extent = std::is_same_v<Axis, Q>   ? q
                                : std::is_same_v<Axis, P> ? p
                                                          : n* parts;

  TILEMAMBA_FN unsigned take(unsigned bytes) {
    const unsigned at = top;
    top += bytes;
    return at;
  }
  TILEMAMBA_FN int worker() const { return wave / head_waves; }
  TILEMAMBA_FN int head_wave() const { return wave % head_waves; }
  TILEMAMBA_FN int channel() const { return head_wave() % channel_blocks * 16; }
  TILEMAMBA_FN int part() const { return parts == 1 ? 0 : head_wave() / channel_blocks; }
  TILEMAMBA_FN int first_row() const { return part() * own * 16; }
  TILEMAMBA_FN bool has_rows() const { return owners == parts || part() < owners; }
  TILEMAMBA_FN int line() const { return Target::line(lane); }
  TILEMAMBA_FN int row(int r) const { return Target::row(lane, r); }

  // ------------------------------------------------------------------------------------------------------------- types
  /// Elements in local memory.
  template <class Row, class Column, int element_size = size>
  struct Plane {
    using Layout = Padded<Target, element_size, extent<Column>>;
    static constexpr int bytes_each = element_size;
    static constexpr unsigned bytes = extent<Row> * Layout::pitch;
    unsigned base;
    Plane() = default;
    TILEMAMBA_FN explicit Plane(unsigned at) : base(at) {}
    TILEMAMBA_FN unsigned offset(int its_row, int column) const { return base + Layout::offset(its_row, column); }
  };
  template <class T>
  static TILEMAMBA_FN Fragment load_rows(const T& plane, int row, int column, int lane) {
    return F::template load_rows<typename T::Layout>(plane.base, row, column, lane);
  }
  template <class T>
  static TILEMAMBA_FN Fragment load_columns(const T& plane, int row, int column, int lane) {
    return F::template load_columns<typename T::Layout>(plane.base, row, column, lane);
  }
  template <class T>
  static TILEMAMBA_FN void store_rows(const T& plane, int row, int column, int lane, const Fragment& fragment) {
    F::template store_rows<typename T::Layout>(plane.base, row, column, lane, fragment);
  }

  template <class Row, class Column, unsigned uses>
  struct Shared : Plane<Row, Column> {
    static constexpr bool placed_by_driver = uses == tile::elementwise;  // z, which is rarely there
    Shared() = default;
    TILEMAMBA_FN explicit Shared(Worker& w)
        : Plane<Row, Column>(w.take(placed_by_driver ? 0 : Plane<Row, Column>::bytes)) {}
  };
  /// y on its way out, in its own type.
  template <class Row, class Column>
  struct Leaving : Plane<Row, Column> {
    using Wide = Plane<Row, Column, 4>;
    Leaving() = default;
    TILEMAMBA_FN explicit Leaving(Worker& w)
        : Plane<Row, Column>(w.take(w.wide ? Wide::bytes : Plane<Row, Column>::bytes)) {}
  };

  template <class Row, class Column, Part part = Part::full>
  struct Accumulator {  // this wave's tokens and 16 channels
    Block block[own];
    Accumulator() = default;
    TILEMAMBA_FN explicit Accumulator(Worker&) {}
  };
  template <class Row, class Column>
  struct Accumulator<Row, Column, Part::lower> {  // every so manyth 16 x 16 block on or below the diagonal
    static constexpr int side = extent<Row> / 16, blocks = side * (side + 1) / 2;
    static constexpr int share = (blocks + waves - 1) / waves;
    Block block[share];
    Accumulator() = default;
    TILEMAMBA_FN explicit Accumulator(Worker&) {}
    /// f(index in block, block row, block column)
    template <class G>
    static TILEMAMBA_FN void each_block(const Worker& w, G f) {
      TILEMAMBA_UNROLL
      for (int s = 0; s < share; ++s) {
        const int index = w.wave + s * waves;
        if (blocks % waves != 0 && index >= blocks) continue;
        int i = 0;
        TILEMAMBA_UNROLL
        for (int k = 1; k < side; ++k) i += index >= k * (k + 1) / 2;
        f(s, i, index - i * (i + 1) / 2);
      }
    }
  };
  template <class Row, class Column>
  struct State {  // this wave's 16 channels and its part of the columns
    Block block[n / 16];
    State() = default;
    TILEMAMBA_FN explicit State(Worker&) {}
  };

  template <class Row, class Column, unsigned use, Part part = Part::full>
  struct Operand {  // x, or x weighted: this wave's 16 channels
    Fragment block[extent<Row> / 16];
    Operand() = default;
    TILEMAMBA_FN explicit Operand(Worker&) {}
  };
  template <class Row, class Column, Part part>
  struct Operand<Row, Column, tile::as_A, part> : Plane<Row, Column> {
    Operand() = default;
    TILEMAMBA_FN explicit Operand(Worker& w) : Plane<Row, Column>(w.take(Plane<Row, Column>::bytes)) {}
  };
  template <class Row, class Column, Part part>
  struct Operand<Row, Column, tile::as_Bt, part> {  // a state in the type of operands
    typename F::Packed block[n / 16];
    Operand() = default;
    TILEMAMBA_FN explicit Operand(Worker&) {}
  };

  template <class T, class Axis>
  struct Line {
    unsigned base;
    Line() = default;
    TILEMAMBA_FN explicit Line(unsigned at) : base(at) {}
    TILEMAMBA_FN explicit Line(Worker& w) : base(w.take(extent<Axis> * 4)) {}
    TILEMAMBA_FN T at(int i) const { return M::template load<T>(base + static_cast<unsigned>(i) * 4); }
    TILEMAMBA_FN void set(int i, T value) const { M::template store<T>(base + static_cast<unsigned>(i) * 4, value); }
  };
  template <class Axis>
  using Vector = Line<float, Axis>;
  template <class Axis>
  using Weights = Line<float, Axis>;
  template <class Axis>
  using Ordinals = Line<int, Axis>;
  /// Decays are found where they are needed. In fp32 the sums of decays are kept in two parts, since differences of
  /// large sums are wanted to the last bit: cum and what it lost to rounding.
  struct DecayTable {
    Line<float, Q> lost;
    static constexpr unsigned bytes = size == 4 ? q * 4 : 0;
    DecayTable() = default;
    TILEMAMBA_FN explicit DecayTable(Worker& w) : lost{w.take(bytes)} {}
  };
  /// Products are done when they return, but for the sum of their parts.
  struct [[nodiscard]] Token {
    Accumulator<Q, P>* partial = nullptr;
  };

  // ------------------------------------------------------------------------------------------- from and to memory
  static TILEMAMBA_FN bool aligned(const tile::TokenView& view, int element_size) {
    const std::int64_t strides = view.batch_stride | view.token_stride | view.head_stride;
    return ((reinterpret_cast<std::uintptr_t>(view.data) | static_cast<std::uintptr_t>(strides * element_size)) & 15) ==
           0;
  }
  /// Which 16 bytes of a tile's rows a lane moves: one piece every `rows` rows. The tiles of a group are moved by all
  /// waves, those of a head by the head's.
  template <class Column, int element_size>
  struct Share {
    static constexpr bool of_group = std::is_same_v<Column, N>;
    static constexpr int crew = (of_group ? waves : head_waves) * Target::wave;
    static constexpr int each = 16 / element_size;
    static constexpr int chunks = extent<Column> / each;
    static constexpr int rows = crew / chunks;
    static constexpr int passes = (q + rows - 1) / rows;
    static_assert(crew % chunks == 0);
    int row, column;
    TILEMAMBA_FN explicit Share(const Worker& w) {
      const int me = (of_group ? w.wave : w.head_wave()) * Target::wave + w.lane;
      row = me / chunks;
      column = me % chunks * each;
    }
  };
  using Bits = std::conditional_t<size == 4, std::uint32_t, std::uint16_t>;

  /// A tile on its way: asked for long before it is wanted, in registers.
  template <class Column>
  struct Fetched {
    Words<4> piece[Share<Column, size>::passes];
  };
  /// What lies beyond the sequence or the width is zero and not read.
  template <class Column>
  TILEMAMBA_FN void get(Fetched<Column>& out, const tile::TokenView& view, const tile::Tokens& tokens,
                        const tile::Slice& slice) const {
    using S = Share<Column, size>;
    const S share(*this);
    const int column = (S::of_group ? first_column : slice.channel) + share.column;
    const int wanted = kernels::least(S::each, view.width - column);
    const std::int64_t origin =
        view.offset(tokens, S::of_group ? slice.group : slice.head, column) + share.row * view.token_stride;
    const Bits* const data = static_cast<const Bits*>(view.data);
    const bool whole = wanted == S::each && aligned(view, size);
    TILEMAMBA_UNROLL
    for (int k = 0; k < S::passes; ++k) {
      const int here = share.row + k * S::rows;
      const bool inside = here < tokens.count && wanted > 0;
      const Bits* const from = data + (inside ? origin + k * S::rows * view.token_stride : 0);
      out.piece[k] = {};
      if (inside && whole) {
        out.piece[k] = M::read(reinterpret_cast<const Words<4>*>(from));
      } else if (inside) {
        TILEMAMBA_UNROLL
        for (int e = 0; e < S::each; ++e) {
          const std::uint32_t bits = e < wanted ? M::read(from + e) : 0;
          out.piece[k].r[e * size / 4] |= bits << (e * size % 4 * 8);
        }
      }
    }
  }
  /// B is read for the state even where its document has ended, with a weight of zero: an infinity in it must not be.
  template <class Column, unsigned uses>
  TILEMAMBA_FN void place(const Shared<Q, Column, uses>& out, const Fetched<Column>& in) const {
    constexpr bool is_B = (uses & tile::as_Bt) != 0;
    using S = Share<Column, size>;
    using Layout = typename Plane<Q, Column>::Layout;
    constexpr int words = Layout::at_once / 4;
    const S share(*this);
    TILEMAMBA_UNROLL
    for (int k = 0; k < S::passes; ++k) {
      const int here = share.row + k * S::rows;
      if (q % S::rows != 0 && here >= q) continue;
      const Words<4> piece = is_B && documents ? F::finite_or_zero(in.piece[k]) : in.piece[k];
      TILEMAMBA_UNROLL
      for (int part_of = 0; part_of < 4 / words; ++part_of) {
        Words<words> v;
        TILEMAMBA_UNROLL
        for (int w = 0; w < words; ++w) v.r[w] = piece.r[part_of * words + w];
        M::template store<Words<words>>(out.offset(here, share.column) + static_cast<unsigned>(part_of * words * 4), v);
      }
    }
  }
  template <class Column, unsigned uses>
  TILEMAMBA_FN void get(Shared<Q, Column, uses>& out, const tile::TokenView& view, const tile::Tokens& tokens,
                        const tile::Slice& slice) const {
    Fetched<Column> fetched;
    get(fetched, view, tokens, slice);
    place(out, fetched);
  }

  static constexpr int each = q < Target::wave ? 1 : q / Target::wave;  ///< elements of a vector that a lane has
  TILEMAMBA_FN int token(int e) const { return lane * each + e; }
  TILEMAMBA_FN bool exists(int i) const { return q >= Target::wave || i < q; }
  /// f(i, e) for this lane's elements.
  template <class G>
  TILEMAMBA_FN void each_token(G f) const {
    TILEMAMBA_UNROLL
    for (int e = 0; e < each; ++e) {
      if (exists(token(e))) f(token(e), e);
    }
  }

  /// The steps of a chunk on their way, in the registers of the wave that will want them, as they are in memory.
  struct Steps {
    std::uint32_t r[each];
    DType dtype;
  };
  TILEMAMBA_FN void get(Steps& out, const tile::TokenView& view, const tile::Tokens& tokens, int head) const {
    const std::int64_t origin = view.offset(tokens, head, 0);
    out.dtype = view.dtype;
    TILEMAMBA_UNROLL
    for (int e = 0; e < each; ++e) {
      const int i = token(e);
      const std::int64_t at = origin + i * view.token_stride;
      out.r[e] = 0;
      if (i >= tokens.count) continue;
      if (view.dtype == DType::f32) {
        out.r[e] = M::read(static_cast<const std::uint32_t*>(view.data) + at);
      } else {
        out.r[e] = M::read(static_cast<const std::uint16_t*>(view.data) + at);
      }
    }
  }
  static TILEMAMBA_FN float widen(DType dtype, std::uint32_t bits) {
    if (dtype == DType::f32) return std::bit_cast<float>(bits);
    const auto half = static_cast<std::uint16_t>(bits);
    return dtype == DType::bf16 ? M::template widen<DType::bf16>(half) : M::template widen<DType::f16>(half);
  }
  TILEMAMBA_FN void get(Vector<Q>& out, const Steps& steps, const tile::Tokens&, int) const {
    each_token([&](int i, int e) { out.set(i, widen(steps.dtype, steps.r[e])); });
  }
  TILEMAMBA_FN void get(Vector<Q>& out, const tile::TokenView& view, const tile::Tokens& tokens, int head) const {
    Steps steps;
    get(steps, view, tokens, head);
    get(out, steps, tokens, head);
  }
  TILEMAMBA_FN void get(Vector<Q>& out, const tile::ChunkVectors& view, std::int64_t unit, int head) const {
    const float* from = view.at(unit, head);
    each_token([&](int i, int) { out.set(i, M::read(from + i)); });
    M::meet_wave();
  }
  TILEMAMBA_FN void put(const tile::ChunkVectors& view, std::int64_t unit, int head, const Vector<Q>& in) const {
    float* to = view.at(unit, head);
    each_token([&](int i, int) { M::write(to + i, in.at(i)); });
  }
  TILEMAMBA_FN void put(const tile::ChunkVectors& view, std::int64_t unit, int head, float value) const {
    if (lane == 0) M::write(view.at(unit, head), value);
  }

  // ------------------------------------------------------------------------------------------------- states in memory
  /// f(block, r, offset) for this lane's elements that exist.
  template <class G>
  TILEMAMBA_FN void each_element(const tile::StateView& view, std::int64_t batch, std::int64_t index,
                                 const tile::Slice& slice, G f) const {
    const int its_channel = channel() + line();
    if (slice.channel + its_channel >= view.channels) return;
    // This lane's first column of a block, and then steps that are known when this is compiled.
    const int first = first_column + part() * n + row(0);
    const std::int64_t origin = view.offset(batch, index, slice) + its_channel * view.channel_stride + first;
    const int left = view.width - first;
    TILEMAMBA_UNROLL
    for (int j = 0; j < n / 16; ++j) {
      M::in_order();
      TILEMAMBA_UNROLL
      for (int r = 0; r < Target::sum; ++r) {
        const int step = j * 16 + Target::row(0, r) - Target::row(0, 0);
        if (step < left) f(j, r, origin + step);
      }
    }
  }
  /// f(block, r, value)
  template <class G>
  TILEMAMBA_FN void load_state(const tile::StateView& view, std::int64_t batch, std::int64_t index,
                               const tile::Slice& slice, G f) const {
    if (view.dtype == DType::f32) {
      const auto* data = static_cast<const float*>(view.data);
      each_element(view, batch, index, slice, [&](int j, int r, std::int64_t at) { f(j, r, M::read(data + at)); });
    } else {
      const auto* data = static_cast<const std::uint16_t*>(view.data);
      each_element(view, batch, index, slice,
                   [&](int j, int r, std::int64_t at) { f(j, r, widen(view.dtype, M::read(data + at))); });
    }
  }
  TILEMAMBA_FN void get(State<P, N>& out, const tile::StateView& view, std::int64_t batch, std::int64_t index,
                        const tile::Slice& slice) const {
    zero(out);
    if (!view.given) return;
    load_state(view, batch, index, slice, [&](int j, int r, float v) { out.block[j].r[r] = v; });
  }
  TILEMAMBA_FN void get(Operand<P, N, tile::as_Bt>& out, const tile::StateView& view, std::int64_t batch,
                        std::int64_t index, const tile::Slice& slice) const {
    State<P, N> S;
    get(S, view, batch, index, slice);
    operand(out, S);
  }
  TILEMAMBA_FN void put(const tile::StateView& view, std::int64_t batch, std::int64_t index, const tile::Slice& slice,
                        const State<P, N>& in) const {
    if (view.dtype == DType::f32) {
      auto* data = static_cast<float*>(view.data);
      each_element(view, batch, index, slice,
                   [&](int j, int r, std::int64_t at) { M::write(data + at, in.block[j].r[r]); });
    } else {
      auto* data = static_cast<std::uint16_t*>(view.data);
      each_element(view, batch, index, slice, [&](int j, int r, std::int64_t at) {
        const float v = in.block[j].r[r];
        M::write(data + at,
                 view.dtype == DType::bf16 ? M::template narrow<DType::bf16>(v) : M::template narrow<DType::f16>(v));
      });
    }
  }

  // ------------------------------------------------------------------------------------------------ y on its way out
  template <class Out>
  TILEMAMBA_FN void put_rows(const tile::TokenView& view, const tile::Tokens& tokens, const tile::Slice& slice,
                             const Out& in) const {
    constexpr int element_size = Out::bytes_each;
    using Stored = std::conditional_t<element_size == 4, std::uint32_t, std::uint16_t>;
    using S = Share<P, element_size>;
    constexpr int words = Out::Layout::at_once / 4;
    const S share(*this);
    const int column = slice.channel + share.column;
    const int wanted = kernels::least(S::each, view.width - column);
    if (wanted <= 0) return;
    Stored* const to = static_cast<Stored*>(view.data) + view.offset(tokens, slice.head, column);
    const bool whole = wanted == S::each && aligned(view, element_size);
    for (int here = share.row; here < tokens.count; here += S::rows) {
      Words<4> v;
      TILEMAMBA_UNROLL
      for (int w = 0; w < 4; w += words) {
        const auto piece = M::template load<Words<words>>(in.offset(here, share.column) + static_cast<unsigned>(w) * 4);
        TILEMAMBA_UNROLL
        for (int k = 0; k < words; ++k) v.r[w + k] = piece.r[k];
      }
      Stored* const its = to + here * view.token_stride;
      if (whole) {
        M::write(reinterpret_cast<Words<4>*>(its), v);
      } else {
        TILEMAMBA_UNROLL
        for (int e = 0; e < S::each; ++e) {
          if (e < wanted)
            M::write(its + e, static_cast<Stored>(v.r[e * element_size / 4] >> (e * element_size % 4 * 8)));
        }
      }
    }
  }
  TILEMAMBA_FN void put(const tile::TokenView& view, const tile::Tokens& tokens, const tile::Slice& slice,
                        const Leaving<Q, P>& in) const {
    if (size == 2 && wide) {
      put_rows(view, tokens, slice, typename Leaving<Q, P>::Wide(in.base));
    } else {
      put_rows(view, tokens, slice, Plane<Q, P>(in.base));
    }
  }
  TILEMAMBA_FN void narrow(const Leaving<Q, P>& out, const Accumulator<Q, P>& y) const {
    if (!has_rows()) return;
    TILEMAMBA_UNROLL
    for (int i = 0; i < own; ++i) {
      const int first = first_row() + i * 16;
      if (size == 2 && wide) {
        const typename Leaving<Q, P>::Wide plane(out.base);
        TILEMAMBA_UNROLL
        for (int r = 0; r < Target::sum; ++r)
          M::template store<float>(plane.offset(first + line(), channel() + row(r)), y.block[i].r[r]);
      } else {
        store_rows(out, first, channel(), lane, F::arrange(y.block[i], lane));
      }
    }
  }

  // ------------------------------------------------------------------------------------------------------ elementwise
  template <class T, class Axis>
  static TILEMAMBA_FN T value(const tile::Rows<Line<T, Axis>>& a, int i) {
    return a.vector.at(i);
  }
  static TILEMAMBA_FN bool value(const tile::Inside& a, int i) { return i < a.count; }

  template <class G, class... Arguments>
  TILEMAMBA_FN void map(const Vector<Q>& target, G f, const Arguments&... arguments) const {
    each_token([&](int i, int) { target.set(i, f(target.at(i), value(arguments, i)...)); });
    M::meet_wave();
  }
  /// The elements of a tile that this wave has of y: f(block, r, value)
  template <unsigned uses, class G>
  TILEMAMBA_FN void each_of_rows(const Shared<Q, P, uses>& x, G f) const {
    if (!has_rows()) return;
    TILEMAMBA_UNROLL
    for (int i = 0; i < own; ++i) {
      M::in_order();
      const Block values = F::spread(load_rows(x, first_row() + i * 16, channel(), lane), lane);
      TILEMAMBA_UNROLL
      for (int r = 0; r < Target::sum; ++r) f(i, r, values.r[r]);
    }
  }
  template <class G, unsigned uses>
  TILEMAMBA_FN void map(Accumulator<Q, P>& y, G f, const tile::Same<Shared<Q, P, uses>>& other) const {
    each_of_rows(other.tile, [&](int i, int r, float v) { y.block[i].r[r] = f(y.block[i].r[r], v); });
  }
  template <class G>
  TILEMAMBA_FN void each_of_state(G f) const {
    TILEMAMBA_UNROLL
    for (int j = 0; j < n / 16; ++j) {
      TILEMAMBA_UNROLL
      for (int r = 0; r < Target::sum; ++r) f(j, r);
    }
  }
  template <class G>
  TILEMAMBA_FN void map(State<P, N>& S, G f, const tile::Same<State<P, N>>& other) const {
    each_of_state([&](int j, int r) { S.block[j].r[r] = f(S.block[j].r[r], other.tile.block[j].r[r]); });
  }
  TILEMAMBA_FN void zero(State<P, N>& S) const {
    each_of_state([&](int j, int r) { S.block[j].r[r] = 0.0f; });
  }
  /// This wave's channels of x, each element changed by f(value, token).
  template <unsigned use, unsigned uses, class G>
  TILEMAMBA_FN void load_operand(Operand<Q, P, use>& out, const Shared<Q, P, uses>& x, G f) const {
    TILEMAMBA_UNROLL
    for (int k = 0; k < q / 16; ++k) {
      M::in_order();
      const Fragment its = load_columns(x, k * 16, channel(), lane);
      out.block[k] =
          F::template made_of<Fragment>([&](int e) { return f(F::element(its, e), k * 16 + Target::inner(lane, e)); });
    }
  }
  template <unsigned use, unsigned uses, class G>
  TILEMAMBA_FN void operand_if(bool condition, Operand<Q, P, use>& out, const Shared<Q, P, uses>& x, G f) const {
    if (condition) {
      load_operand(out, x, [&](float v, int) { return f(v); });
    } else {
      TILEMAMBA_UNROLL
      for (int k = 0; k < q / 16; ++k) out.block[k] = load_columns(x, k * 16, channel(), lane);
    }
  }
  TILEMAMBA_FN void operand(Operand<P, N, tile::as_Bt>& out, const State<P, N>& S) const {
    TILEMAMBA_UNROLL
    for (int j = 0; j < n / 16; ++j) out.block[j] = F::pack(S.block[j]);
  }

  // ---------------------------------------------------------------------------------------------------- along a chunk
  // By one wave; the block's meetings hand the results to the others.
  TILEMAMBA_FN void scan(const Vector<Q>& v, const Ordinals<Q>& document) const {
    float sum[each];
    int its[each];
    TILEMAMBA_UNROLL
    for (int e = 0; e < each; ++e) {
      sum[e] = exists(token(e)) ? v.at(token(e)) : 0.0f;
      its[e] = exists(token(e)) ? document.at(token(e)) : 0;
      if (e > 0 && its[e] == its[e - 1]) sum[e] += sum[e - 1];
    }
    float total = sum[each - 1];
    TILEMAMBA_UNROLL
    for (int d = 1; d < Target::wave; d *= 2) {
      const float before = M::from_below(total, d);
      const int theirs = M::from_below(its[each - 1], d);
      if (lane >= d && theirs == its[each - 1]) total += before;
    }
    const float before = M::from_below(total, 1);
    const int theirs = M::from_below(its[each - 1], 1);
    each_token([&](int i, int e) { v.set(i, sum[e] + (lane > 0 && theirs == its[e] ? before : 0.0f)); });
    M::meet_wave();
  }
  TILEMAMBA_FN void scan_back(const Vector<Q>& v) const {
    float sum[each];
    TILEMAMBA_UNROLL
    for (int e = each - 1; e >= 0; --e) {
      sum[e] = (exists(token(e)) ? v.at(token(e)) : 0.0f) + (e + 1 < each ? sum[e + 1] : 0.0f);
    }
    float total = sum[0];
    TILEMAMBA_UNROLL
    for (int d = 1; d < Target::wave; d *= 2) {
      const float later = M::from_above(total, d);
      if (lane + d < Target::wave) total += later;
    }
    const float next = M::from_above(total, 1);
    const float after = lane + 1 < Target::wave ? next : 0.0f;
    each_token([&](int i, int e) { v.set(i, (e + 1 < each ? sum[e + 1] : 0.0f) + after); });
    M::meet_wave();
  }
  TILEMAMBA_FN void scan_changes(const Ordinals<Q>& out, const tile::TokenView& view,
                                 const tile::Tokens& tokens) const {
    if (!view.given) {
      each_token([&](int i, int) { out.set(i, 0); });
      return M::meet_wave();
    }
    const auto* id = static_cast<const std::int32_t*>(view.data) + view.offset(tokens, 0, 0);
    int changes[each];
    TILEMAMBA_UNROLL
    for (int e = 0; e < each; ++e) {
      const int i = token(e);
      const bool has_previous = i > 0 || !tokens.begins;
      changes[e] = i < tokens.count && has_previous
                       ? M::read(id + i * view.token_stride) != M::read(id + (i - 1) * view.token_stride)
                       : 0;
      if (e > 0) changes[e] += changes[e - 1];
    }
    int total = changes[each - 1];
    TILEMAMBA_UNROLL
    for (int d = 1; d < Target::wave; d *= 2) {
      const int before = M::from_below(total, d);
      if (lane >= d) total += before;
    }
    each_token([&](int i, int e) { out.set(i, changes[e] + total - changes[each - 1]); });
    M::meet_wave();
  }
  TILEMAMBA_FN float first(const Vector<Q>& v) const { return v.at(0); }
  template <class T>
  TILEMAMBA_FN T last(const Line<T, Q>& v) const {
    return v.at(q - 1);
  }

  // ------------------------------------------------------------------------------------------------ operations by name
  TILEMAMBA_FN void weigh(Accumulator<Q, P>& y, const Vector<Q>& weights) const {
    if (!has_rows()) return;
    TILEMAMBA_UNROLL
    for (int i = 0; i < own; ++i) {
      const float weight = weights.at(first_row() + i * 16 + line());
      TILEMAMBA_UNROLL
      for (int r = 0; r < Target::sum; ++r) y.block[i].r[r] = tile::weigh(y.block[i].r[r], weight);
    }
  }
  template <unsigned uses>
  TILEMAMBA_FN void weigh(Operand<Q, P, tile::as_At>& out, const Shared<Q, P, uses>& x,
                          const Vector<Q>& weights) const {
    load_operand(out, x, [&](float v, int its_token) { return tile::weigh(v, weights.at(its_token)); });
  }
  TILEMAMBA_FN void decay(State<P, N>& S, float factor) const {
    each_of_state([&](int j, int r) { S.block[j].r[r] = tile::weigh(S.block[j].r[r], factor); });
  }
  TILEMAMBA_FN void tabulate(const DecayTable& table, const Vector<Q>& cum, const Vector<Q>& delta,
                             const Ordinals<Q>& document, float rate) const {
    if constexpr (size == 4) {  // scan, once more, with the error of every sum
      static_assert(each == 1);
      const bool mine = exists(lane);
      const int its = mine ? document.at(lane) : 0;
      float sum = mine ? delta.at(lane) * rate : 0.0f, lost = 0.0f;
      TILEMAMBA_UNROLL
      for (int d = 1; d < Target::wave; d *= 2) {
        const float before = M::from_below(sum, d), lost_before = M::from_below(lost, d);
        const int theirs = M::from_below(its, d);
        const float added = lane >= d && theirs == its ? before : 0.0f;
        const float whole = sum + added, of_added = whole - sum;
        lost += (sum - (whole - of_added)) + (added - of_added) + (added == 0.0f ? 0.0f : lost_before);
        sum = whole;
      }
      if (mine) table.lost.set(lane, (sum - cum.at(lane)) + lost);
      M::meet_wave();
    }
  }
  TILEMAMBA_FN void decay_scores(const Operand<Q, Q, tile::as_A, Part::lower>& out,
                                 const Accumulator<Q, Q, Part::lower>& scores, const Vector<Q>& cum,
                                 const Vector<Q>& delta, const Ordinals<Q>& document, const DecayTable& table, float,
                                 const tile::HeadView&, int) const {
    Accumulator<Q, Q, Part::lower>::each_block(*this, [&](int s, int i, int j) {
      const int its_row = i * 16 + line();
      const float its_cum = cum.at(its_row);
      const int its_document = document.at(its_row);
      Block decayed;
      TILEMAMBA_UNROLL
      for (int r = 0; r < Target::sum; ++r) {
        const int column = j * 16 + row(r);
        const bool one_document = document.at(column) == its_document;
        const bool seen = column <= its_row && one_document;
        float between = its_cum - cum.at(column);
        if constexpr (size == 4) between += table.lost.at(its_row) - table.lost.at(column);
        const float exponent = tile::select(seen, between, tile::minus_infinity);
        const float weight = tile::weigh(delta.at(column), M::exp2(exponent));
        decayed.r[r] = tile::weigh(scores.block[s].r[r], weight);
      }
      store_rows(out, i * 16, j * 16, lane, F::arrange(decayed, lane));
    });
  }
  /// The D of a worker's channels, brought where add_skip looks for it; by the worker's waves, once.
  static constexpr unsigned skip_bytes = p * 4;
  TILEMAMBA_FN void load_skip(const tile::HeadView& D, const tile::Slice& slice) const {
    const int i = head_wave() * Target::wave + lane;
    if (i >= p) return;
    const bool exists_here = D.channel_stride == 0 || slice.channel + i < D.width;
    M::template store<float>(skip + static_cast<unsigned>(i) * 4,
                             exists_here ? tile::value(D, slice.head, slice.channel + i) : 0.0f);
  }
  template <unsigned uses>
  TILEMAMBA_FN void add_skip(Accumulator<Q, P>& y, const Shared<Q, P, uses>& x, const tile::HeadView& D,
                             const tile::Slice&) const {
    if (!D.given) return;
    each_of_rows(x, [&](int i, int r, float v) {
      y.block[i].r[r] += M::template load<float>(skip + static_cast<unsigned>(channel() + row(r)) * 4) * v;
    });
  }

  /// Where waves share the columns, what their product gave was summed when it was waited for.
  template <class Summed>
  TILEMAMBA_FN void sum_columns(Summed&) const {}

  // --------------------------------------------------------------------------------------------------------- products
  template <class... Later>
  TILEMAMBA_FN void wait(const Token& token, const Later&...) const {
    if constexpr (parts > 1) {
      if (token.partial != nullptr) add_parts(*token.partial);
    }
  }

  /// scores = C B^T: this wave's blocks, transposed
  template <unsigned u, unsigned v>
  TILEMAMBA_FN Token mma_ABt(tile::Set<Accumulator<Q, Q, Part::lower>> scores, const Shared<Q, N, u>& C,
                             const Shared<Q, N, v>& B) const {
    Accumulator<Q, Q, Part::lower>::each_block(*this, [&](int s, int i, int j) {
      Block sum = {};
      for (int k = 0; k < n * parts / 16; ++k) {
        F::multiply(sum, load_rows(B, j * 16, k * 16, lane), load_rows(C, i * 16, k * 16, lane));
      }
      scores.target.block[s] = sum;
    });
    return {};
  }
  /// y = C S_in^T: all rows, this wave's channels and part of the columns
  template <unsigned u>
  TILEMAMBA_FN Token mma_ABt(tile::Set<Accumulator<Q, P>> y, const Shared<Q, N, u>& C,
                             const Operand<P, N, tile::as_Bt>& S) const {
    Block sum[q / 16] = {};
    if (active) {
      TILEMAMBA_UNROLL
      for (int k = 0; k < n / 16; ++k) {
        M::in_order();
        const Fragment its = F::arrange(S.block[k], lane);
        TILEMAMBA_UNROLL
        for (int i = 0; i < q / 16; ++i) {
          M::in_order();
          F::multiply(sum[i], its, load_rows(C, i * 16, part() * n + k * 16, lane));
        }
      }
    }
    give_parts(y.target, sum);
    return {&y.target};
  }
  /// y += decayed x: this wave's rows and channels, causal blocks only
  TILEMAMBA_FN Token mma_AB(tile::Add<Accumulator<Q, P>> y, const Operand<Q, Q, tile::as_A, Part::lower>& decayed,
                            const Operand<Q, P, tile::as_B>& x) const {
    if (!active || !has_rows()) return {};
    TILEMAMBA_UNROLL
    for (int i = 0; i < own; ++i) {
      TILEMAMBA_UNROLL
      for (int k = 0; k < q / 16; ++k) {
        if (k * 16 > first_row() + i * 16) break;
        F::multiply(y.target.block[i], x.block[k], load_rows(decayed, first_row() + i * 16, k * 16, lane));
      }
    }
    return {};
  }
  /// S += weighted^T B: this wave's channels and part of the columns
  template <unsigned u>
  TILEMAMBA_FN Token mma_AtB(tile::Add<State<P, N>> S, const Operand<Q, P, tile::as_At>& weighted,
                             const Shared<Q, N, u>& B) const {
    if (!active) return {};
    TILEMAMBA_UNROLL
    for (int k = 0; k < q / 16; ++k) {
      TILEMAMBA_UNROLL
      for (int j = 0; j < n / 16; ++j) {
        M::in_order();
        F::multiply(S.target.block[j], load_columns(B, k * 16, part() * n + j * 16, lane), weighted.block[k]);
      }
    }
    return {};
  }

  // ----------------------------------------------------------------------------------------------------- sums of parts
  /// Blocks that a wave gives away, and where its block `i` lies among them.
  static constexpr int given_blocks = owners == parts ? q / 16 - own : q / 16;
  static constexpr unsigned exchange_bytes =
      parts == 1 ? 0 : waves * given_blocks * static_cast<unsigned>(sizeof(Block)) * Target::wave;
  TILEMAMBA_FN unsigned given(int giver, int i, int r) const {
    const int index = owners == parts && i >= giver * own ? i - own : i;
    const int its_wave = worker() * head_waves + giver * channel_blocks + head_wave() % channel_blocks;
    return exchange +
           static_cast<unsigned>((((its_wave * given_blocks + index) * Target::sum + r) * Target::wave + lane) * 4);
  }
  /// Keeps this wave's rows in y and hands the others to their owners.
  TILEMAMBA_FN void give_parts(Accumulator<Q, P>& y, const Block (&sum)[q / 16]) const {
    TILEMAMBA_UNROLL
    for (int i = 0; i < q / 16; ++i) {
      const bool mine = parts == 1 || i / own == part();
      TILEMAMBA_UNROLL
      for (int r = 0; r < Target::sum; ++r) {
        y.block[i % own].r[r] = mine ? sum[i].r[r] : y.block[i % own].r[r];
        if (!mine) M::template store<float>(given(part(), i, r), sum[i].r[r]);
      }
    }
  }
  /// In the order of the parts, so that it is always the same sum. All waves of the block take part.
  TILEMAMBA_FN void add_parts(Accumulator<Q, P>& y) const {
    M::meet();
    if (!has_rows()) return;
    TILEMAMBA_UNROLL
    for (int i = 0; i < own; ++i) {
      TILEMAMBA_UNROLL
      for (int other = 0; other < parts; ++other) {
        if (other == part()) continue;
        TILEMAMBA_UNROLL
        for (int r = 0; r < Target::sum; ++r)
          y.block[i].r[r] += M::template load<float>(given(other, part() * own + i, r));
      }
    }
  }
};

}  // namespace tilemamba::hip
