// SPDX-License-Identifier: Apache-2.0
/// @file
/// The worker of a slice of a head: a warpgroup, of which each warp has 16 channels. A lane has the channels `row` and
/// `row + 8` and, of every eight tokens or columns of the state, two.
#pragma once

#include "backends/cuda/tma/segment.cuh"

namespace tilemamba::cuda::tma {

template <class K>
struct HeadFragments {
  using E = typename K::E;
  static constexpr int n = K::n;
  static constexpr int own = q / 2 / K::parts;  ///< registers of the outputs that a block finishes
  static constexpr bool documents = K::features.documents, wide = K::features.wide;

  template <class R, class C, unsigned use>
  struct OperandOf {
    using type = RegisterOperand<q / 16>;  // x
  };
  template <unsigned use>
  struct OperandOf<P, N, use> {
    using type = RegisterOperand<n / 16>;
  };
  template <unsigned use>
  struct OperandOf<Q, Q, use> {
    using type = SharedOperand;
  };
  template <class R, class C>
  struct SharedOf {
    template <unsigned uses>
    using type = HeadTile;
  };
  template <class R>
  struct SharedOf<R, N> {
    template <unsigned uses>
    using type = SharedTile<uses>;
  };

  template <class R, class C, unsigned uses>
  using Shared = typename SharedOf<R, C>::template type<uses>;
  /// Where a cluster shares a state's columns: the outputs of the block's own tokens; of all tokens what this block's
  /// columns give, and of its own what these and x give; and the weights of these tokens' parts.
  struct SharedOutputs : Registers<own> {
    Registers<q / 2> part;
    Registers<own> within;
    Registers<own / 2> weights;
  };
  using Outputs = std::conditional_t<K::parts == 1, Registers<q / 2>, SharedOutputs>;
  static TILEMAMBA_DEVICE Registers<q / 2>& part_of(Outputs& y) {
    if constexpr (K::parts == 1) {
      return y;
    } else {
      return y.part;
    }
  }
  template <class R, class C, Part part = Part::full>
  using Accumulator = Outputs;
  template <class R, class C, unsigned use, Part part = Part::full>
  using Operand = typename OperandOf<R, C, use>::type;
  struct NarrowLeaving {
    std::uint32_t r[own / 2];
    unsigned at;  ///< the tile of x, which y replaces
  };
  template <class R, class C>
  using Leaving = std::conditional_t<wide, Registers<own>, NarrowLeaving>;
  template <class Axis>
  using Vector = SharedVector;
  template <class Axis>
  using Weights = SharedWeights;
  template <class Axis>
  using Ordinals = NoOrdinals;
  struct DecayTable {};

  unsigned lane;
  int warp, worker;
  int channels;    ///< of the slice; rows beyond are nobody's
  unsigned chunk;  ///< at hand; only a cluster looks at it

  TILEMAMBA_DEVICE int row() const { return 16 * warp + static_cast<int>(lane / 4); }
  TILEMAMBA_DEVICE int column() const { return 2 * static_cast<int>(lane % 4); }

