// SPDX-License-Identifier: Apache-2.0
/// @file
/// The text of the trials of calibration.hpp: each uses wrappers of instructions as the kernels use them, on what it is
/// given, and says what every thread got, in the order of its threads and registers.
#pragma once

#include <array>
#include <cstddef>
#include <iterator>

// First: words of the kernels, which follow, are macros.
#include "backends/cuda/tma/maps.hpp"

#include "backends/cuda/sm80/tile.cuh"
#include "backends/cuda/sm90/descriptor.cuh"
#include "backends/cuda/tma/tile.cuh"
#include "tests/cuda/calibration.hpp"

namespace tilemamba::cuda::calibration {
namespace {

using namespace tma;
using test::cuda::Agreement;
using test::cuda::Calibrated;
using test::cuda::Trial;
using test::cuda::Words;

/// The parameter of a launch.
struct Job {
  const std::uint32_t* given;
  std::uint32_t* said;
  CUtensorMap map;
  int turn;  ///< of its launches
};

/// What a trial may say beside this: how it is launched.
struct Usual {
  static constexpr unsigned blocks = 1, cluster = 1, threads = 128, shared_bytes = 64 * 1024;
  static constexpr int launches = 1;
  static constexpr bool has_map = false;
  static constexpr unsigned box_tokens = 0;
};

TILEMAMBA_DEVICE unsigned me() { return threadIdx.x; }
TILEMAMBA_DEVICE int my_lane() { return static_cast<int>(threadIdx.x % 32); }
TILEMAMBA_DEVICE int my_warp() { return static_cast<int>(threadIdx.x / 32); }
/// 16 bytes of what is given, into shared memory.
TILEMAMBA_DEVICE void put_four(unsigned address, const std::uint32_t* from) {
  const std::uint32_t r[4] = {from[0], from[1], from[2], from[3]};
  store_shared_words(address, r);
}
/// Planes full of what is given.
TILEMAMBA_DEVICE void fill(unsigned address, const std::uint32_t* from, unsigned bytes) {
  for (unsigned k = me(); k < bytes / 16; k += blockDim.x) put_four(address + 16 * k, from + 4 * k);
}
/// They say what they are full of.
TILEMAMBA_DEVICE void tell(std::uint32_t* said, unsigned address, unsigned bytes) {
  for (unsigned k = me(); k < bytes / 16; k += blockDim.x) {
    std::uint32_t r[4];
    load_shared_words(r, address + 16 * k);
    for (int i = 0; i < 4; ++i) said[4 * k + static_cast<unsigned>(i)] = r[i];
  }
}
template <int count>
TILEMAMBA_DEVICE void tell(std::uint32_t* said, const float (&r)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) said[i] = __float_as_uint(r[i]);
}

// --------------------------------------------------------------------------------------------------------------- wgmma

constexpr unsigned tiles_at = 1024 + plane_bytes;  ///< in shared memory: not where it begins

/// Scores: both operands are tiles of 64 x 128 in shared memory.
template <class E>
struct Scores : Usual {
  static constexpr unsigned threads = 256, words_given = 8 * plane_bytes / 4, words_said = 256 * 32;
  static constexpr unsigned shared_bytes = tiles_at + 8 * plane_bytes;
  static TILEMAMBA_DEVICE void run(const Job& job) {
    fill(shared_address(tiles_at), job.given, 8 * plane_bytes);
    publish_to_engines();
    __syncthreads();
    const unsigned at = (shared_address(tiles_at) + me() / 128 * 4 * plane_bytes) / 16;
    const std::uint32_t c = sm90::inner_columns(at), b = sm90::inner_columns(at + 2 * plane_bytes / 16);
    float d[32];
    sm90::begin_products();
    sm90::wgmma<E, false>(d, sm90::descriptor(c), sm90::descriptor(b));
#pragma unroll
    for (int k = 1; k < 8; ++k) {
      const unsigned step = static_cast<unsigned>(k / 4) * plane_bytes / 16 + static_cast<unsigned>(k % 4 * 32 / 16);
      sm90::wgmma<E, true>(d, sm90::descriptor(c + step), sm90::descriptor(b + step));
    }
    sm90::commit_products();
    sm90::wait_products<0>();
    tell(job.said + me() * 32, d);
  }
};

/// The product of x, in registers, with the decayed scores of so many tokens, onto what was there before.
template <class E, int tokens>
struct OwnTokens : Usual {
  static constexpr unsigned words_given = plane_bytes / 4 + threads * 16, words_said = threads * (tokens / 2);
  static constexpr unsigned shared_bytes = tiles_at + plane_bytes;
  static TILEMAMBA_DEVICE void run(const Job& job) {
    fill(shared_address(tiles_at), job.given, plane_bytes);
    publish_to_engines();
    __syncthreads();
    const std::uint32_t decayed = sm90::inner_columns(shared_address(tiles_at) / 16);
    const std::uint32_t* const mine = job.given + plane_bytes / 4 + me() * 16;
    std::uint32_t x[4][4];
#pragma unroll
    for (int k = 0; k < 16; ++k) x[k / 4][k % 4] = mine[k];
    float y[tokens / 2];
#pragma unroll
    for (int i = 0; i < tokens / 2; ++i) y[i] = static_cast<float>(i) - static_cast<float>(me());
    sm90::begin_products();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      sm90::wgmma<E, false, true>(y, x[k], sm90::descriptor(decayed + static_cast<unsigned>(k) * 32 / 16));
    }
    sm90::commit_products();
    sm90::wait_products<0>();
    tell(job.said + me() * (tokens / 2), y);
  }
};

