// SPDX-License-Identifier: Apache-2.0
/// @file
/// The worker that sums decays: one warp for a head.
#pragma once

#include "backends/cuda/tma/tile.cuh"

namespace tilemamba::cuda::tma {

/// `each`: consecutive tokens of a lane, two for a chunk.
template <class K, int each = 2>
struct DecayWorker {
  using E = typename K::E;
  static constexpr bool documents = K::features.documents;
  static constexpr bool factors = K::parts == 1;
  using Lanes = LaneVector<each>;
  template <class Axis>
  using Vector = Lanes;
  template <class Axis>
  using Weights = Lanes;
  template <class Axis>
  using Ordinals = std::conditional_t<documents, LaneOrdinals<each>, NoOrdinals>;
  struct DecayTable {
    tma::DecayTable<factors>* at;
  };

  /// What a warp asks memory for well before it needs it.
  struct Steps {
    std::uint32_t dt[each];
    int id[each];
    int id_before;  ///< of the token before the chunk, in lane 0
  };

  int lane;
  Steps steps;  ///< of the chunk at hand

  // ------------------------------------------------------------------------------------------------------------ from
  // memory
  const char* dt;         ///< of this lane's first token, were the chunk to begin at token 0 of the row
  std::uint32_t dt_step;  ///< bytes from token to token; such steps are less than 4 GiB (the host looks)
  bool dt_is_wide;        ///< fp32

  TILEMAMBA_DEVICE DecayWorker(const kernels::TokenView& view, std::int64_t batch, int head, int in_lane)
      : lane(in_lane),
        dt(static_cast<const char*>(view.data) +
           (batch * view.batch_stride + head * view.head_stride + each * in_lane * view.token_stride) *
               size_of(view.dtype)),
        dt_step(static_cast<std::uint32_t>(view.token_stride * size_of(view.dtype))),
        dt_is_wide(view.dtype == DType::f32) {}

  [[nodiscard]] TILEMAMBA_DEVICE const char* first_step(const tile::Tokens& tokens) const {
    return dt + static_cast<std::uint64_t>(static_cast<std::uint32_t>(tokens.first)) * dt_step;
  }
  /// A chunk's steps come to L2, long before they are fetched: registers could not be kept for them that long.
  TILEMAMBA_DEVICE void foresee(const tile::Tokens& tokens) const {
#pragma unroll
    for (int e = 0; e < each; e += 2) {
      if (each * lane + e < tokens.count) bring_to_l2(first_step(tokens) + e * static_cast<std::uint64_t>(dt_step));
    }
  }
  /// The steps and documents of a chunk: issued now, looked at when they have become `steps`.
  TILEMAMBA_DEVICE Steps fetch(const kernels::TokenView& seq_idx, const tile::Tokens& tokens) const {
    Steps fetched{};
    const char* const at = first_step(tokens);
#pragma unroll
    for (int e = 0; e < each; ++e) {
      if (each * lane + e >= tokens.count) continue;
      const char* const step = at + e * static_cast<std::uint64_t>(dt_step);
      fetched.dt[e] = dt_is_wide ? __ldg(reinterpret_cast<const unsigned*>(step))
                                 : __ldg(reinterpret_cast<const unsigned short*>(step));
    }
    if constexpr (documents) {
      if (seq_idx.given) {
        const int* id = static_cast<const int*>(seq_idx.data) + seq_idx.offset(tokens, 0, 0);
        const int i = each * lane;
        if (i < tokens.count) fetched.id[0] = __ldg(id + i * seq_idx.token_stride);
#pragma unroll
        for (int e = 1; e < each; ++e)
          fetched.id[e] = i + e < tokens.count ? __ldg(id + (i + e) * seq_idx.token_stride) : fetched.id[e - 1];
        fetched.id_before =
            lane == 0 && !tokens.begins && tokens.count > 0 ? __ldg(id - seq_idx.token_stride) : fetched.id[0];
      }
    }
    return fetched;
  }
  TILEMAMBA_DEVICE void get(Lanes& out, const kernels::TokenView&, const tile::Tokens&, int) const {
#pragma unroll
    for (int e = 0; e < each; ++e) {
      out.r[e] = dt_is_wide ? __uint_as_float(steps.dt[e]) : E::unpack(steps.dt[e]).x;
    }
  }
  template <class View>
  TILEMAMBA_DEVICE void scan_changes(NoOrdinals&, const View&, const tile::Tokens&) const {}
  TILEMAMBA_DEVICE void scan_changes(LaneOrdinals<each>& out, const kernels::TokenView&,
                                     const tile::Tokens& tokens) const {
    const int other = __shfl_up_sync(~0u, steps.id[each - 1], 1);
    const int before = lane == 0 ? steps.id_before : other;
    int sum = 0;
#pragma unroll
    for (int e = 0; e < each; ++e) {
      sum += each * lane + e < tokens.count && steps.id[e] != (e == 0 ? before : steps.id[e - 1]);
      out.r[e] = sum;
    }
    const int own = sum;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int more = __shfl_up_sync(~0u, sum, distance);
      if (lane >= distance) sum += more;
    }
#pragma unroll
    for (int e = 0; e < each; ++e) out.r[e] += sum - own;
  }
  TILEMAMBA_DEVICE void put(const kernels::ChunkVectors& view, std::int64_t unit, int head, float value) const {
    if (lane == 0) *view.at(unit, head) = value;
  }

