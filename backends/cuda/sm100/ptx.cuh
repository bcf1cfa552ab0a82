// SPDX-License-Identifier: Apache-2.0
/// @file
/// One wrapper for each instruction of sm_100a that sm_90a has not.
///
/// Tensor memory's addresses are in descriptor.hpp. Loads, stores and products are asynchronous: a thread waits for its
/// own loads and stores (wait_tensor_loads, wait_tensor_stores), for products at the barrier that they were committed
/// to. What crosses threads goes fence_before_sync, a barrier, fence_after_sync.
#pragma once

#include "backends/cuda/common/element.cuh"
#include "backends/cuda/sm100/descriptor.hpp"

namespace tilemamba::cuda::sm100 {

// -------------------------------------------------------------------------------------------------------------------
// tensor memory. All lanes of a warp

/// `columns` (a power of two from 32 to 512) of all lanes; their address goes to shared memory at `to`. Waits until so
/// many are free.
TILEMAMBA_DEVICE void tensor_allocate(unsigned to, unsigned columns) {
  asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(to), "r"(columns) : "memory");
}
/// This block allocates nothing more.
TILEMAMBA_DEVICE void tensor_relinquish() {
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
}
/// By the warp that allocated, before the block ends.
TILEMAMBA_DEVICE void tensor_release(unsigned tensor, unsigned columns) {
  asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(tensor), "r"(columns) : "memory");
}

#define TILEMAMBA_NAMES_8 "%0,%1,%2,%3,%4,%5,%6,%7"
#define TILEMAMBA_NAMES_16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define TILEMAMBA_NAMES_32 TILEMAMBA_NAMES_16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define TILEMAMBA_NAMES_64                                           \
  TILEMAMBA_NAMES_32                                                 \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47" \
  ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define TILEMAMBA_EIGHT(how, r, k) \
  how(r[k]), how(r[k + 1]), how(r[k + 2]), how(r[k + 3]), how(r[k + 4]), how(r[k + 5]), how(r[k + 6]), how(r[k + 7])
#define TILEMAMBA_STEP(how, r, k) how(r[k][0]), how(r[k][1]), how(r[k][2]), how(r[k][3])
#define TILEMAMBA_STEPS_4(how, r, k) \
  TILEMAMBA_STEP(how, r, k), TILEMAMBA_STEP(how, r, k + 1), TILEMAMBA_STEP(how, r, k + 2), TILEMAMBA_STEP(how, r, k + 3)
#define TILEMAMBA_REGISTERS_32(how, r) \
  TILEMAMBA_EIGHT(how, r, 0), TILEMAMBA_EIGHT(how, r, 8), TILEMAMBA_EIGHT(how, r, 16), TILEMAMBA_EIGHT(how, r, 24)
#define TILEMAMBA_REGISTERS_64(how, r)                                                      \
  TILEMAMBA_REGISTERS_32(how, r), TILEMAMBA_EIGHT(how, r, 32), TILEMAMBA_EIGHT(how, r, 40), \
      TILEMAMBA_EIGHT(how, r, 48), TILEMAMBA_EIGHT(how, r, 56)