/// An output and a state of `n` columns: operands in registers times tiles, inner columns and inner rows; two groups
/// under way. In a cluster, where addresses have the block's rank.
template <class E, int n>
struct StateStep : Usual {
  static constexpr unsigned blocks = 2, cluster = 2, threads = 256, planes = n / 64;
  static constexpr unsigned of_tiles = 2 * planes * plane_bytes / 4, of_thread = n / 16 * 4 + 16;
  static constexpr unsigned words_given = blocks * (of_tiles + threads * of_thread);
  static constexpr unsigned words_said = blocks * threads * (32 + n / 2);
  static constexpr unsigned shared_bytes = tiles_at + 2 * planes * plane_bytes;
  static TILEMAMBA_DEVICE void run(const Job& job) {
    const std::uint32_t* const given = job.given + blockIdx.x * (of_tiles + threads * of_thread);
    fill(shared_address(tiles_at), given, of_tiles * 4);
    publish_to_engines();
    __syncthreads();
    const unsigned at = shared_address(tiles_at) / 16;
    const std::uint32_t c = sm90::inner_columns(at), b = sm90::inner_rows((at + planes * plane_bytes / 16) & 0x3fff);
    const std::uint32_t* const mine = given + of_tiles + me() * of_thread;
    std::uint32_t S[n / 16][4], x[4][4];
#pragma unroll
    for (int k = 0; k < n / 16; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) S[k][i] = mine[4 * k + i];
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) x[k][i] = mine[n / 4 + 4 * k + i];
    }
    float y[32], state[n / 2];
#pragma unroll
    for (int i = 0; i < n / 2; ++i) state[i] = static_cast<float>(i) - static_cast<float>(me());
    sm90::begin_products();
    sm90::wgmma<E, false, false>(y, S[0], sm90::descriptor(c));
#pragma unroll
    for (int k = 1; k < n / 16; ++k) {
      const unsigned step = static_cast<unsigned>(k / 4) * plane_bytes / 16 + static_cast<unsigned>(k % 4 * 32 / 16);
      sm90::wgmma<E, false, true>(y, S[k], sm90::descriptor(c + step));
    }
    sm90::commit_products();
    sm90::begin_products();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      sm90::wgmma<E, true, true>(state, x[k], sm90::descriptor(b + static_cast<unsigned>(k) * 2048 / 16));
    sm90::commit_products();
    sm90::wait_products<1>();
    std::uint32_t* const said = job.said + (blockIdx.x * threads + me()) * (32 + n / 2);
    tell(said, y);
    sm90::wait_products<0>();
    tell(said + 32, state);
  }
};

/// Sums of one term each, so that they are exact whatever is multiplied: subnormals, what overflows, infinities.
template <class E>
struct Terms : Usual {
  static constexpr unsigned words_given = plane_bytes / 4 + 128 * 4, words_said = 128 * (32 + 4);
  static TILEMAMBA_DEVICE void run(const Job& job) {
    fill(shared_address(tiles_at), job.given, plane_bytes);
    publish_to_engines();
    __syncthreads();
    const std::uint32_t* const mine = job.given + plane_bytes / 4 + me() * 4;
    const bool first = my_lane() % 4 == 0;  // of the inner dimension
    std::uint32_t a[4] = {first ? mine[0] & 0xffffu : 0, first ? mine[1] & 0xffffu : 0, 0, 0};
    float d[32], e[4] = {};
    sm90::begin_products();
    sm90::wgmma<E, false, false>(d, a, sm90::descriptor(sm90::inner_columns(shared_address(tiles_at) / 16)));
    sm90::commit_products();
    sm90::wait_products<0>();
    E::mma(e, a, mine[2], mine[3]);
    tell(job.said + me() * 36, d);
    tell(job.said + me() * 36 + 32, e);
  }
};

// -------------------------------------------------------------------------------------------------------------
// mma.sync