  // ----------------------------------------------------------------------------------------------------------------
  // states
  TILEMAMBA_DEVICE void get(Registers<n / 2>& S, const States& view, std::int64_t batch, std::int64_t index,
                            const tile::Slice& slice) const {
    if (!view.given) return zero(S);
    std::int64_t offset = view.offset(batch, index, slice);
    if (view.as_registers) {
      offset += K::first_column() * channels_of_slice;
      const float4* from =
          reinterpret_cast<const float4*>(static_cast<const float*>(view.data) + offset) + warp * 32 + lane;
#pragma unroll
      for (int t = 0; t < n / 8; ++t) {
        const float4 v = from[t * 128];
        S.r[4 * t] = v.x, S.r[4 * t + 1] = v.y, S.r[4 * t + 2] = v.z, S.r[4 * t + 3] = v.w;
      }
      return;
    }
    load(S, view, offset, K::first_column());
  }
  /// Columns from `first` on.
  template <int count>
  TILEMAMBA_DEVICE void load(Registers<count>& S, const States& view, std::int64_t offset, int first) const {
    first += column();
    offset += row() * view.channel_stride + first;
    if (in_pairs(view, offset))
      return load_pairs(S, view.width - first, view,
                        reinterpret_cast<const float2*>(static_cast<const float*>(view.data) + offset));
    switch (view.dtype) {
      case DType::f32:
        return load_state(S, view.width - first, view, static_cast<const float*>(view.data) + offset,
                          [](float v) { return v; });
      case DType::bf16:
        return load_state(S, view.width - first, view, static_cast<const std::uint16_t*>(view.data) + offset,
                          [](std::uint32_t v) { return Bf16::unpack(v).x; });
      default:
        return load_state(S, view.width - first, view, static_cast<const std::uint16_t*>(view.data) + offset,
                          [](std::uint32_t v) { return F16::unpack(v).x; });
    }
  }
  TILEMAMBA_DEVICE void put(const kernels::StateView& view, std::int64_t batch, std::int64_t index,
                            const tile::Slice& slice, const Registers<n / 2>& S) const {
    const std::int64_t offset =
        view.offset(batch, index, slice) + row() * view.channel_stride + K::first_column() + column();
    if (in_pairs(view, offset))
      return store_pairs(S, view, reinterpret_cast<float2*>(static_cast<float*>(view.data) + offset));
    switch (view.dtype) {
      case DType::f32:
        return store_state(S, view, static_cast<float*>(view.data) + offset, [](float v) { return v; });
      case DType::bf16:
        return store_state(S, view, static_cast<std::uint16_t*>(view.data) + offset,
                           [](float v) { return Bf16::pack(v, 0.0f); });
      default:
        return store_state(S, view, static_cast<std::uint16_t*>(view.data) + offset,
                           [](float v) { return F16::pack(v, 0.0f); });
    }
  }
  /// Into the workspace.
  TILEMAMBA_DEVICE void put(const States& view, std::int64_t batch, std::int64_t index, const tile::Slice& slice,
                            const Registers<n / 2>& S) const {
    const std::int64_t offset = view.offset(batch, index, slice) + K::first_column() * channels_of_slice;
    float4* to = reinterpret_cast<float4*>(static_cast<float*>(view.data) + offset) + warp * 32 + lane;
#pragma unroll
    for (int t = 0; t < n / 8; ++t) to[t * 128] = {S.r[4 * t], S.r[4 * t + 1], S.r[4 * t + 2], S.r[4 * t + 3]};
  }
  TILEMAMBA_DEVICE void zero(Registers<n / 2>& S) const {
#pragma unroll
    for (int k = 0; k < n / 2; ++k) S.r[k] = 0.0f;
  }
  /// A factor of 0 forgets the state, whatever it is.
  template <int count>
  TILEMAMBA_DEVICE void decay(Registers<count>& S, float factor) const {
#pragma unroll
    for (int k = 0; k < count; ++k) S.r[k] = weighed(S.r[k], factor);
  }
  template <int count>
  TILEMAMBA_DEVICE void operand(RegisterOperand<count / 8>& out, const Registers<count>& S) const {
#pragma unroll
    for (int k = 0; k < count / 8; ++k) {
#pragma unroll
      for (int e = 0; e < 4; ++e) out.r[k][e] = E::pack(S.r[8 * k + 2 * e], S.r[8 * k + 2 * e + 1]);
    }
  }

