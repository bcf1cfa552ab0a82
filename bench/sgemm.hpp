// SPDX-License-Identifier: Apache-2.0
/// @file
/// The matrix product of an installed BLAS, for comparison.
#pragma once

#include <string_view>
#include <vector>

namespace tilemamba::bench {

/// The library that this build found, as a file's name. Without one, `Sgemm::multiply` does nothing.
#if defined(TILEMAMBA_BLAS)
inline constexpr std::string_view blas = TILEMAMBA_BLAS;
#else
inline constexpr std::string_view blas = "";
#endif
inline constexpr bool have_blas = !blas.empty();

/// A square product in f32, on as many threads as the BLAS takes: OpenBLAS, MKL and BLIS heed OMP_NUM_THREADS.
class Sgemm {
 public:
  static constexpr int size = 1024;
  static constexpr double flop = 2.0 * size * size * size;
  void multiply();
  /// FLOP/s: after a call to warm up, the best of three, or of those that 0.2 s give time for.
  [[nodiscard]] double rate();

 private:
  std::vector<float> a_ = std::vector<float>(size * size, 0.5f);
  std::vector<float> b_ = std::vector<float>(size * size, 0.25f);
  std::vector<float> c_ = std::vector<float>(size * size);
};

}  // namespace tilemamba::bench