/// 16-bit elements.
template <class E>
struct WarpProduct : Usual {
  static constexpr unsigned words_given = 128 * 12, words_said = 128 * 4;
  static TILEMAMBA_DEVICE void run(const Job& job) {
    const std::uint32_t* const mine = job.given + me() * 12;
    float d[4] = {};
    for (int k = 0; k < 2; ++k) {
      const std::uint32_t a[4] = {mine[6 * k], mine[6 * k + 1], mine[6 * k + 2], mine[6 * k + 3]};
      E::mma(d, a, mine[6 * k + 4], mine[6 * k + 5]);
    }
    tell(job.said + me() * 4, d);
  }
};
/// tf32: whole products, and fp32 as three of them.
struct WarpProductTf32 : Usual {
  static constexpr unsigned words_given = 128 * 12, words_said = 128 * 8;
  static TILEMAMBA_DEVICE void run(const Job& job) {
    const std::uint32_t* const mine = job.given + me() * 12;
    float v[12];
#pragma unroll
    for (int i = 0; i < 12; ++i) v[i] = __uint_as_float(mine[i]);
    float d[4] = {1.0f, 2.0f, 3.0f, 4.0f}, e[4] = {};
    mma_tf32(d, {v[0], v[1], v[2], v[3]}, v[4], v[5]);
    const float2 a[4] = {{v[0], v[1]}, {v[2], v[3]}, {v[4], v[5]}, {v[6], v[7]}};
    F32::mma(e, a, {v[8], v[9]}, {v[10], v[11]});
    tell(job.said + me() * 8, d);
    tell(job.said + me() * 8 + 4, e);
  }
};
/// What the instruction makes of the bits that tf32 has not.
struct TermsTf32 : Usual {
  static constexpr unsigned words_given = 128 * 4, words_said = 128 * 4;
  static TILEMAMBA_DEVICE void run(const Job& job) {
    const std::uint32_t* const mine = job.given + me() * 4;
    const bool first = my_lane() % 4 == 0;
    float d[4] = {};
    mma_tf32(d, {first ? __uint_as_float(mine[0]) : 0.0f, first ? __uint_as_float(mine[1]) : 0.0f, 0.0f, 0.0f},
             __uint_as_float(mine[2]), __uint_as_float(mine[3]));
    tell(job.said + me() * 4, d);
  }
};

/// Tiles in shared memory as cuda-sm80 has them, read in its fragments: a b^T, a b, and the two with a as its
/// transpose.
template <class E>
struct Fragments : Usual {
  using Worker = sm80::Worker<E, sm80::Tiling{64, 64, 64, 1, 1}, true>;
  using Plane = typename Worker::template Plane<tile::Q, tile::N>;
  static constexpr unsigned words_given = 2 * 64 * 64 * E::size / 4, words_said = 4 * 128 * 4 * 8;
  static TILEMAMBA_DEVICE void run(const Job& job) {
    Worker w;
    w.warp = my_warp(), w.lane = my_lane();
    const Plane left(1024), right(1024 + Plane::bytes);
    for (int k = static_cast<int>(me()); k < 64 * 32; k += 128) {
      const auto* const pairs = reinterpret_cast<const typename E::Pair*>(job.given);
      left.pair(k / 32, k % 32 * 2) = pairs[k];
      right.pair(k / 32, k % 32 * 2) = pairs[64 * 32 + k];
    }
    __syncthreads();
    using Side = typename Worker::Side;
    for (int form = 0; form < 4; ++form) {
      float d[8][4] = {};
      for (int k = 0; k < 4; ++k) {
        typename E::Pair a[4], b[4];
        if (form < 2) {
          Worker::template load_rows<Side::a>(a, left, w.template rows_address<Side::a>(left, 0, 0), w.warp, k);
        } else {
          Worker::template load_columns<Side::a>(a, left, w.template columns_address<Side::a>(left, 0), k, w.warp);
        }
#pragma unroll
        for (int column = 0; column < 4; ++column) {
          if (form % 2 == 0) {
            Worker::template load_rows<Side::b>(b, right, w.template rows_address<Side::b>(right, 0, 0), column, k);
          } else {
            Worker::template load_columns<Side::b>(b, right, w.template columns_address<Side::b>(right, 0), k, column);
          }
          E::mma(d[2 * column], a, b[0], b[1]);
          E::mma(d[2 * column + 1], a, b[2], b[3]);
        }
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) tell(job.said + ((static_cast<unsigned>(form) * 128 + me()) * 8 + i) * 4, d[i]);
    }
  }
};

// ----------------------------------------------------------------------------------------------------- the copy engine

