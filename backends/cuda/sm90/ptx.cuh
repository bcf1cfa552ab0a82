// SPDX-License-Identifier: Apache-2.0
/// @file
/// One wrapper for each instruction of sm_90a that no later architecture has: wgmma.
#pragma once

#include "backends/cuda/common/element.cuh"

namespace tilemamba::cuda::sm90 {

TILEMAMBA_DEVICE void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
TILEMAMBA_DEVICE void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int pending>
TILEMAMBA_DEVICE void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

TILEMAMBA_DEVICE std::uint64_t two_words(std::uint32_t low, std::uint32_t high) {
  std::uint64_t d;
  asm("mov.b64 %0, {%1,%2};" : "=l"(d) : "r"(low), "r"(high));
  return d;
}

#define TILEMAMBA_NAMES_8 "{%0,%1,%2,%3,%4,%5,%6,%7}"
#define TILEMAMBA_NAMES_16 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}"
#define TILEMAMBA_NAMES_32                                                                                           \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%" \
  "30,%31}"
#define TILEMAMBA_NAMES_64                                                                                            \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%"  \
  "30,%31,"                                                                                                           \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%" \
  "60,"                                                                                                               \
  "%61,%62,%63}"
#define TILEMAMBA_NAMES_128                                                      \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                      \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"             \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"             \
  "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,"             \
  "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"             \
  "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,"             \
  "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111," \
  "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127}"
#define TILEMAMBA_EIGHT(d, k)                                                                                 \
  "+f"(d[k]), "+f"(d[k + 1]), "+f"(d[k + 2]), "+f"(d[k + 3]), "+f"(d[k + 4]), "+f"(d[k + 5]), "+f"(d[k + 6]), \
      "+f"(d[k + 7])
#define TILEMAMBA_REGISTERS_8(d) TILEMAMBA_EIGHT(d, 0)
#define TILEMAMBA_REGISTERS_16(d) TILEMAMBA_EIGHT(d, 0), TILEMAMBA_EIGHT(d, 8)
#define TILEMAMBA_REGISTERS_32(d) \
  TILEMAMBA_EIGHT(d, 0), TILEMAMBA_EIGHT(d, 8), TILEMAMBA_EIGHT(d, 16), TILEMAMBA_EIGHT(d, 24)
#define TILEMAMBA_REGISTERS_64(d)                                                                    \
  TILEMAMBA_REGISTERS_32(d), TILEMAMBA_EIGHT(d, 32), TILEMAMBA_EIGHT(d, 40), TILEMAMBA_EIGHT(d, 48), \
      TILEMAMBA_EIGHT(d, 56)
#define TILEMAMBA_REGISTERS_128(d)                                                                      \
  TILEMAMBA_REGISTERS_64(d), TILEMAMBA_EIGHT(d, 64), TILEMAMBA_EIGHT(d, 72), TILEMAMBA_EIGHT(d, 80),    \
      TILEMAMBA_EIGHT(d, 88), TILEMAMBA_EIGHT(d, 96), TILEMAMBA_EIGHT(d, 104), TILEMAMBA_EIGHT(d, 112), \
      TILEMAMBA_EIGHT(d, 120)

/// d = (accumulate: d +) a b, d being 64 x columns; a from registers, 64 x 16; b of 16 inner rows (transposed) or
/// columns.
#define TILEMAMBA_WGMMA(columns, type, names, registers, A0, A1, A2, A3, B, ACCUMULATE, TRANSPOSED)              \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ACCUMULATE ", 0;\nwgmma.mma_async.sync.aligned.m64n" columns  \
               "k16.f32." type "." type " " names ", {" A0 "," A1 "," A2 "," A3 "}, " B ", p, 1, 1, " TRANSPOSED \
               ";\n}\n"                                                                                          \
               : registers(d)                                                                                    \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(accumulate ? 1 : 0), "n"(transposed ? 1 : 0))

