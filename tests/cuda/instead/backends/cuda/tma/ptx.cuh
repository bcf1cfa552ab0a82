// SPDX-License-Identifier: Apache-2.0
/// @file
/// The wrappers of backends/cuda/tma/ptx.cuh for a machine that the host plays.
#pragma once

#include <cuda.h>

#include "backends/cuda/common/element.cuh"

namespace tilemamba::cuda::tma {

// barriers
inline void barrier_init(unsigned barrier, int arrivals) { machine::barrier_init(barrier, arrivals); }
inline void publish_barriers() { machine::publish_barriers(); }
inline void arrive(unsigned barrier) { machine::arrive(barrier); }
inline void expect_bytes(unsigned barrier, unsigned bytes) { machine::arrive(barrier, bytes); }
inline void wait_phase(unsigned barrier, unsigned parity) { machine::wait_phase(barrier, parity); }
inline void publish_to_engines() { machine::publish_to_engines(); }

// the copy engine
inline const machine::TensorMap& tensor_map(const CUtensorMap& map) {
  return *reinterpret_cast<const machine::TensorMap*>(&map);
}
inline void load_box(unsigned to, const CUtensorMap& map, int column, int token, int head, int batch,
                     unsigned barrier) {
  machine::load_box(to, tensor_map(map), {column, token, head, batch}, barrier);
}
inline void store_box(const CUtensorMap& map, unsigned from, int column, int token, int head, int batch) {
  machine::store_box(tensor_map(map), from, {column, token, head, batch});
}
inline void commit_stores() { machine::commit_stores(); }
inline void wait_stores_read() { machine::wait_stores(); }
inline void wait_stores() { machine::wait_stores(); }
inline void bring_to_l2(const void*) {}
inline void prefetch_map(const CUtensorMap&) {}

// clusters
inline int rank_in_cluster() { return static_cast<int>(machine::shared_address() >> machine::rank_bits); }
inline unsigned in_block(unsigned address, unsigned rank) {
  return (address & ((1u << machine::rank_bits) - 1)) | rank << machine::rank_bits;
}
inline void arrive_there(unsigned barrier) { machine::arrive(barrier); }
inline void store_there(unsigned to, const float* v, unsigned barrier) { machine::store_there(to, v, barrier); }
inline float4 load_shared_four(unsigned address) {
  float4 v;
  machine::read_shared(address, &v, sizeof(v));
  return v;
}
inline void store_shared_four(unsigned address, const float* v) { machine::write_shared(address, v, 16); }
inline void load_shared_words(std::uint32_t (&r)[4], unsigned address) { machine::read_shared(address, r, sizeof(r)); }
inline void store_shared_words(unsigned address, const std::uint32_t (&r)[4]) {
  machine::write_shared(address, r, sizeof(r));
}
inline void store_shared_words(unsigned address, const std::uint32_t (&r)[2]) {
  machine::write_shared(address, r, sizeof(r));
}
inline void clear_shared(unsigned address) {
  const std::uint32_t zeros[4] = {};
  machine::write_shared(address, zeros, sizeof(zeros));
}
inline void arrive_at_cluster() { machine::arrive_at_cluster(); }
inline void wait_for_cluster() { machine::wait_for_cluster(); }
inline void leave_cluster() { machine::arrive_at_cluster(); }
inline void meet_cluster() { arrive_at_cluster(), wait_for_cluster(); }

// launches in a sequence
inline void let_next_launch_start() {}
inline void wait_for_last_launch() { machine::wait_for_last_launch(); }

// registers
template <int registers>
void take_registers() {}
template <int registers>
void give_registers() {}
template <int registers, int before>
void set_registers() {}
template <class T>
T forgotten(T value) {
  return value;
}

inline float fast_exp2(float x) { return exp2_flushed(x); }
inline float fast_log2(float x) { return std::log2(flushed(x)); }

// Rounded to odd: rounded once more to fewer digits, it is as if it had been rounded once.
inline double sum_to_odd(double a, double b) {
  double sum = a + b;
  if (!std::isfinite(sum)) return sum;
  const double of_b = sum - a, lost = (a - (sum - of_b)) + (b - of_b);
  if (lost == 0.0) return sum;
  if ((lost > 0.0) != (sum > 0.0)) sum = std::nextafter(sum, 0.0);
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(sum) | 1u);
}
inline float to_odd(double v) {
  const auto nearest = static_cast<float>(v);
  if (nearest == v || std::isnan(nearest)) return nearest;
  const float cut = std::fabs(nearest) > std::fabs(v) ? std::nextafter(nearest, 0.0f) : nearest;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(cut) | 1u);
}
inline std::uint32_t each_bf16(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  const auto one = [&](int shift) {
    const auto its = [&](std::uint32_t v) { return double{tile::from_bf16(static_cast<std::uint16_t>(v >> shift))}; };
    return static_cast<std::uint32_t>(tile::to_bf16(to_odd(sum_to_odd(its(a) * its(b), its(c))))) << shift;
  };
  return one(0) | one(16);
}
inline std::uint32_t multiply_bf16(std::uint32_t a, std::uint32_t b) { return each_bf16(a, b, 0x80008000u); }
inline std::uint32_t multiply_add_bf16(std::uint32_t a, std::uint32_t b, std::uint32_t c) { return each_bf16(a, b, c); }

inline void stmatrix(unsigned address, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  machine::store_matrices(address, {a, b, c, d}, false);
}
inline void stmatrix_transposed(unsigned address, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  machine::store_matrices(address, {a, b, c, d}, true);
}

}  // namespace tilemamba::cuda::tma