  // A state goes from segment to segment in pieces, each from a thread to that of the next block with the same
  // elements, so that it has come to the last before all have left the first.
  /// Where this thread's 16 bytes of the first 2 KB are.
  TILEMAMBA_DEVICE unsigned states() const {
    return shared_address(K::states_at) + worker * K::state_places * (K::state_piece * 512) + (warp * 32 + lane) * 16;
  }
  TILEMAMBA_DEVICE unsigned entered() const { return shared_address(K::state_entered) + 8 * worker * K::state_places; }
  /// Barriers of this block at which the next one says that it has taken a piece, or (of the first block, which gives
  /// itself the initial state) this one.
  TILEMAMBA_DEVICE unsigned left(bool initial) const {
    return shared_address(K::state_left) + 8 * (2 * worker + initial) * K::state_places;
  }
  /// Piece `k` to the block `rank`.
  TILEMAMBA_DEVICE void hand_on(const float* v, int k, int rank, unsigned left) const {
    const int place = k % K::state_places, turn = k / K::state_places;
    if (turn > 0) wait_phase(left + 8 * place, (turn & 1) ^ 1);
    const unsigned to = in_block(states(), rank) + place * (K::state_piece * 512),
                   barrier = in_block(entered(), rank) + 8 * place;
#pragma unroll
    for (int e = 0; e < K::state_piece; e += 4) store_there(to + e * 512, v + e, barrier);
  }
  /// Of the state that enters the sequence as many pieces as there is room for, for the time `turn`, to this block,
  /// which has the first segment, as if from one before.
  TILEMAMBA_DEVICE void hand_on(const States& view, std::int64_t offset, int turn) const {
    constexpr int piece = K::state_piece, places = K::state_places;
    Registers<places * piece> S{};
    if (view.given) load(S, view, offset, K::first_column() + 2 * piece * places * turn);
#pragma unroll
    for (int place = 0; place < places; ++place)
      if (n / 2 % (places * piece) == 0 || turn * places + place < n / 2 / piece)
        hand_on(S.r + place * piece, turn * places + place, rank_in_cluster(), left(true));
  }
  /// Its columns of that state come to L2 long before they are loaded.
  TILEMAMBA_DEVICE void foresee(const States& view, std::int64_t offset) const {
    const int channel = 16 * warp + lane / 2;
    if (!view.given || channel >= channels) return;
    offset += channel * view.channel_stride;
#pragma unroll 1
    for (int k = K::first_column() + lane % 2 * 32; k < min(K::first_column() + n, view.width); k += 64)
      bring_to_l2(static_cast<const char*>(view.data) + (offset + k) * size_of(view.dtype));
  }
  /// Of segment `index` of the cluster's `count`: in the place of S what enters, which is what leaves the one before: f
  /// of what enters there and its S.
  template <class F>
  TILEMAMBA_DEVICE void chained_scan(Registers<n / 2>& S, std::int64_t index, std::int64_t count, F f) const {
    constexpr int piece = K::state_piece, places = K::state_places, pieces = n / 2 / piece;
    const bool first = index == 0, last = index + 1 == count;
    const int rank = rank_in_cluster();
    const unsigned taken = in_block(left(first), first ? rank : rank - K::parts);
#pragma unroll
    for (int k = 0; k < pieces; ++k) {
      const unsigned place = k % places;
      float leaves[piece];
      wait_phase(entered() + 8 * place, k / places & 1);
#pragma unroll
      for (int e = 0; e < piece; e += 4) {
        const float4 v = load_shared_four(states() + place * (piece * 512) + e * 512);
        const float enters[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int d = 0; d < 4; ++d) {
          leaves[e + d] = f(enters[d], S.r[piece * k + e + d]);
          S.r[piece * k + e + d] = enters[d];
        }
      }
      if (k + places < pieces) {
        if (warp == 0 && lane == 0) expect_bytes(entered() + 8 * place, piece * 512);
        __syncwarp();
        if (lane == 0) arrive_there(taken + 8 * place);
      }
      if (!last) hand_on(leaves, k, rank + K::parts, left(false));
    }
  }