  // ------------------------------------------------------------------------------------------------------------
  // elementwise
  TILEMAMBA_DEVICE static float element(const tile::Rows<Lanes>& a, int e, int) { return a.vector.r[e]; }
  TILEMAMBA_DEVICE static int element(const tile::Rows<LaneOrdinals<each>>& a, int e, int) { return a.vector.r[e]; }
  TILEMAMBA_DEVICE static int element(const tile::Rows<NoOrdinals>&, int, int) { return 0; }
  TILEMAMBA_DEVICE static bool element(const tile::Inside& a, int e, int lane) { return each * lane + e < a.count; }
  template <class F, class... Arguments>
  TILEMAMBA_DEVICE void map(Lanes& v, F f, const Arguments&... arguments) const {
#pragma unroll
    for (int e = 0; e < each; ++e) v.r[e] = f(v.r[e], element(arguments, e, lane)...);
  }

  // ---------------------------------------------------------------------------------------------------------- along a
  // chunk
  TILEMAMBA_DEVICE void scan(LaneVector<2>& v, const NoOrdinals&) const {
    float sum = v.r[0] + v.r[1];
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const float more = __shfl_up_sync(~0u, sum, distance);
      if (lane >= distance) sum += more;
    }
    const float before = __shfl_up_sync(~0u, sum, 1);
    v.r[0] += lane == 0 ? 0.0f : before;
    v.r[1] = sum;
  }
  TILEMAMBA_DEVICE void scan(LaneVector<2>& v, const LaneOrdinals<2>& document) const {
    const bool together = document.r[0] == document.r[1];
    float sum = together ? v.r[0] + v.r[1] : v.r[1];
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const float more = __shfl_up_sync(~0u, sum, distance);
      const int its = __shfl_up_sync(~0u, document.r[1], distance);
      if (lane >= distance && its == document.r[1]) sum += more;
    }
    const float before = __shfl_up_sync(~0u, sum, 1);
    const int its = __shfl_up_sync(~0u, document.r[1], 1);
    v.r[0] += lane == 0 || its != document.r[0] ? 0.0f : before;
    v.r[1] = sum;
  }
  TILEMAMBA_DEVICE void scan_back(Lanes& v) const {
    float own = v.r[each - 1];
#pragma unroll
    for (int e = each - 2; e >= 0; --e) {
      const float here = v.r[e];
      v.r[e] = own;
      own += here;
    }
    float sum = own;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const float more = __shfl_down_sync(~0u, sum, distance);
      if (lane + distance < 32) sum += more;
    }
    const float next = __shfl_down_sync(~0u, sum, 1);
    const float after = lane == 31 ? 0.0f : next;
