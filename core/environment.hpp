// SPDX-License-Identifier: Apache-2.0
/// @file
/// The environment variables that the library reads, all of them.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace tilemamba {

struct Environment {
  std::string backend;                ///< TILEMAMBA_BACKEND: a family or a member; empty: not set
  std::string cpu_isa;                ///< TILEMAMBA_CPU_ISA: an instruction-set level of the CPU; empty: the best
  std::string tuning_cache;           ///< TILEMAMBA_TUNING_CACHE, else in the user's cache folder; empty: no place
  bool unproven = false;              ///< TILEMAMBA_UNPROVEN=1: backends that nobody has run on a device may be used
  bool verbose_dispatch = false;      ///< TILEMAMBA_VERBOSE=dispatch: print every candidate and its reason
  std::vector<std::string> warnings;  ///< one line for each value that means nothing
};

/// Reads through `variable` (nullptr: not set), so that it can be tested.
[[nodiscard]] Environment parse_environment(const std::function<const char*(const char*)>& variable);

/// The process's environment, read when called; warnings are printed once.
[[nodiscard]] Environment environment();

}  // namespace tilemamba