/// A tensor (2 batch rows, 50 tokens, 3 heads, 68 columns) whose rows have 72.
constexpr unsigned tensor_words = 2 * 50 * 3 * 72 / 2;
constexpr int corners = 24;
struct Corner {
  int column, token, head, batch;
};
/// Inside, at edges, beyond them, before them; the last columns are half of a piece of 16 bytes.
TILEMAMBA_DEVICE Corner corner(int k) {
  constexpr int columns[] = {0, 64, 8, -16, 24, 80}, tokens[] = {0, 33, -5, 50};
  const int column = columns[k % 6];
  return {column, tokens[k / 6], k % 4 == 3 ? 3 : k % 3, k % 2};
}
template <int rows>
struct Loads : Usual {
  static constexpr bool has_map = true;
  static constexpr unsigned box_tokens = rows;
  static constexpr unsigned words_given = tensor_words, words_said = corners * rows * 32;
  static TILEMAMBA_DEVICE void run(const Job& job) {
    const unsigned barrier = shared_address(0), at = shared_address(1024);
    if (me() == 0) {
      barrier_init(barrier, 1);
      publish_barriers();
      prefetch_map(job.map);
    }
    __syncthreads();
    for (int k = 0; k < corners; ++k) {
      const Corner its = corner(k);
      const unsigned to = at + static_cast<unsigned>(k % 3) * rows * 128;
      if (me() == 0) {
        expect_bytes(barrier, rows * 128);
        load_box(to, job.map, its.column, its.token, its.head, its.batch, barrier);
      }
      wait_phase(barrier, static_cast<unsigned>(k) & 1);
      tell(job.said + static_cast<unsigned>(k) * rows * 32, to, rows * 128);
      __syncthreads();
    }
  }
};
/// One box, from beyond an edge.
template <int column, int token, int head>
struct StoreFrom : Usual {
  static constexpr bool has_map = true;
  static constexpr unsigned box_tokens = 16;
  static constexpr unsigned words_given = 16 * 32, words_said = tensor_words;
  static TILEMAMBA_DEVICE void run(const Job& job) {
    fill(shared_address(1024), job.given, 16 * 128);
    publish_to_engines();
    __syncthreads();
    if (me() != 0) return;
    store_box(job.map, shared_address(1024), column, token, head, 0);
    commit_stores();
    wait_stores();
  }
};
template <int rows>
struct Stores : Usual {
  static constexpr bool has_map = true;
  static constexpr unsigned box_tokens = rows;
  static constexpr unsigned words_given = corners * rows * 32, words_said = tensor_words;
  static TILEMAMBA_DEVICE void run(const Job& job) {
    const unsigned at = shared_address(1024);
    for (int k = 0; k < corners; ++k) {
      const Corner its = {k % 6 * 16 % 72, k / 6 * 16 + k % 2, k % 3, k % 2};
      const unsigned from = at + static_cast<unsigned>(k % 3) * rows * 128;
      fill(from, job.given + static_cast<unsigned>(k) * rows * 32, rows * 128);
      publish_to_engines();
      __syncthreads();
      if (me() == 0) {
        store_box(job.map, from, its.column, its.token, its.head, its.batch);
        commit_stores();
        wait_stores_read();
        wait_stores();
      }
      __syncthreads();
    }
  }
};

/// What no device does.
enum class Wrong { column, place_of_box, place_of_words, beyond_memory };
template <Wrong what>
struct Refused : Usual {
  static constexpr bool has_map = true;
  static constexpr unsigned box_tokens = 16;
  static constexpr unsigned words_given = tensor_words, words_said = 4;
  static TILEMAMBA_DEVICE void run(const Job& job) {
    const unsigned barrier = shared_address(0), at = shared_address(1024);
    if (me() != 0) return;
    if constexpr (what == Wrong::column || what == Wrong::place_of_box) {
      barrier_init(barrier, 1);
      publish_barriers();
      expect_bytes(barrier, box_tokens * 128);
      load_box(what == Wrong::column ? at : at + 16, job.map, what == Wrong::column ? 3 : 0, 0, 0, 0, barrier);
      wait_phase(barrier, 0);
    } else {
      put_four(what == Wrong::place_of_words ? at + 8 : at + (1u << 18), job.given);
    }
    job.said[0] = 0;
  }
};

// ------------------------------------------------------------------------------------------------ barriers, clusters

