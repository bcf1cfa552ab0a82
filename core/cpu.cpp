// SPDX-License-Identifier: Apache-2.0
#include "core/cpu.hpp"

#include <fstream>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#endif

namespace tilemamba {

#if defined(__x86_64__)
namespace {

/// Products of bf16 pairs, AVX512_BF16.
bool has_bf16() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & (1u << 5)) != 0;
}

/// Products of tiles of bf16: AMX_TILE and AMX_BF16, and an operating system that keeps the tiles' registers.
bool has_amx() {
#if defined(__linux__)
  constexpr unsigned amx_bf16 = 1u << 22, amx_tile = 1u << 24;
  constexpr long supported_features = 0x1021, tile_data = 18;  // arch_prctl
  unsigned a = 0, b = 0, c = 0, d = 0;
  std::uint64_t features = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & amx_bf16) != 0 && (d & amx_tile) != 0 &&
         syscall(SYS_arch_prctl, supported_features, &features) == 0 && (features >> tile_data & 1) != 0;
#else
  return false;
#endif
}

/// Of x86-64-v3, what compilers differ in whether they can ask for by name: MOVBE, POPCNT, F16C and LZCNT.
bool has_lesser_features_of_v3() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned movbe = 1u << 22, popcnt = 1u << 23, f16c = 1u << 29, lzcnt = 1u << 5;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & (movbe | popcnt | f16c)) != (movbe | popcnt | f16c)) return false;
  return __get_cpuid(0x80000001u, &a, &b, &c, &d) != 0 && (c & lzcnt) != 0;
}

}  // namespace
#endif

std::vector<CpuLevel> cpu_levels() {
#if defined(__x86_64__)
  // The levels of the x86-64 psABI, and two beyond. The built-in also asks whether the operating system saves the wider
  // registers.
  __builtin_cpu_init();
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                  __builtin_cpu_supports("bmi2") && has_lesser_features_of_v3();
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  const bool bf16 = v4 && has_bf16();
  return {{"x86-64-v4-amx", bf16 && has_amx()},
          {"x86-64-v4-bf16", bf16},
          {"x86-64-v4", v4},
          {"x86-64-v3", v3},
          {"x86-64", true}};
#elif defined(__aarch64__)
  return {{"armv8-a", true}};
#else
  return {{"generic", true}};
#endif
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

}  // namespace tilemamba
