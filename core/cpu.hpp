// SPDX-License-Identifier: Apache-2.0
/// @file
/// Instruction-set levels of the CPU. A CPU backend has a module for each; the best one that the CPU can run is loaded.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <tilemamba/export.hpp>

namespace tilemamba {

struct CpuLevel {
  std::string_view name;   ///< as in module file names and TILEMAMBA_CPU_ISA
  bool supported = false;  ///< by this CPU and its operating system
};

/// The levels of this architecture, the best first; the last is what every CPU of it has.
[[nodiscard]] std::vector<CpuLevel> cpu_levels();

/// The processor as it calls itself; "CPU" where it does not.
[[nodiscard]] TILEMAMBA_EXPORT std::string processor_name();

}  // namespace tilemamba