/// A script of what happens to a barrier, and after each event whether it says that phases are done. A warp from 8 on
/// plays it.
enum Event : std::uint32_t { arrival, arrival_and_bytes, bytes_come, most_arrivals = 4 };
struct Phases : Usual {
  static constexpr unsigned threads = 288, words_given = 300, words_said = 300;
  static TILEMAMBA_DEVICE bool done(unsigned barrier, unsigned parity) {
#ifdef __CUDACC__
    unsigned is;
    asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}\n"
                 : "=r"(is)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return is != 0;
#else
    return machine::phase_done(barrier, parity);
#endif
  }
  static TILEMAMBA_DEVICE void run(const Job& job) {
    if (me() != 256) return;
    const unsigned barrier = shared_address(8), there = in_block(barrier, 0),
                   memory = in_block(shared_address(1024), 0);
    const int arrivals = static_cast<int>(job.given[0] % most_arrivals) + 1;
    barrier_init(barrier, arrivals);
    publish_barriers();
    // What is known of it: a script has events that no barrier can bear, for which another takes place.
    int pending = arrivals, expected = 0, brought = 0;
    unsigned phase = 0;
    const float v[4] = {1.0f, 2.0f, 3.0f, 4.0f};
    for (unsigned k = 0; k < words_said; ++k) {
      std::uint32_t event = job.given[k] / 16 % 3;
      if (pending == 0) event = bytes_come;  // all have arrived, bytes are to come
      if (event == bytes_come && pending > 0 && brought > expected) event = arrival;
      if (pending == 1 && event == arrival && brought > expected) event = arrival_and_bytes;
      if (event == bytes_come) {
        store_there(memory, v, there);
        ++brought;
      } else if (event == arrival_and_bytes) {
        expect_bytes(barrier, 16);
        ++expected, --pending;
      } else {
        arrive(barrier);
        --pending;
      }
      if (pending == 0 && expected == brought) {
        wait_phase(barrier, phase & 1);
        ++phase, pending = arrivals, expected = brought = 0;
      }
      job.said[k] = event | (done(barrier, 0) ? 16u : 0u) | (done(barrier, 1) ? 32u : 0u);
    }
    // The block's memory has to be there until its last bytes come.
    for (; pending > 1; --pending) arrive(barrier);
    if (pending == 1) brought > expected ? expect_bytes(barrier, 16) : arrive(barrier);
    for (; brought < expected; ++brought) store_there(memory, v, there);
    wait_phase(barrier, phase & 1);
  }
};

/// Blocks of a cluster send each other 16 bytes a thread, three rounds, and say when they have taken them.
template <int parts>
struct Exchange : Usual {
  static constexpr unsigned blocks = 2 * parts, cluster = parts, rounds = 3;
  static constexpr unsigned words_given = blocks * 128 * 4, words_said = blocks * rounds * (parts - 1) * 128 * 4;
  static TILEMAMBA_DEVICE void run(const Job& job) {
    const unsigned given = shared_address(0), taken = shared_address(8), at = shared_address(1024);
    const unsigned part = blockIdx.x % parts;
    constexpr unsigned from_one = 128 * 16;
    if (me() == 0) {
      barrier_init(given, 1);
      barrier_init(taken, parts - 1);
      publish_barriers();
      expect_bytes(given, (parts - 1) * from_one);
    }
    meet_cluster();
    const std::uint32_t* const mine = job.given + (blockIdx.x * 128 + me()) * 4;
    for (unsigned round = 0; round < rounds; ++round) {
      if (round > 0) wait_phase(taken, (round - 1) & 1);
      for (unsigned to = 1; to < parts; ++to) {
        const unsigned there = (part + to) % parts;
        float v[4];
        for (int i = 0; i < 4; ++i) v[i] = __uint_as_float(mine[i] ^ (round << 8 | to));
        store_there(in_block(at + (parts - 1 - to) * from_one + me() * 16, there), v, in_block(given, there));
      }
      wait_phase(given, round & 1);
      __syncthreads();
      if (me() == 0 && round + 1 < rounds) expect_bytes(given, (parts - 1) * from_one);
      std::uint32_t* const said = job.said + (blockIdx.x * rounds + round) * (parts - 1) * 128 * 4;
      for (unsigned from = 0; from < parts - 1; ++from) {
        const float4 v = load_shared_four(at + from * from_one + me() * 16);
        std::uint32_t* const its = said + (from * 128 + me()) * 4;
        its[0] = __float_as_uint(v.x), its[1] = __float_as_uint(v.y);
        its[2] = __float_as_uint(v.z), its[3] = __float_as_uint(v.w);
      }
      __syncthreads();
      if (me() < parts - 1) arrive_there(in_block(taken, (part + 1 + me()) % parts));
    }
    meet_cluster();
  }
};

/// A launch that starts early reads what the one before wrote late.
struct Launches : Usual {
  static constexpr int launches = 2;
  static constexpr unsigned words_given = 128, words_said = 256;
  static TILEMAMBA_DEVICE void run(const Job& job) {
    if (job.turn == 0) {
      let_next_launch_start();
      int turns = 0;
      for (int k = 0; k < 5000; ++k) turns += forgotten(1);
      job.said[me()] = job.given[me()] + static_cast<unsigned>(turns);
    } else {
      wait_for_last_launch();
      job.said[128 + me()] = job.said[127 - me()];
    }
  }
};