/// 16 lanes from the address on, `count` / 4 times eight columns: of every eight, lane l of the warp has columns
/// 2 (l % 4) and the next, of row l / 4 (registers 0, 1) and of row l / 4 + 8 (registers 2, 3). So wgmma has its
/// accumulators. The lanes are those of the warp's quarter of tensor memory.
template <int count>
TILEMAMBA_DEVICE void load_fragments(float (&r)[count], unsigned from) {
  static_assert(count == 8 || count == 16 || count == 32 || count == 64);
  if constexpr (count == 8) {
    asm volatile("tcgen05.ld.sync.aligned.16x256b.x2.b32 {" TILEMAMBA_NAMES_8 "}, [%8];"
                 : TILEMAMBA_EIGHT("=f", r, 0)
                 : "r"(from)
                 : "memory");
  } else if constexpr (count == 16) {
    asm volatile("tcgen05.ld.sync.aligned.16x256b.x4.b32 {" TILEMAMBA_NAMES_16 "}, [%16];"
                 : TILEMAMBA_EIGHT("=f", r, 0), TILEMAMBA_EIGHT("=f", r, 8)
                 : "r"(from)
                 : "memory");
  } else if constexpr (count == 32) {
    asm volatile("tcgen05.ld.sync.aligned.16x256b.x8.b32 {" TILEMAMBA_NAMES_32 "}, [%32];"
                 : TILEMAMBA_REGISTERS_32("=f", r)
                 : "r"(from)
                 : "memory");
  } else {
    asm volatile("tcgen05.ld.sync.aligned.16x256b.x16.b32 {" TILEMAMBA_NAMES_64 "}, [%64];"
                 : TILEMAMBA_REGISTERS_64("=f", r)
                 : "r"(from)
                 : "memory");
  }
}
/// The other way.
template <int count>
TILEMAMBA_DEVICE void store_fragments(unsigned to, const float (&r)[count]) {
  static_assert(count == 32 || count == 64);
  if constexpr (count == 32) {
    asm volatile("tcgen05.st.sync.aligned.16x256b.x8.b32 [%32], {" TILEMAMBA_NAMES_32
                 "};" ::TILEMAMBA_REGISTERS_32("f", r),
                 "r"(to)
                 : "memory");
  } else {
    asm volatile("tcgen05.st.sync.aligned.16x256b.x16.b32 [%64], {" TILEMAMBA_NAMES_64
                 "};" ::TILEMAMBA_REGISTERS_64("f", r),
                 "r"(to)
                 : "memory");
  }
}
/// An operand: pairs of 16-bit elements, a column a pair: 16 lanes, `steps` times eight columns, which are 16 elements
/// of the inner dimension. Of every four columns lane l of the warp has column l % 4 of row l / 4 and of row l / 4 + 8:
/// so wgmma, mma.sync and ldmatrix have an operand's registers.
template <int steps>
TILEMAMBA_DEVICE void store_operand(unsigned to, const std::uint32_t (&r)[steps][4]) {
  static_assert(steps == 4 || steps == 8);
  if constexpr (steps == 4) {
    asm volatile("tcgen05.st.sync.aligned.16x128b.x8.b32 [%16], {" TILEMAMBA_NAMES_16
                 "};" ::TILEMAMBA_STEPS_4("r", r, 0),
                 "r"(to)
                 : "memory");
  } else {
    asm volatile("tcgen05.st.sync.aligned.16x128b.x16.b32 [%32], {" TILEMAMBA_NAMES_32
                 "};" ::TILEMAMBA_STEPS_4("r", r, 0),
                 TILEMAMBA_STEPS_4("r", r, 4), "r"(to)
                 : "memory");
  }
}

#undef TILEMAMBA_REGISTERS_64
#undef TILEMAMBA_REGISTERS_32
#undef TILEMAMBA_STEPS_4
#undef TILEMAMBA_STEP
#undef TILEMAMBA_EIGHT
#undef TILEMAMBA_NAMES_64
#undef TILEMAMBA_NAMES_32
#undef TILEMAMBA_NAMES_16
#undef TILEMAMBA_NAMES_8

/// Until what this thread has loaded is in its registers.
TILEMAMBA_DEVICE void wait_tensor_loads() { asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory"); }
/// Until what this thread has stored is there.
TILEMAMBA_DEVICE void wait_tensor_stores() { asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory"); }

// -------------------------------------------------------------------------------------------------------------------
// order among threads

TILEMAMBA_DEVICE void fence_before_sync() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
TILEMAMBA_DEVICE void fence_after_sync() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }
/// True in one lane of the warp, always the same.
TILEMAMBA_DEVICE bool elect() {
  std::uint32_t elected;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}\n" : "=r"(elected)::"memory");
  return elected != 0;
}

// -------------------------------------------------------------------------------------------------------------------
// products, by one thread: 64 rows, 16 of the inner dimension. Those of one shape and one result are done in their
// order

/// d = (accumulate: d +) a b; a in tensor memory.
template <bool accumulate>
TILEMAMBA_DEVICE void product_of_tensor(unsigned d, unsigned a, std::uint64_t b, std::uint32_t instruction) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\ntcgen05.mma.cta_group::1.kind::f16 [%0], [%1], %2, %3, p;\n}\n" ::"r"(
          d),
      "r"(a), "l"(b), "r"(instruction), "n"(accumulate ? 1 : 0)
      : "memory");
}
/// The same with both from shared memory.
template <bool accumulate>
TILEMAMBA_DEVICE void product_of_shared(unsigned d, std::uint64_t a, std::uint64_t b, std::uint32_t instruction) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\ntcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p;\n}\n" ::"r"(d),
      "l"(a), "l"(b), "r"(instruction), "n"(accumulate ? 1 : 0)
      : "memory");
}
/// Arrives once at the barrier when all products that this thread has issued so far are done.
TILEMAMBA_DEVICE void commit_products(unsigned barrier) {
  asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier) : "memory");
}

}  // namespace tilemamba::cuda::sm100
