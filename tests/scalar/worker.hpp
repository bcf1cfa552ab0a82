// SPDX-License-Identifier: Apache-2.0
/// @file
/// The smallest worker that can run the text of kernels/: plain loops over plain arrays, the model for whoever adds a
/// backend.
///
/// It is also the strictest. A product is only recorded when it is issued and done when it is waited for, so that text
/// which reads a result too early, changes an operand too soon or forgets a wait is caught on any machine. And what a
/// tensor core would see is rounded to the input type, so its error is that of the 16-bit backends.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "core/tile/concepts.hpp"
#include "core/tile/scalar.hpp"
#include "core/tile/tile.hpp"
#include "core/tile/view.hpp"

namespace tilemamba::scalar {

using tile::N;
using tile::P;
using tile::Part;
using tile::Q;

/// Breaking a rule of the text is a fault of whoever wrote it.
inline void demand(bool kept, const char* rule) {
  if (!kept) throw std::logic_error(std::string("the text breaks a rule of the tile interface: ") + rule);
}

struct Worker;

/// What every kind of tile is here. A copy is the same tile.
template <class Element>
struct Grid {
  struct Storage {
    std::vector<Element> values;
    int readers = 0;       ///< products under way that read it
    bool written = false;  ///< a product under way writes it
  };
  std::shared_ptr<Storage> storage;
  int height = 0;
  int width = 0;

  [[nodiscard]] Element& at(int row, int column) const {
    return storage->values[static_cast<std::size_t>(row) * width + column];
  }
  void may_read() const { demand(!storage->written, "a result is read before its token was waited for"); }
  void may_write() const {
    demand(!storage->written && storage->readers == 0, "a tile is changed while a product that uses it is under way");
  }
};

struct Worker {
  static constexpr int most_workers = 4;

  int chunk, channels, state;  ///< Q, P, N of this problem
  DType type;                  ///< of the operands of products

  template <class Axis>
  [[nodiscard]] int extent() const {
    if constexpr (std::is_same_v<Axis, Q>) return chunk;
    if constexpr (std::is_same_v<Axis, P>) return channels;
    if constexpr (std::is_same_v<Axis, N>) return state;
  }

  // ------------------------------------------------------------------------------------------------------------- types
  template <class R, class C, int kind>
  struct Tile : Grid<float> {
    using Row = R;
    using Column = C;
    Tile() = default;
    explicit Tile(Worker& w) : Grid{nullptr, w.extent<R>(), w.extent<C>()} {
      storage = std::make_shared<Storage>();
      storage->values.assign(static_cast<std::size_t>(height) * width, std::numeric_limits<float>::quiet_NaN());
    }
  };
  template <class R, class C, unsigned uses>
  using Shared = Tile<R, C, 0>;
  template <class R, class C, Part part = Part::full>
  using Accumulator = Tile<R, C, 1>;
  template <class R, class C, unsigned use, Part part = Part::full>
  using Operand = Tile<R, C, 2>;
  template <class R, class C>
  using Leaving = Tile<R, C, 3>;
  template <class R, class C>
  using State = Tile<R, C, 4>;

  template <class Axis>
  struct Vector : Grid<float> {
    Vector() = default;
    explicit Vector(Worker& w) : Grid{std::make_shared<Storage>(), w.extent<Axis>(), 1} {
      storage->values.resize(height);
    }
  };
  template <class Axis>
  using Weights = Vector<Axis>;
  template <class Axis>
  struct Ordinals : Grid<int> {
    Ordinals() = default;
    explicit Ordinals(Worker& w) : Grid{std::make_shared<Storage>(), w.extent<Axis>(), 1} {
      storage->values.resize(height);
    }
  };
  struct DecayTable {
    DecayTable() = default;
    explicit DecayTable(Worker&) {}
  };
  struct [[nodiscard]] Token {
    std::int64_t ticket;
  };

