// SPDX-License-Identifier: Apache-2.0
/// @file
/// Instruction-set levels of the CPU. A CPU backend has a module for each; the best one that the CPU can run is loaded.
#pragma once

#include <string_view>
#include <vector>

namespace tilemamba {

struct CpuLevel {
  std::string_view name;       ///< as in module file names and TILEMAMBA_CPU_ISA
  bool supported = false;      ///< by this CPU and its operating system
  bool only_if_named = false;  ///< never run on such a CPU yet: taken where TILEMAMBA_CPU_ISA names it, not by default
};

/// The levels of this architecture, the best first; the last is what every CPU of it has.
[[nodiscard]] std::vector<CpuLevel> cpu_levels();

}  // namespace tilemamba
