// SPDX-License-Identifier: Apache-2.0
#include "core/cpu.hpp"

namespace tilemamba {

std::vector<CpuLevel> cpu_levels() {
#if defined(__x86_64__)
  // The levels of the x86-64 psABI, feature by feature: compilers differ in whether they know them by name.
  __builtin_cpu_init();
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                  __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  return {{"x86-64-v4", v4}, {"x86-64-v3", v3}, {"x86-64", true}};
#elif defined(__aarch64__)
  return {{"armv8-a", true}};
#else
  return {{"generic", true}};
#endif
}

}  // namespace tilemamba