  // ------------------------------------------------------------------------------------------------------ from and to
  // memory
  template <class C, int kind>
  void get(Tile<Q, C, kind>& out, const tile::TokenView& view, const tile::Tokens& tokens, const tile::Slice& slice) {
    out.may_write();
    const std::int64_t origin = view.offset(tokens, slice.head, slice.channel);
    for (int i = 0; i < out.height; ++i) {
      for (int j = 0; j < out.width; ++j) {
        const bool inside = i < tokens.count && slice.channel + j < view.width;
        out.at(i, j) = inside ? tile::load(view.data, view.dtype, origin + i * view.token_stride + j) : 0.0f;
      }
    }
  }
  void get(Vector<Q>& out, const tile::TokenView& view, const tile::Tokens& tokens, int head) {
    const std::int64_t origin = view.offset(tokens, head, 0);
    for (int i = 0; i < out.height; ++i) {
      out.at(i, 0) = i < tokens.count ? tile::load(view.data, view.dtype, origin + i * view.token_stride) : 0.0f;
    }
  }
  void get(Vector<Q>& out, const tile::ChunkVectors& view, std::int64_t unit, int head) {
    for (int i = 0; i < out.height; ++i) out.at(i, 0) = view.at(unit, head)[i];
  }
  template <int kind>
  void get(Tile<P, N, kind>& out, const tile::StateView& view, std::int64_t batch, std::int64_t index,
           const tile::Slice& slice) {
    out.may_write();
    const std::int64_t origin = view.offset(batch, index, slice);
    for (int i = 0; i < out.height; ++i) {
      for (int j = 0; j < out.width; ++j) {
        const bool inside = view.given && slice.channel + i < view.channels;
        out.at(i, j) = inside ? tile::load(view.data, view.dtype, origin + i * view.channel_stride + j) : 0.0f;
      }
    }
  }

  void put(const tile::TokenView& view, const tile::Tokens& tokens, const tile::Slice& slice, const Leaving<Q, P>& in) {
    const std::int64_t origin = view.offset(tokens, slice.head, slice.channel);
    for (int i = 0; i < tokens.count; ++i) {
      for (int j = 0; j < in.width && slice.channel + j < view.width; ++j) {
        tile::store(view.data, view.dtype, origin + i * view.token_stride + j, in.at(i, j));
      }
    }
  }
  void put(const tile::StateView& view, std::int64_t batch, std::int64_t index, const tile::Slice& slice,
           const State<P, N>& in) {
    in.may_read();
    const std::int64_t origin = view.offset(batch, index, slice);
    for (int i = 0; i < in.height && slice.channel + i < view.channels; ++i) {
      for (int j = 0; j < in.width; ++j)
        tile::store(view.data, view.dtype, origin + i * view.channel_stride + j, in.at(i, j));
    }
  }
  void put(const tile::ChunkVectors& view, std::int64_t unit, int head, const Vector<Q>& in) {
    for (int i = 0; i < in.height; ++i) view.at(unit, head)[i] = in.at(i, 0);
  }
  void put(const tile::ChunkVectors& view, std::int64_t unit, int head, float value) { *view.at(unit, head) = value; }

  // --------------------------------------------------------------------------------------------------------------
  // elementwise
  template <class V>
  static auto value(const tile::Rows<V>& argument, int row, int) {
    return argument.vector.at(row, 0);
  }
  template <class V>
  static auto value(const tile::Columns<V>& argument, int, int column) {
    return argument.vector.at(column, 0);
  }
  template <class T>
  static float value(const tile::Same<T>& argument, int row, int column) {
    return argument.tile.at(row, column);
  }
  static bool value(const tile::Inside& argument, int row, int) { return row < argument.count; }

  template <class T, class F, class... Arguments>
  void map(T& target, F f, const Arguments&... arguments) {
    target.may_write();
    for (int i = 0; i < target.height; ++i) {
      for (int j = 0; j < target.width; ++j) target.at(i, j) = f(target.at(i, j), value(arguments, i, j)...);
    }
  }

  template <class T>
  void zero(T& target) {
    map(target, [](float) { return 0.0f; });
  }

  [[nodiscard]] float narrowed(float v) const {
    if (type == DType::bf16) return tile::from_bf16(tile::to_bf16(v));
    return type == DType::f16 ? tile::from_f16(tile::to_f16(v)) : v;
  }

