// SPDX-License-Identifier: Apache-2.0
/// @file
/// What this device can do at best, measured: the yardstick of `bench`.
#pragma once

#include <string>

namespace tilemamba::command_line {

struct Rates {
  std::string processor;  ///< as it calls itself
  int threads = 0;
  double copy_bytes_per_second = 0;   ///< bytes read plus bytes written
  double matmul_flop_per_second = 0;  ///< f32, whatever the problem's type: a CPU multiplies in f32
  std::string copy_method;            ///< how the two were measured, for whoever reads the numbers
  std::string matmul_method;
};

/// Takes about a second on all threads that this process may use.
/// @throws Error out_of_memory.
[[nodiscard]] Rates measure_cpu_rates();

}  // namespace tilemamba::command_line