#pragma unroll
    for (int e = 0; e < each - 1; ++e) v.r[e] += after;
    v.r[each - 1] = after;
  }
  TILEMAMBA_DEVICE float first(const Lanes& v) const { return __shfl_sync(~0u, v.r[0], 0); }
  TILEMAMBA_DEVICE float last(const Lanes& v) const { return __shfl_sync(~0u, v.r[each - 1], 31); }
  TILEMAMBA_DEVICE int last(const LaneOrdinals<each>& v) const { return __shfl_sync(~0u, v.r[each - 1], 31); }
  TILEMAMBA_DEVICE int last(const NoOrdinals&) const { return 0; }

  // ---------------------------------------------------------------------------------------------------------------- by
  // name
  TILEMAMBA_DEVICE static bool same(const NoOrdinals&, int, int) { return true; }
  TILEMAMBA_DEVICE static bool same(const LaneOrdinals<each>& document, int e, int other) {
    return document.r[e] == other;
  }
  TILEMAMBA_DEVICE static int of_lane(const NoOrdinals&, int) { return 0; }
  TILEMAMBA_DEVICE static int of_lane(const LaneOrdinals<each>& document, int lane) {
    return __shfl_sync(~0u, document.r[1], lane);
  }

  TILEMAMBA_DEVICE void tabulate(DecayTable& table, const Lanes& cum, const Lanes& delta, const Ordinals<Q>& document,
                                 float) const {
    constexpr float largest = std::numeric_limits<float>::max();
    const float log[2] = {fast_log2(delta.r[0]) - cum.r[0], fast_log2(delta.r[1]) - cum.r[1]};
    reinterpret_cast<float2*>(table.at->column_log)[lane] = {log[0], log[1]};
    if constexpr (factors) {
#pragma unroll
      for (int block = 0; block < 3; ++block) {
        const int edge = 8 * block + 7;
        const float at_edge = __shfl_sync(~0u, cum.r[1], edge);
        const int its = of_lane(document, edge);
        // An undefined step is its document's own affair: a finite factor times a row's zero is zero.
        const auto factor = [&](int e) {
          return same(document, e, its) ? fminf(fast_exp2(at_edge + log[e]), largest) : 0.0f;
        };
        const float2 both = {factor(0), factor(1)};
        if (lane <= edge) reinterpret_cast<float2*>(table.at->column_factor[block])[lane] = both;
      }
    }
  }

  /// What the other roles read.
  template <class Stage>
  TILEMAMBA_DEVICE void publish(Stage& stage, const Lanes& cum, const Lanes& entry, const Lanes& exit,
                                const Ordinals<Q>& document) const {
    reinterpret_cast<float2*>(stage.cum)[lane] = {cum.r[0], cum.r[1]};
    reinterpret_cast<float2*>(stage.entry)[lane] = {entry.r[0], entry.r[1]};
    publish(stage.exit, exit);
    if constexpr (documents) publish(stage.document_start, document);
  }
  TILEMAMBA_DEVICE void publish(int* start, const LaneOrdinals<each>& document) const {
    const int before = __shfl_up_sync(~0u, document.r[1], 1);
    const int second = document.r[1] != document.r[0] ? 2 * lane + 1 : 0;
    const int first = document.r[0] != (lane == 0 ? 0 : before) ? 2 * lane : 0;
    int latest = max(first, second);
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) latest = max(latest, __shfl_up_sync(~0u, latest, distance));
    const int earlier = __shfl_up_sync(~0u, latest, 1);
    reinterpret_cast<int2*>(start)[lane] = {max(first, lane == 0 ? 0 : earlier), latest};
  }
  /// bf16: the weight and what its rounding left, which an fma takes together. fp16 has no room for small remainders:
  /// fp32.
  TILEMAMBA_DEVICE void publish(uint2* stage, const Lanes& exit) const {
#pragma unroll
    for (int e = 0; e < each; e += 2) {
      const float first = exit.r[e], second = exit.r[e + 1];
      uint2& pair = stage[(each * lane + e) / 2];
      if constexpr (E::dtype == DType::bf16) {
        const std::uint32_t high = E::pack(first, second);
        const float2 rounded = E::unpack(high);
        pair = {high, E::pack(first - rounded.x, second - rounded.y)};
      } else {
        pair = {__float_as_uint(first), __float_as_uint(second)};
      }
    }
  }
};

}  // namespace tilemamba::cuda::tma