template <class E, bool transposed, bool accumulate>
TILEMAMBA_DEVICE void wgmma(float (&d)[8], const std::uint32_t (&a)[4], std::uint64_t b) {
  if constexpr (E::dtype == DType::bf16) {
    TILEMAMBA_WGMMA("16", "bf16", TILEMAMBA_NAMES_8, TILEMAMBA_REGISTERS_8, "%8", "%9", "%10", "%11", "%12", "%13",
                    "%14");
  } else {
    TILEMAMBA_WGMMA("16", "f16", TILEMAMBA_NAMES_8, TILEMAMBA_REGISTERS_8, "%8", "%9", "%10", "%11", "%12", "%13",
                    "%14");
  }
}
template <class E, bool transposed, bool accumulate>
TILEMAMBA_DEVICE void wgmma(float (&d)[16], const std::uint32_t (&a)[4], std::uint64_t b) {
  if constexpr (E::dtype == DType::bf16) {
    TILEMAMBA_WGMMA("32", "bf16", TILEMAMBA_NAMES_16, TILEMAMBA_REGISTERS_16, "%16", "%17", "%18", "%19", "%20", "%21",
                    "%22");
  } else {
    TILEMAMBA_WGMMA("32", "f16", TILEMAMBA_NAMES_16, TILEMAMBA_REGISTERS_16, "%16", "%17", "%18", "%19", "%20", "%21",
                    "%22");
  }
}
template <class E, bool transposed, bool accumulate>
TILEMAMBA_DEVICE void wgmma(float (&d)[32], const std::uint32_t (&a)[4], std::uint64_t b) {
  if constexpr (E::dtype == DType::bf16) {
    TILEMAMBA_WGMMA("64", "bf16", TILEMAMBA_NAMES_32, TILEMAMBA_REGISTERS_32, "%32", "%33", "%34", "%35", "%36", "%37",
                    "%38");
  } else {
    TILEMAMBA_WGMMA("64", "f16", TILEMAMBA_NAMES_32, TILEMAMBA_REGISTERS_32, "%32", "%33", "%34", "%35", "%36", "%37",
                    "%38");
  }
}
template <class E, bool transposed, bool accumulate>
TILEMAMBA_DEVICE void wgmma(float (&d)[64], const std::uint32_t (&a)[4], std::uint64_t b) {
  if constexpr (E::dtype == DType::bf16) {
    TILEMAMBA_WGMMA("128", "bf16", TILEMAMBA_NAMES_64, TILEMAMBA_REGISTERS_64, "%64", "%65", "%66", "%67", "%68", "%69",
                    "%70");
  } else {
    TILEMAMBA_WGMMA("128", "f16", TILEMAMBA_NAMES_64, TILEMAMBA_REGISTERS_64, "%64", "%65", "%66", "%67", "%68", "%69",
                    "%70");
  }
}
template <class E, bool transposed, bool accumulate>
TILEMAMBA_DEVICE void wgmma(float (&d)[128], const std::uint32_t (&a)[4], std::uint64_t b) {
  if constexpr (E::dtype == DType::bf16) {
    TILEMAMBA_WGMMA("256", "bf16", TILEMAMBA_NAMES_128, TILEMAMBA_REGISTERS_128, "%128", "%129", "%130", "%131", "%132",
                    "%133", "%134");
  } else {
    TILEMAMBA_WGMMA("256", "f16", TILEMAMBA_NAMES_128, TILEMAMBA_REGISTERS_128, "%128", "%129", "%130", "%131", "%132",
                    "%133", "%134");
  }
}
/// The same with both from shared memory, 64 x 64, inner columns.
#define TILEMAMBA_WGMMA_SHARED(type)                                                                                 \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type \
               " " TILEMAMBA_NAMES_32 ", %32, %33, p, 1, 1, 0, 0;\n}\n"                                              \
               : TILEMAMBA_REGISTERS_32(d)                                                                           \
               : "l"(a), "l"(b), "n"(accumulate ? 1 : 0))
template <class E, bool accumulate>
TILEMAMBA_DEVICE void wgmma(float (&d)[32], std::uint64_t a, std::uint64_t b) {
  if constexpr (E::dtype == DType::bf16) {
    TILEMAMBA_WGMMA_SHARED("bf16");
  } else {
    TILEMAMBA_WGMMA_SHARED("f16");
  }
}

#undef TILEMAMBA_WGMMA_SHARED
#undef TILEMAMBA_WGMMA
#undef TILEMAMBA_REGISTERS_128
#undef TILEMAMBA_REGISTERS_64
#undef TILEMAMBA_REGISTERS_32
#undef TILEMAMBA_REGISTERS_16
#undef TILEMAMBA_REGISTERS_8
#undef TILEMAMBA_EIGHT
#undef TILEMAMBA_NAMES_128
#undef TILEMAMBA_NAMES_64
#undef TILEMAMBA_NAMES_32
#undef TILEMAMBA_NAMES_16
#undef TILEMAMBA_NAMES_8

}  // namespace tilemamba::cuda::sm90
