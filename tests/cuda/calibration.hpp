// SPDX-License-Identifier: Apache-2.0
/// @file
/// Trials of single instructions. Their text (calibration.cu) is compiled twice: for a device, and for the machine that
/// the host plays; both must say the same.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace tilemamba::test::cuda {

/// What words of memory are: both of what a trial is given, and of what it says.
enum class Words {
  bits,
  f32,        ///< of any exponent
  bf16,       ///< pairs, of any exponent
  f16,        ///< likewise
  f32_whole,  ///< small integers, whose products and sums are exact
  bf16_whole,
  f16_whole,
  f32_usual,  ///< of magnitudes that do not differ much
  bf16_usual,
  f16_usual,
};
/// How what two machines say must agree.
enum class Agreement {
  exact,    ///< moves, exact sums, results that are rounded once; which NaN a NaN is may differ
  sums,     ///< real products, whose sums the two round in different orders
  refused,  ///< both stop with a fault
  curves,   ///< exp2 and log2, which are approximate
};
struct Trial {
  const char* name;
  Agreement agreement;
  Words given, said;
  unsigned words_given, words_said;
  int terms = 0;  ///< instructions that add to the same sum
};

/// One that can run them.
struct Calibrated {
  std::span<const Trial> trials;
  /// `said` is full of something else before. @returns "" or what went wrong.
  std::string (*run)(std::size_t trial, const std::uint32_t* given, std::uint32_t* said);
};
[[nodiscard]] const Calibrated& machine_calibrated();
/// On the current device, of compute capability 9.0.
[[nodiscard]] __attribute__((visibility("default"))) const Calibrated& device_calibrated();
/// "" or why there is none.
[[nodiscard]] __attribute__((visibility("default"))) std::string no_device();

}  // namespace tilemamba::test::cuda