/// Some of a block's threads meet, or all, or a warp's.
struct Meetings : Usual {
  static constexpr unsigned threads = 256, words_given = 256, words_said = 256 * 5;
  static TILEMAMBA_DEVICE void run(const Job& job) {
    auto* const words = reinterpret_cast<std::uint32_t*>(shared_memory + 0);
    std::uint32_t* const said = job.said + me() * 5;
    const std::uint32_t mine = job.given[me()];
    words[me()] = mine;
    meet(1 + static_cast<int>(me() / 128), 128);
    said[0] = words[me() ^ 127];
    said[1] = static_cast<std::uint32_t>(__syncthreads_or(mine % 512 == 0));
    said[2] = __shfl_sync(0xffffffffu, mine, my_lane() * 7 % 32);
    said[3] = __shfl_up_sync(0xffffffffu, mine, 3);
    said[4] = __shfl_down_sync(0xffffffffu, mine, 5);
  }
};

// ------------------------------------------------------------------------------------------ words and matrices of a
// warp

/// Matrices whose rows lie anywhere.
struct Matrices : Usual {
  static constexpr unsigned pieces = 512, of_warp = pieces / 4;
  static constexpr unsigned words_given = pieces * 4 + 128 * 12, words_said = 128 * 8 + pieces * 4;
  static TILEMAMBA_DEVICE void run(const Job& job) {
    const unsigned at = shared_address(1024) + static_cast<unsigned>(my_warp()) * of_warp * 16;
    fill(shared_address(1024), job.given, pieces * 16);
    __syncthreads();
    const std::uint32_t* const mine = job.given + pieces * 4 + me() * 12;
    std::uint32_t r[2][4];
    ldmatrix(r[0], at + mine[0] % of_warp * 16);
    ldmatrix_transposed(r[1], at + mine[1] % of_warp * 16);
#pragma unroll
    for (int i = 0; i < 8; ++i) job.said[me() * 8 + static_cast<unsigned>(i)] = r[i / 4][i % 4];
    __syncthreads();
    const unsigned lane = static_cast<unsigned>(my_lane());
    stmatrix(at + lane * 13 % 32 * 32, mine[2], mine[3], mine[4], mine[5]);
    stmatrix_transposed(at + lane * 11 % 32 * 32 + 16, mine[6], mine[7], mine[8], mine[9]);
    __syncwarp();
    if (lane % 8 == 3) clear_shared(at + lane * 48);
    const std::uint32_t pair[2] = {mine[10], mine[11]};
    if (lane % 8 == 5) store_shared_words(at + lane * 48 + 8, pair);
    __syncthreads();
    tell(job.said + 128 * 8, shared_address(1024), pieces * 16);
  }
};

/// Four floats at a time, and one.
struct Fours : Usual {
  static constexpr unsigned words_given = 128 * 4, words_said = 128 * 5;
  static TILEMAMBA_DEVICE void run(const Job& job) {
    const unsigned at = shared_address(1024);
    float v[4];
    for (unsigned i = 0; i < 4; ++i) v[i] = __uint_as_float(job.given[me() * 4 + i]);
    store_shared_four(at + me() * 16, v);
    __syncthreads();
    const float4 four = load_shared_four(at + (me() ^ 5) * 16);
    tell(job.said + me() * 5, {four.x, four.y, four.z, four.w, load_shared(at + (me() * 20 & 2047))});
  }
};
/// Conversions and products of pairs.
struct Pairs : Usual {
  static constexpr unsigned words_given = 128 * 4, words_said = 128 * 4;
  static TILEMAMBA_DEVICE void run(const Job& job) {
    const std::uint32_t* const v = job.given + me() * 4;
    std::uint32_t* const said = job.said + me() * 4;
    said[0] = pack_bf16(__uint_as_float(v[0]), __uint_as_float(v[1]));
    said[1] = multiply_bf16(v[0], v[1]);
    said[2] = multiply_add_bf16(v[1], v[2], v[3]);
    said[3] = multiply_add_bf16(v[0], v[1], multiply_bf16(v[0], v[3]));
  }
};
struct PairsOfHalves : Usual {
  static constexpr unsigned words_given = 128 * 2, words_said = 128;
  static TILEMAMBA_DEVICE void run(const Job& job) {
    job.said[me()] = pack_f16(__uint_as_float(job.given[2 * me()]), __uint_as_float(job.given[2 * me() + 1]));
  }
};
struct Halves : Usual {
  static constexpr unsigned words_given = 128, words_said = 128 * 2;
  static TILEMAMBA_DEVICE void run(const Job& job) {
    const float2 v = unpack_f16(job.given[me()]);
    job.said[2 * me()] = __float_as_uint(v.x), job.said[2 * me() + 1] = __float_as_uint(v.y);
  }
};
struct Curves : Usual {
  static constexpr unsigned words_given = 128, words_said = 128 * 3;
  static TILEMAMBA_DEVICE void run(const Job& job) {
    const float v = __uint_as_float(job.given[me()]);
    job.said[3 * me()] = __float_as_uint(exp2_flushed(v));
    job.said[3 * me() + 1] = __float_as_uint(fast_exp2(v * 100.0f));
    job.said[3 * me() + 2] = __float_as_uint(fast_log2(v < 0.0f ? -v : v));
  }
};