  template <class R, class C, int kind, class F, class... Arguments>
  void operand(Tile<R, C, 2>& out, const Tile<R, C, kind>& source, F f, const Arguments&... arguments) {
    source.may_read();
    map(
        out, [&](float, float element, auto... values) { return narrowed(f(element, values...)); }, tile::same(source),
        arguments...);
  }
  template <class R, class C, int kind>
  void operand(Tile<R, C, 2>& out, const Tile<R, C, kind>& source) {
    operand(out, source, [](float v) { return v; });
  }
  template <class R, class C, class F>
  void operand_if(bool condition, Tile<R, C, 2>& out, const Tile<R, C, 0>& source, F f) {
    condition ? operand(out, source, f) : operand(out, source);
  }
  void keep_last(Shared<Q, N, tile::as_B>& B, const Ordinals<Q>& document) {
    const int kept = document.at(document.height - 1, 0);
    map(
        B, [=](float b, int ordinal) { return tile::select(ordinal == kept, b, 0.0f); }, tile::rows(document));
  }
  void narrow(Leaving<Q, P>& out, const Accumulator<Q, P>& source) {
    source.may_read();
    map(
        out, [](float, float element) { return element; }, tile::same(source));
  }

  // ------------------------------------------------------------------------------------------------------------ along
  // a chunk
  /// Inclusive sums, restarted where the ordinal changes.
  void scan(Vector<Q>& v, const Ordinals<Q>& document) {
    for (int i = 1; i < v.height; ++i) {
      if (document.at(i, 0) == document.at(i - 1, 0)) v.at(i, 0) += v.at(i - 1, 0);
    }
  }
  /// v_j becomes the sum of what follows it.
  void scan_back(Vector<Q>& v) {
    float sum = 0.0f;
    for (int i = v.height - 1; i >= 0; --i) {
      const float here = v.at(i, 0);
      v.at(i, 0) = sum;
      sum += here;
    }
  }
  /// How often seq_idx has changed, counted from the token before the chunk.
  void scan_changes(Ordinals<Q>& out, const tile::TokenView& view, const tile::Tokens& tokens) {
    int changes = 0;
    const auto* id = static_cast<const std::int32_t*>(view.data) + (view.given ? view.offset(tokens, 0, 0) : 0);
    for (int i = 0; i < out.height; ++i) {
      if (view.given && i < tokens.count && !(i == 0 && tokens.begins))
        changes += id[i * view.token_stride] != id[(i - 1) * view.token_stride];
      out.at(i, 0) = changes;
    }
  }
  template <class V>
  [[nodiscard]] auto first(const V& v) const {
    return v.at(0, 0);
  }
  template <class V>
  [[nodiscard]] auto last(const V& v) const {
    return v.at(v.height - 1, 0);
  }

  // ------------------------------------------------------------------------------------------------------- operations
  // by name
  void weigh(Accumulator<Q, P>& y, const Vector<Q>& weights) {
    map(
        y, [](float v, float weight) { return tile::weigh(v, weight); }, tile::rows(weights));
  }
  void weigh(Operand<Q, P, tile::as_At>& out, const Shared<Q, P, tile::elementwise>& x, const Vector<Q>& weights) {
    operand(
        out, x, [](float v, float weight) { return tile::weigh(v, weight); }, tile::rows(weights));
  }
  void decay(State<P, N>& S, float factor) {
    map(S, [=](float s) { return tile::weigh(s, factor); });
  }
  void tabulate(DecayTable&, const Vector<Q>&, const Vector<Q>&, const Ordinals<Q>&, float) {}
  void decay_scores(Tile<Q, Q, 2>& out, const Accumulator<Q, Q, Part::lower>& scores, const Vector<Q>& cum,
                    const Vector<Q>& delta, const Ordinals<Q>& document, const DecayTable&, float,
                    const tile::HeadView&, int) {
    scores.may_read();
    out.may_write();
    for (int i = 0; i < out.height; ++i) {
      for (int j = 0; j < out.width; ++j) {
        const bool seen = j <= i && document.at(i, 0) == document.at(j, 0);
        const float exponent = seen ? cum.at(i, 0) - cum.at(j, 0) : tile::minus_infinity;
        out.at(i, j) = narrowed(tile::weigh(scores.at(i, j), tile::weigh(delta.at(j, 0), tile::exp2(exponent))));
      }
    }
  }
  template <class Summed>
  void sum_columns(Summed&) const {}  // a worker has all columns of its state
  void add_skip(Accumulator<Q, P>& y, const Tile<Q, P, 0>& x, const tile::HeadView& D, const tile::Slice& slice) {
    if (!D.given) return;
    for (int p = 0; p < y.width; ++p) {
      const int channel = slice.channel + p < D.width ? slice.channel + p : 0;
      const float d = tile::value(D, slice.head, channel);
      for (int i = 0; i < y.height; ++i) y.at(i, p) += d * x.at(i, p);
    }
  }

