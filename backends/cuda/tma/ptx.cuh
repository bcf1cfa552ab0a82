// SPDX-License-Identifier: Apache-2.0
/// @file
/// One wrapper for each instruction of sm_90 and later that C++ has no word for.
///
/// Tiles that the copy engine moves and tensor cores read are planes of 64 rows of 128 bytes with the 128-byte swizzle:
/// the 16-byte piece c of row r lies at place c ^ (r & 7).
#pragma once

#include <cuda.h>

#include "backends/cuda/common/element.cuh"

namespace tilemamba::cuda::tma {

// -------------------------------------------------------------------------------------------------------------------
// barriers

TILEMAMBA_DEVICE void barrier_init(unsigned barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
/// So that the copy engine sees what was initialised.
TILEMAMBA_DEVICE void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
TILEMAMBA_DEVICE void arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// Arrives, and lets the phase wait for so many bytes more.
TILEMAMBA_DEVICE void expect_bytes(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
TILEMAMBA_DEVICE void wait_phase(unsigned barrier, unsigned parity) {
  asm volatile(
      "{\n.reg .pred p;\nagain: mbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n@p bra done;\nbra "
      "again;\ndone:\n}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
/// What this thread wrote to shared memory may be read by the copy engine and by tensor cores.
TILEMAMBA_DEVICE void publish_to_engines() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ------------------------------------------------------------------------------------------------------------ the copy
// engine

/// A box of (column, token, head, batch row); what is outside of the tensor becomes zeros.
TILEMAMBA_DEVICE void load_box(unsigned to, const CUtensorMap& map, int column, int token, int head, int batch,
                               unsigned barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3,%4,%5,%6}], [%2];" ::
          "r"(to),
      "l"(&map), "r"(barrier), "r"(column), "r"(token), "r"(head), "r"(batch)
      : "memory");
}
/// The other way; what is outside of the tensor stays as it is.
TILEMAMBA_DEVICE void store_box(const CUtensorMap& map, unsigned from, int column, int token, int head, int batch) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2,%3,%4,%5}], [%1];" ::"l"(&map),
               "r"(from), "r"(column), "r"(token), "r"(head), "r"(batch)
               : "memory");
}
TILEMAMBA_DEVICE void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Until this thread's stores no longer need their shared memory.
TILEMAMBA_DEVICE void wait_stores_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
TILEMAMBA_DEVICE void wait_stores() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
/// Asks for the line of L2 that this is in; waits for nothing.
TILEMAMBA_DEVICE void bring_to_l2(const void* place) { asm volatile("prefetch.global.L2 [%0];" ::"l"(place)); }
TILEMAMBA_DEVICE void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// ---------------------------------------------------------------------------------------------------------------------
// clusters

/// Of this block.
TILEMAMBA_DEVICE int rank_in_cluster() {
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
/// Where `address` of this block's shared memory is in block `rank` of the cluster.
TILEMAMBA_DEVICE unsigned in_block(unsigned address, unsigned rank) {
  unsigned there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}
/// At a barrier of another block.
TILEMAMBA_DEVICE void arrive_there(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// 16 bytes into another block's shared memory, in the background; its barrier counts them, and who has waited for them
/// there sees them.
TILEMAMBA_DEVICE void store_there(unsigned to, const float* v, unsigned barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1,%2,%3,%4}, [%5];" ::"r"(to),
               "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]), "r"(barrier)
               : "memory");
}
TILEMAMBA_DEVICE float4 load_shared_four(unsigned address) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address)
               : "memory");
  return v;
}
TILEMAMBA_DEVICE void store_shared_four(unsigned address, const float* v) {
  asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(address), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3])
               : "memory");
}
TILEMAMBA_DEVICE void load_shared_words(std::uint32_t (&r)[4], unsigned address) {
  asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
TILEMAMBA_DEVICE void store_shared_words(unsigned address, const std::uint32_t (&r)[4]) {
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}
/// 16 bytes become zeros.
TILEMAMBA_DEVICE void clear_shared(unsigned address) {
  asm volatile("st.shared.v4.b32 [%0], {%1,%1,%1,%1};" ::"r"(address), "r"(0) : "memory");
}
TILEMAMBA_DEVICE void store_shared_words(unsigned address, const std::uint32_t (&r)[2]) {
  asm volatile("st.shared.v2.b32 [%0], {%1,%2};" ::"r"(address), "r"(r[0]), "r"(r[1]) : "memory");
}
/// All threads of the cluster arrive, and have met when each has waited: it sees the barriers that others had
/// published.
TILEMAMBA_DEVICE void arrive_at_cluster() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
TILEMAMBA_DEVICE void wait_for_cluster() { asm volatile("barrier.cluster.wait;" ::: "memory"); }
/// Arrives; who has waited sees all that this thread did before.
TILEMAMBA_DEVICE void leave_cluster() { asm volatile("barrier.cluster.arrive;" ::: "memory"); }
/// That, and waits.
TILEMAMBA_DEVICE void meet_cluster() { asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory"); }

// ------------------------------------------------------------------------------------------------------ launches in a
// sequence

/// The next launch may start its blocks once all blocks of this one have said so.
TILEMAMBA_DEVICE void let_next_launch_start() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
/// Until the launch before is complete and what it wrote can be read.
TILEMAMBA_DEVICE void wait_for_last_launch() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// ------------------------------------------------------------------------------------------------------------------
// registers

template <int registers>
TILEMAMBA_DEVICE void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
TILEMAMBA_DEVICE void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

/// From the `before` that a block starts with.
template <int registers, int before>
TILEMAMBA_DEVICE void set_registers() {
  if constexpr (registers > before) {
    take_registers<registers>();
  } else {
    give_registers<registers>();
  }
}

/// The same value, of which the compiler knows nothing: what it derived from it before is not worth keeping in
/// registers.
template <class T>
TILEMAMBA_DEVICE T forgotten(T value) {
  asm volatile("" : "+r"(value));
  return value;
}

TILEMAMBA_DEVICE float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/// Minus infinity for 0.
TILEMAMBA_DEVICE float fast_log2(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Pairs of bf16, each result rounded once.
TILEMAMBA_DEVICE std::uint32_t multiply_bf16(std::uint32_t a, std::uint32_t b) {
  std::uint32_t r;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}
/// a b + c
TILEMAMBA_DEVICE std::uint32_t multiply_add_bf16(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  std::uint32_t r;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}

/// Four 8x8 matrices of 16-bit elements, as ldmatrix loads them.
TILEMAMBA_DEVICE void stmatrix(unsigned address, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(a), "r"(b), "r"(c),
               "r"(d)
               : "memory");
}
TILEMAMBA_DEVICE void stmatrix_transposed(unsigned address, std::uint32_t a, std::uint32_t b, std::uint32_t c,
                                          std::uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(a), "r"(b),
               "r"(c), "r"(d)
               : "memory");
}

}  // namespace tilemamba::cuda::tma