// -------------------------------------------------------------------------------------------------------------
// launches

template <class T>
__global__ void __launch_bounds__(T::threads) perform(const __grid_constant__ Job job) {
  T::run(job);
}

std::string failed(const char* what, int error) {
  return std::string(what) + " failed with error " + std::to_string(error);
}

template <class T>
std::string launch(const Job& job) {
#ifdef __CUDACC__
  if (const cudaError_t error =
          cudaFuncSetAttribute(perform<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, T::shared_bytes))
    return failed("cudaFuncSetAttribute", error);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(T::blocks), config.blockDim = dim3(T::threads), config.dynamicSmemBytes = T::shared_bytes;
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim.x = T::cluster, attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = job.turn > 0;
  config.attrs = attributes, config.numAttrs = 2;
  const cudaError_t error = cudaLaunchKernelEx(&config, perform<T>, job);
  return error == cudaSuccess ? "" : failed("cudaLaunchKernelEx", error);
#else
  static std::uint64_t seed = 1;
  if (job.turn == 0) test::cuda::forget_launches();
  return test::cuda::run(
      {T::blocks, T::cluster, T::threads, T::shared_bytes, job.turn > 0}, [&] { perform<T>(job); }, seed++);
#endif
}

/// Memory of the device.
class Memory {
 public:
  explicit Memory(std::size_t words) : bytes_(words * 4), error_(cudaMalloc(&at_, bytes_)) {}
  ~Memory() { (void)cudaFree(at_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  [[nodiscard]] bool is_there() const { return error_ == cudaSuccess; }
  [[nodiscard]] std::uint32_t* words() const { return static_cast<std::uint32_t*>(at_); }
  [[nodiscard]] cudaError_t fill(const std::uint32_t* from) {
    return cudaMemcpy(at_, from, bytes_, cudaMemcpyHostToDevice);
  }
  [[nodiscard]] cudaError_t fetch(std::uint32_t* to) const {
    return cudaMemcpy(to, at_, bytes_, cudaMemcpyDeviceToHost);
  }

 private:
  void* at_ = nullptr;
  std::size_t bytes_;
  cudaError_t error_;
};

template <class T>
std::string run(const std::uint32_t* given, std::uint32_t* said) {
  Memory from(T::words_given), to(T::words_said);
  if (!from.is_there() || !to.is_there()) return "no memory";
  if (from.fill(given) != cudaSuccess || to.fill(said) != cudaSuccess) return "a copy to the device failed";
  Job job{from.words(), to.words(), {}, 0};
  if constexpr (T::has_map) {
    std::uint32_t* const tensor = T::words_given == tensor_words ? from.words() : to.words();
    const MapOf map{find_encoder(),    CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, tensor, {68, 50, 3, 2},
                    {432, 144, 21600}, {64, T::box_tokens, 1, 1}};
    if (map.encode == nullptr || !encode(map, job.map)) return "the map cannot be encoded";
  }
  for (; job.turn < T::launches; ++job.turn) {
    if (std::string error = launch<T>(job); !error.empty()) return error;
  }
  if (const cudaError_t error = cudaDeviceSynchronize()) return failed("the kernel", error);
  if (to.fetch(said) != cudaSuccess) return "a copy from the device failed";
  return "";
}

struct Runnable {
  Trial trial;
  std::string (*run)(const std::uint32_t*, std::uint32_t*);
};
template <class T>
constexpr Runnable exact(const char* name, Words given, Words said) {
  return {{name, Agreement::exact, given, said, T::words_given, T::words_said}, &run<T>};
}
template <class T>
constexpr Runnable refused(const char* name) {
  return {{name, Agreement::refused, Words::bits, Words::bits, T::words_given, T::words_said}, &run<T>};
}
template <class T>
constexpr Runnable sums(const char* name, Words given, int terms) {
  return {{name, Agreement::sums, given, Words::f32, T::words_given, T::words_said, terms}, &run<T>};
}

constexpr Runnable all[] = {
    exact<Scores<Bf16>>("wgmma, bf16, tiles of 64x128", Words::bf16_whole, Words::f32),
    exact<Scores<F16>>("wgmma, fp16, tiles of 64x128", Words::f16_whole, Words::f32),
    exact<StateStep<Bf16, 64>>("wgmma, bf16, registers, N 64", Words::bf16_whole, Words::f32),
    exact<StateStep<Bf16, 128>>("wgmma, bf16, registers, N 128", Words::bf16_whole, Words::f32),
    exact<StateStep<F16, 64>>("wgmma, fp16, registers, N 64", Words::f16_whole, Words::f32),
    exact<StateStep<F16, 128>>("wgmma, fp16, registers, N 128", Words::f16_whole, Words::f32),
    exact<OwnTokens<Bf16, 16>>("wgmma, bf16, 16 tokens", Words::bf16_whole, Words::f32),
    exact<OwnTokens<Bf16, 32>>("wgmma, bf16, 32 tokens", Words::bf16_whole, Words::f32),
    exact<OwnTokens<F16, 16>>("wgmma, fp16, 16 tokens", Words::f16_whole, Words::f32),
    exact<OwnTokens<F16, 32>>("wgmma, fp16, 32 tokens", Words::f16_whole, Words::f32),
    exact<Terms<Bf16>>("single products, bf16", Words::bf16, Words::f32),
    exact<Terms<F16>>("single products, fp16", Words::f16, Words::f32),
    exact<WarpProduct<Bf16>>("mma.sync, bf16", Words::bf16_whole, Words::f32),
    exact<WarpProduct<F16>>("mma.sync, fp16", Words::f16_whole, Words::f32),
    exact<WarpProductTf32>("mma.sync, tf32", Words::f32_whole, Words::f32),
    exact<TermsTf32>("single products, tf32", Words::f32, Words::f32),
    exact<Fragments<Bf16>>("tiles of mma.sync, bf16", Words::bf16_whole, Words::f32),
    exact<Fragments<F16>>("tiles of mma.sync, fp16", Words::f16_whole, Words::f32),
    exact<Fragments<F32>>("tiles of mma.sync, fp32", Words::f32_whole, Words::f32),
    exact<Loads<64>>("loads of 64 tokens", Words::bits, Words::bits),
    exact<Loads<32>>("loads of 32 tokens", Words::bits, Words::bits),
    exact<Loads<16>>("loads of 16 tokens", Words::bits, Words::bits),
    exact<Stores<64>>("stores of 64 tokens", Words::bits, Words::bits),
    exact<Stores<32>>("stores of 32 tokens", Words::bits, Words::bits),
    exact<Stores<16>>("stores of 16 tokens", Words::bits, Words::bits),
    exact<StoreFrom<80, 0, 0>>("a store from column 80", Words::bits, Words::bits),
    exact<StoreFrom<0, 50, 0>>("a store from token 50", Words::bits, Words::bits),
    exact<StoreFrom<0, 0, 3>>("a store to head 3", Words::bits, Words::bits),
    exact<Phases>("phases of a barrier", Words::bits, Words::bits),
    exact<Exchange<2>>("clusters of two", Words::bits, Words::bits),
    exact<Exchange<4>>("clusters of four", Words::bits, Words::bits),
    exact<Launches>("launches in a sequence", Words::bits, Words::bits),
    exact<Meetings>("meetings", Words::bits, Words::bits),
    exact<Matrices>("ldmatrix, stmatrix", Words::bits, Words::bits),
    exact<Fours>("four words", Words::bits, Words::bits),
    exact<Pairs>("pairs of bf16", Words::bf16, Words::bf16),
    exact<PairsOfHalves>("pairs of fp16", Words::f32, Words::f16),
    exact<Halves>("fp16 made wider", Words::f16, Words::f32),
    sums<Scores<Bf16>>("wgmma, bf16, real tiles", Words::bf16_usual, 8),
    sums<Scores<F16>>("wgmma, fp16, real tiles", Words::f16_usual, 8),
    sums<WarpProduct<Bf16>>("mma.sync, bf16, real", Words::bf16_usual, 2),
    sums<WarpProduct<F16>>("mma.sync, fp16, real", Words::f16_usual, 2),
    sums<Fragments<F32>>("tiles of mma.sync, fp32, real", Words::f32_usual, 24),
    refused<StoreFrom<-16, 0, 0>>("a store from column -16"),
    refused<StoreFrom<0, -5, 0>>("a store from token -5"),
    refused<Refused<Wrong::column>>("boxes from a column that begins no 16 bytes"),
    refused<Refused<Wrong::place_of_box>>("boxes to a place that begins no 128 bytes"),
    refused<Refused<Wrong::place_of_words>>("16 bytes to a place that begins no 16 bytes"),
    refused<Refused<Wrong::beyond_memory>>("words beyond shared memory"),
    {{"exp2 and log2", Agreement::curves, Words::f32_usual, Words::f32, Curves::words_given, Curves::words_said},
     &run<Curves>},
};

}  // namespace
}  // namespace tilemamba::cuda::calibration

namespace tilemamba::test::cuda {

namespace {
inline const Calibrated& calibrated() {
  using ::tilemamba::cuda::calibration::all;
  static const auto trials = [] {
    std::array<Trial, std::size(all)> its{};
    for (std::size_t k = 0; k < its.size(); ++k) its[k] = all[k].trial;
    return its;
  }();
  static const Calibrated instance = {trials, [](std::size_t trial, const std::uint32_t* given, std::uint32_t* said) {
                                        return all[trial].run(given, said);
                                      }};
  return instance;
}
}  // namespace

}  // namespace tilemamba::test::cuda
