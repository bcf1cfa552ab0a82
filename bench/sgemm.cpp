// SPDX-License-Identifier: Apache-2.0
#include "bench/sgemm.hpp"

#include <algorithm>
#include <chrono>

#if defined(TILEMAMBA_BLAS)
// The Fortran interface, which every BLAS has.
extern "C" void sgemm_(const char* transpose_a, const char* transpose_b, const int* m, const int* n, const int* k,
                       const float* alpha, const float* a, const int* a_stride, const float* b, const int* b_stride,
                       const float* beta, float* c, const int* c_stride);
#endif

namespace tilemamba::bench {

void Sgemm::multiply() {
#if defined(TILEMAMBA_BLAS)
  const float one = 1;
  const float zero = 0;
  sgemm_("N", "N", &size, &size, &size, &one, a_.data(), &size, b_.data(), &size, &zero, c_.data(), &size);
#endif
}

double Sgemm::rate() {
  using Clock = std::chrono::steady_clock;
  multiply();
  double best = 0;
  double total = 0;
  for (int call = 0; call < 3 && total < 0.2; ++call) {
    const Clock::time_point begin = Clock::now();
    multiply();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    best = std::max(best, flop / seconds);
    total += seconds;
  }
  return best;
}

}  // namespace tilemamba::bench