  // ---------------------------------------------------------------------------------------------------------------------
  // x
  /// The transpose of a tile of x into registers. Where documents meet, what is not finite must reach no product.
  TILEMAMBA_DEVICE void fetch(HeadTile& x) const {
    const unsigned matrix = lane / 8;
    const unsigned address = x.at * 16 + swizzled(8 * (matrix / 2) + lane % 8, 2 * warp + matrix % 2);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      ldmatrix_transposed(x.fragments[k], address + k * 2048);
      if constexpr (documents) {
#pragma unroll
        for (int e = 0; e < 4; ++e) x.fragments[k][e] = finite_or_zero<E>(x.fragments[k][e]);
      }
    }
  }
  template <class F>
  TILEMAMBA_DEVICE void operand_if(bool, RegisterOperand<q / 16>& out, const HeadTile& x, F) const {
    HeadTile again{x.at};
    fetch(again);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int e = 0; e < 4; ++e) out.r[k][e] = again.fragments[k][e];
    }
  }
  TILEMAMBA_DEVICE void weigh(RegisterOperand<q / 16>& out, const HeadTile& x, const SharedWeights& weights) const {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint2 w = weights.at[8 * k + 4 * half + lane % 4];
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) out.r[k][e] = weigh_pair<E>(x.fragments[k][e], w);
      }
    }
  }

  // ---------------------------------------------------------------------------------------------------------------------
  // y
  TILEMAMBA_DEVICE void weigh(Registers<q / 2>& y, const SharedVector& weights) const {
    each_weight<q>(weights, 0, [&](int t, float2 w) {
      y.r[4 * t] = weighed(y.r[4 * t], w.x), y.r[4 * t + 1] = weighed(y.r[4 * t + 1], w.y);
      y.r[4 * t + 2] = weighed(y.r[4 * t + 2], w.x), y.r[4 * t + 3] = weighed(y.r[4 * t + 3], w.y);
    });
  }
  /// Of a cluster each block weighs what it finishes.
  TILEMAMBA_DEVICE void weigh(SharedOutputs& y, const SharedVector& weights) const {
    each_weight<K::own_tokens>(weights, K::first_token(),
                               [&](int t, float2 w) { y.weights.r[2 * t] = w.x, y.weights.r[2 * t + 1] = w.y; });
  }
  /// Of a cluster, y of each token to the block that finishes it. What others give is added when their parts have had
  /// time to come: see `take`.
  TILEMAMBA_DEVICE void sum_columns(Outputs& y) const {
    if constexpr (K::parts > 1) {
      wait_phase(shared_address(K::taken) + 8 * buffer(chunk), use(chunk) ^ 1);
      const int part = K::part();
#pragma unroll
      for (int k = 0; k < own; k += 4) {
        float its[K::parts][4];  // of this block, the next one, ...
#pragma unroll
        for (int e = 0; e < 4; ++e) {
#pragma unroll
          for (int to = 0; to < K::parts; ++to) its[to][e] = y.part.r[to * own + k + e];
#pragma unroll
          for (int step = 1; step < K::parts; step *= 2) {
            float turned[K::parts];
#pragma unroll
            for (int to = 0; to < K::parts; ++to)
              turned[to] = part & step ? its[(to + step) % K::parts][e] : its[to][e];
#pragma unroll
            for (int to = 0; to < K::parts; ++to) its[to][e] = turned[to];
          }
          y.within.r[k + e] = weighed(its[0][e], y.weights.r[k / 2 + e % 2]);
        }
#pragma unroll
        for (int to = 1; to < K::parts; ++to) {
          const int there = (part + to) % K::parts;
          store_there(K::in_part(place(K::parts - 1 - to, chunk) + k * 512, there), its[to],
                      K::in_part(shared_address(K::given) + 8 * buffer(chunk), there));
        }
      }
    }
  }
  /// What others gave of a chunk. Always in the same order.
  TILEMAMBA_DEVICE void take(Outputs& y, unsigned its) const {
    if constexpr (K::parts > 1) {
      const unsigned given = shared_address(K::given) + 8 * buffer(its);
      wait_phase(given, use(its));
      if (warp == 0 && lane == 0) expect_bytes(given, K::given_bytes);  // the next one's there
#pragma unroll
      for (int k = 0; k < own; k += 4) {
        const float2 w = {y.weights.r[k / 2], y.weights.r[k / 2 + 1]};
#pragma unroll
        for (int from = 0; from < K::parts - 1; ++from) {
          const float4 more = load_shared_four(place(from, its) + k * 512);
          y.r[k] += weighed(more.x, w.x), y.r[k + 1] += weighed(more.y, w.y);
          y.r[k + 2] += weighed(more.z, w.x), y.r[k + 3] += weighed(more.w, w.y);
        }
      }
      __syncwarp();
      if (lane + 1 < K::parts) {
        arrive_there(K::in_part(shared_address(K::taken) + 8 * buffer(its), (K::part() + 1 + lane) % K::parts));
      }
    }
  }
  /// The gate.
  template <class F>
  TILEMAMBA_DEVICE void map(Registers<own>& y, F f, const tile::Same<HeadTile>& z) const {
    beside(y, z.tile.at, [&](float& y_i, float z_i, int) { y_i = f(y_i, z_i); });
  }
  /// Where the products are done, y + D x of a block's own tokens. In other registers: those that accumulate may not be
  /// changed while the next chunk's products are under way.
  TILEMAMBA_DEVICE void collect(Outputs& y, const HeadTile& x) const {
    if constexpr (K::parts > 1) {
      const float skip[2] = {skips()[row()], skips()[row() + 8]};
#pragma unroll
      for (int k = 0; k < own; ++k) y.r[k] = y.within.r[k];
      beside(y, x.at + K::first_token() * 128 / 16,
             [&](float& y_i, float x_i, int below) { y_i += skip[below] * x_i; });
    }
  }
  /// D came in before.
  TILEMAMBA_DEVICE void add_skip(Registers<own>&, const HeadTile&, const kernels::HeadView&, const tile::Slice&) const {
  }
  /// D of each of the slice's channels, in shared memory: there are no registers for it.
  TILEMAMBA_DEVICE float* skips() const {
    return reinterpret_cast<float*>(shared_memory + K::skips_at) + forgotten(worker) * channels_of_slice;
  }
  TILEMAMBA_DEVICE void narrow(NarrowLeaving& out, const Registers<own>& y) const {
#pragma unroll
    for (int k = 0; k < own / 2; ++k) out.r[k] = E::pack(y.r[2 * k], y.r[2 * k + 1]);
  }
  TILEMAMBA_DEVICE void narrow(Registers<own>& out, const Registers<own>& y) const { out = y; }
  /// Over x, from where the copy engine takes it; each warp writes only the columns that it alone has read.
  TILEMAMBA_DEVICE void put(const kernels::TokenView&, const tile::Tokens&, const tile::Slice&,
                            const NarrowLeaving& y) const {
    const unsigned matrix = lane / 8;
    const unsigned address =
        y.at * 16 + K::first_token() * 128 + swizzled(8 * (matrix / 2) + lane % 8, 2 * warp + matrix % 2);
#pragma unroll
    for (int k = 0; k < own / 8; ++k)
      stmatrix_transposed(address + k * 2048, y.r[4 * k], y.r[4 * k + 1], y.r[4 * k + 2], y.r[4 * k + 3]);
    publish_to_engines();
  }
  /// fp32 outputs of 16-bit inputs go straight to memory: eight lanes have 32 bytes of a token.
  TILEMAMBA_DEVICE void put(const kernels::TokenView& view, const tile::Tokens& tokens, const tile::Slice& slice,
                            const Registers<own>& y) const {
    float* const to = static_cast<float*>(view.data) + view.offset(tokens, slice.head, slice.channel + row());
#pragma unroll
    for (int t = 0; t < own / 4; ++t) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int i = K::first_token() + 8 * t + column() + e % 2, below = e / 2 * 8;
        if (i < tokens.count && row() + below < channels) to[i * view.token_stride + below] = y.r[4 * t + e];
      }
    }
  }

  TILEMAMBA_DEVICE float last(const SharedVector& v) const { return v.at[q - 1]; }

  /// y + D x of all tokens: the operand's registers lie as the accumulators do. (On the diagonal of the decayed scores
  /// it would cost nothing, but be rounded with them.)
  TILEMAMBA_DEVICE void add_skips(Registers<q / 2>& y, const RegisterOperand<q / 16>& x) const {
    const float skip[2] = {skips()[row()], skips()[row() + 8]};
#pragma unroll
    for (int k = 0; k < q / 16; ++k) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float2 v = E::unpack(x.r[k][e]);
        y.r[8 * k + 2 * e] += skip[e % 2] * v.x;
        y.r[8 * k + 2 * e + 1] += skip[e % 2] * v.y;
      }
    }
  }

 private:
  /// f(t, the weights of this lane's two tokens) of every eight of `tokens` tokens from `first` on. (The lane's column
  /// is found anew: there are no registers to keep it.)
  template <int tokens, class F>
  TILEMAMBA_DEVICE void each_weight(const SharedVector& weights, int first, F f) const {
    const float* const at = weights.at + first + 2 * static_cast<int>(forgotten(lane) % 4);
#pragma unroll
    for (int t = 0; t < tokens / 8; ++t) f(t, *reinterpret_cast<const float2*>(at + 8 * t));
  }
  /// Where others give this worker their parts of a chunk, and the parity of how often that was used.
  TILEMAMBA_DEVICE unsigned buffer(unsigned its) const {
    return (K::features.chained ? forgotten(worker) : worker) * K::given_buffers + its % K::given_buffers;
  }
  TILEMAMBA_DEVICE static unsigned use(unsigned its) { return its / K::given_buffers & 1; }
  /// This thread's 16 bytes of every 2 KB of what one of the other blocks gives.
  TILEMAMBA_DEVICE unsigned place(int from, unsigned its) const {
    return shared_address(K::given_at) + (buffer(its) * (K::parts - 1) + from) * (own * 512) + (warp * 32 + lane) * 16;
  }
  /// Only where documents meet can there be anything that a weight of zero has to remove.
  TILEMAMBA_DEVICE static float weighed(float v, float weight) {
    if constexpr (documents) return tile::weigh(v, weight);
    return v * weight;
  }
  /// Element by element: states may lie at any stride. `from`: this lane's first.
  template <int count, class T, class F>
  TILEMAMBA_DEVICE void load_state(Registers<count>& S, int width, const kernels::StateView& view, const T* from,
                                   F widen) const {
#pragma unroll
    for (int half = 0; half < 2; ++half, from += 8 * view.channel_stride) {
      const bool exists = row() + 8 * half < channels;
#pragma unroll
      for (int t = 0; t < count / 2; ++t) {
        const int c = t / 2 * 8 + t % 2;
        S.r[t / 2 * 4 + half * 2 + t % 2] = exists && c < width ? widen(from[c]) : 0.0f;
      }
    }
  }
  /// May two columns be moved at a time, from `offset` on?
  TILEMAMBA_DEVICE static bool in_pairs(const kernels::StateView& view, std::int64_t offset) {
    return view.dtype == DType::f32 && reinterpret_cast<std::uintptr_t>(view.data) % 8 == 0 && offset % 2 == 0 &&
           view.channel_stride % 2 == 0 && view.width % 2 == 0;
  }
  template <int count>
  TILEMAMBA_DEVICE void load_pairs(Registers<count>& S, int width, const kernels::StateView& view,
                                   const float2* from) const {
#pragma unroll
    for (int half = 0; half < 2; ++half, from += 4 * view.channel_stride) {
      const bool exists = row() + 8 * half < channels;
#pragma unroll
      for (int t = 0; t < count / 4; ++t) {
        const float2 v = exists && 8 * t < width ? from[4 * t] : float2{};
        S.r[4 * t + 2 * half] = v.x, S.r[4 * t + 2 * half + 1] = v.y;
      }
    }
  }
  template <class T, class F>
  TILEMAMBA_DEVICE void store_state(const Registers<n / 2>& S, const kernels::StateView& view, T* to, F narrow) const {
    const int width = view.width - K::first_column() - column();
#pragma unroll
    for (int half = 0; half < 2; ++half, to += 8 * view.channel_stride) {
      const bool exists = row() + 8 * half < channels;
#pragma unroll
      for (int t = 0; t < n / 4; ++t) {
        const int c = t / 2 * 8 + t % 2;
        if (exists && c < width) to[c] = static_cast<T>(narrow(S.r[t / 2 * 4 + half * 2 + t % 2]));
      }
    }
  }
  TILEMAMBA_DEVICE void store_pairs(const Registers<n / 2>& S, const kernels::StateView& view, float2* to) const {
    const int width = view.width - K::first_column() - column();
#pragma unroll
    for (int half = 0; half < 2; ++half, to += 4 * view.channel_stride) {
      const bool exists = row() + 8 * half < channels;
#pragma unroll
      for (int t = 0; t < n / 8; ++t) {
        if (exists && 8 * t < width) to[4 * t] = {S.r[4 * t + 2 * half], S.r[4 * t + 2 * half + 1]};
      }
    }
  }
  /// Every y with the element of a tile of z that lies where it does.
  template <class F>
  TILEMAMBA_DEVICE void beside(Registers<own>& y, unsigned at, F f) const {
    const unsigned matrix = lane / 8;
    const unsigned address = at * 16 + swizzled(8 * (matrix / 2) + lane % 8, 2 * warp + matrix % 2);
#pragma unroll
    for (int k = 0; k < own / 8; ++k) {
      std::uint32_t pairs[4];
      ldmatrix_transposed(pairs, address + k * 2048);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float2 v = E::unpack(pairs[e]);
        f(y.r[8 * k + 2 * e], v.x, e % 2);
        f(y.r[8 * k + 2 * e + 1], v.y, e % 2);
      }
    }
  }
};

}  // namespace tilemamba::cuda::tma
