// SPDX-License-Identifier: Apache-2.0
#include "core/command_line/rates.hpp"

#if defined(__linux__)
#include <sched.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <latch>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "core/golden.hpp"
#include "core/workload.hpp"

namespace tilemamba::command_line {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// Processors that this process may run on, which a container or taskset may have narrowed.
int usable_threads() {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(CPU_COUNT(&set), 1);
#endif
  return std::max(static_cast<int>(std::thread::hardware_concurrency()), 1);
}

/// Seconds from when all threads are ready until the last has done its part.
double timed_on(int threads, const std::function<void(int)>& part) {
  std::latch ready(threads + 1);
  std::vector<std::jthread> workers;
  workers.reserve(static_cast<std::size_t>(threads));
  for (int i = 0; i < threads; ++i) {
    workers.emplace_back([&, i] {
      ready.arrive_and_wait();
      part(i);
    });
  }
  ready.arrive_and_wait();
  const Clock::time_point begin = Clock::now();
  workers.clear();
  return seconds_since(begin);
}

constexpr int trials = 8;  // the best one counts: others may be using the machine

// ---------------------------------------------------------------------------------------------------------------- copy

constexpr std::size_t copy_bytes = std::size_t{256} << 20;  // well beyond the caches of most machines

double copy_rate(int threads) {
  const std::size_t share = copy_bytes / static_cast<std::size_t>(threads);
  // Filled on construction, so that the pages are there before the clock runs.
  const golden::GuardedMemory from(copy_bytes);
  const golden::GuardedMemory to(copy_bytes);
  double best = 0;
  for (int trial = 0; trial < trials; ++trial) {
    const double seconds = timed_on(threads, [&](int i) {
      const std::size_t begin = static_cast<std::size_t>(i) * share;
      std::memcpy(to.data() + begin, from.data() + begin, share);
    });
    best = std::max(best, 2.0 * static_cast<double>(share) * threads / seconds);
  }
  return best;
}

// -------------------------------------------------------------------------------------------------------------- matmul

template <int lanes>
struct Simd {
  using Vector __attribute__((vector_size(lanes * sizeof(float)))) = float;
};

constexpr int depth = 256;   // of the product: with it a panel of either operand stays in the first cache
constexpr int panels_a = 8;  // panels of rows of A that meet each panel of B
constexpr int panels_b = 4;
constexpr int most_rows = 14;  // of a panel of A, in the widest form
constexpr int most_columns = 2 * 16;

/// One thread's operands, packed as the product reads them. Small values: the sums stay finite however long it runs.
struct Operands {
  std::vector<float> a = std::vector<float>(panels_a * most_rows * depth, 0.5f);
  std::vector<float> b = std::vector<float>(panels_b * most_columns * depth, 0.25f);
  std::vector<float> c = std::vector<float>(panels_a * panels_b * most_rows * most_columns, 0.0f);
};

/// C = A B for one tile of C, `rows` x two vectors wide, which is held in registers throughout.
template <int lanes, int rows>
__attribute__((always_inline)) inline void multiply_tile(const float* a, const float* b, float* c) {
  using Vector = typename Simd<lanes>::Vector;
  Vector sum[rows][2] = {};
  for (int k = 0; k < depth; ++k) {
    Vector right_0;
    Vector right_1;
    std::memcpy(&right_0, b + k * 2 * lanes, sizeof right_0);
    std::memcpy(&right_1, b + k * 2 * lanes + lanes, sizeof right_1);
#pragma GCC unroll 16
    for (int row = 0; row < rows; ++row) {
      const float left = a[k * rows + row];
      sum[row][0] += right_0 * left;
      sum[row][1] += right_1 * left;
    }
  }
  // One vector at a time: copied as a whole, the sums would have to live in memory.
#pragma GCC unroll 16
  for (int row = 0; row < rows; ++row) {
    std::memcpy(c + row * 2 * lanes, &sum[row][0], sizeof(Vector));
    std::memcpy(c + row * 2 * lanes + lanes, &sum[row][1], sizeof(Vector));
  }
}

/// Multiplies all panels of A by all panels of B. @return floating-point operations done.
template <int lanes, int rows>
__attribute__((always_inline)) inline double multiply_panels(Operands& operands) {
  for (int j = 0; j < panels_b; ++j) {
    for (int i = 0; i < panels_a; ++i) {
      multiply_tile<lanes, rows>(operands.a.data() + i * rows * depth, operands.b.data() + j * 2 * lanes * depth,
                                 operands.c.data() + (j * panels_a + i) * rows * 2 * lanes);
    }
  }
  return 2.0 * depth * (panels_a * rows) * (panels_b * 2 * lanes);
}

/// A form of the product: what fits the registers of one level of instructions.
struct Form {
  const char* name;
  double (*multiply)(Operands& operands);
};

double multiply_baseline(Operands& operands) { return multiply_panels<4, 6>(operands); }

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) double multiply_avx2(Operands& operands) { return multiply_panels<8, 6>(operands); }
__attribute__((target("avx512f"))) double multiply_avx512(Operands& operands) {
  return multiply_panels<16, 14>(operands);
}
#endif

/// The widest form that this processor runs.
Form best_form() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return {"16 lanes, tiles of 14 x 32", multiply_avx512};
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (avx2) return {"8 lanes, tiles of 6 x 16", multiply_avx2};
#endif
  return {"4 lanes, tiles of 6 x 8", multiply_baseline};
}

double matmul_rate(int threads, const Form& form) {
  constexpr double seconds_per_trial = 0.08;
  double best = 0;
  for (int trial = 0; trial < trials; ++trial) {
    std::atomic<double> operations = 0;
    const double seconds = timed_on(threads, [&](int) {
      Operands operands;
      double done = 0;
      const Clock::time_point begin = Clock::now();
      while (seconds_since(begin) < seconds_per_trial) done += form.multiply(operands);
      operations += done;
    });
    best = std::max(best, operations / seconds);
  }
  return best;
}

}  // namespace

Rates measure_cpu_rates() {
  Rates rates;
  rates.processor = workload::processor_name();
  rates.threads = usable_threads();
  const Form form = best_form();
  rates.copy_bytes_per_second = copy_rate(rates.threads);
  rates.copy_method = fmt::format("memcpy of {} MiB on {} threads, best of {}, bytes read and written",
                                  copy_bytes >> 20, rates.threads, trials);
  rates.matmul_flop_per_second = matmul_rate(rates.threads, form);
  rates.matmul_method =
      fmt::format("f32 product held in registers ({}), packed operands in cache, {} threads, best of {}", form.name,
                  rates.threads, trials);
  return rates;
}

}  // namespace tilemamba::command_line