  /// S = keep_i S + delta_i x_i B_i^T and y_i = S C_i for the first `count` tokens; a document starts from S = 0.
  void recur(Accumulator<Q, P>& y, State<P, N>& S, const Shared<Q, P, tile::elementwise>& x,
             const Shared<Q, N, tile::elementwise>& B, const Shared<Q, N, tile::elementwise>& C, const Vector<Q>& keep,
             const Vector<Q>& delta, const Ordinals<Q>& document, int count) {
    for (int i = 0; i < count; ++i) {
      const bool starts = document.at(i, 0) != (i == 0 ? 0 : document.at(i - 1, 0));
      for (int p = 0; p < y.width; ++p) {
        float sum = 0.0f;
        for (int n = 0; n < B.width; ++n) {
          S.at(p, n) =
              (starts ? 0.0f : S.at(p, n) * keep.at(i, 0)) + tile::weigh(x.at(i, p), delta.at(i, 0)) * B.at(i, n);
          sum += S.at(p, n) * C.at(i, n);
        }
        y.at(i, p) = sum;
      }
    }
  }

  // -----------------------------------------------------------------------------------------------------------------
  // products
  struct Product {
    std::int64_t ticket;
    std::function<void()> run;
  };
  std::deque<Product> under_way{};
  std::int64_t issued = 0;

  template <class T, class Element>
  Token issue(const T& out, const Grid<float>& a, const Grid<float>& b, bool add, int depth, Element element) {
    out.may_write();
    a.may_read();
    b.may_read();
    out.storage->written = true;
    ++a.storage->readers;
    ++b.storage->readers;
    under_way.push_back({++issued, [=] {
                           for (int i = 0; i < out.height; ++i) {
                             for (int j = 0; j < out.width; ++j) {
                               float sum = add ? out.at(i, j) : 0.0f;
                               for (int k = 0; k < depth; ++k) sum += element(a, b, i, j, k);
                               out.at(i, j) = sum;
                             }
                           }
                           out.storage->written = false;
                           --a.storage->readers;
                           --b.storage->readers;
                         }});
    return {issued};
  }
  /// Waits for `token`; the products of `later` may still be under way.
  template <class... Later>
  void wait(const Token& token, const Later&... later) {
    demand(((later.ticket > token.ticket) && ...), "a wait names as still under way what was issued before");
    demand(issued - token.ticket == static_cast<std::int64_t>(sizeof...(later)),
           "a wait does not name all that is still under way");
    while (!under_way.empty() && under_way.front().ticket <= token.ticket) {
      under_way.front().run();
      under_way.pop_front();
    }
  }

  template <class I, class J, class K, int o, int x, int y>
  Token mma_AB(tile::Add<Tile<I, J, o>> out, const Tile<I, K, x>& a, const Tile<K, J, y>& b) {
    return issue(out.target, a, b, true, a.width,
                 [](auto& l, auto& r, int i, int j, int k) { return l.at(i, k) * r.at(k, j); });
  }
  template <class I, class J, class K, int o, int x, int y>
  Token mma_ABt(tile::Set<Tile<I, J, o>> out, const Tile<I, K, x>& a, const Tile<J, K, y>& b) {
    return issue(out.target, a, b, false, a.width,
                 [](auto& l, auto& r, int i, int j, int k) { return l.at(i, k) * r.at(j, k); });
  }
  template <class I, class J, class K, int o, int x, int y>
  Token mma_AtB(tile::Add<Tile<I, J, o>> out, const Tile<K, I, x>& a, const Tile<K, J, y>& b) {
    return issue(out.target, a, b, true, a.height,
                 [](auto& l, auto& r, int i, int j, int k) { return l.at(k, i) * r.at(k, j); });
  }
};

}  // namespace tilemamba::scalar
