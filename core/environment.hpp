// SPDX-License-Identifier: Apache-2.0
/// @file
/// The environment variables that the library reads, all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tilemamba {

/// What becomes of backends that nobody has run on a device.
enum class Unproven : std::uint8_t {
  refused,
  on_proof,  ///< used where they have proved themselves (core/proof.hpp)
  trusted,   ///< used: by the proof itself, and by who works on one
};

struct Environment {
  std::string backend;       ///< TILEMAMBA_BACKEND: a family or a member; empty: not set
  std::string cpu_isa;       ///< TILEMAMBA_CPU_ISA: an instruction-set level of the CPU; empty: the best
  std::string tuning_cache;  ///< TILEMAMBA_TUNING_CACHE, else in the user's cache folder; empty: no place
  std::string proofs;        ///< what backends have proved, proofs.json beside tuning_cache; empty: no place
  Unproven unproven = Unproven::refused;  ///< TILEMAMBA_UNPROVEN: 1 is on_proof, trusted is that
  bool verbose_dispatch = false;          ///< TILEMAMBA_VERBOSE=dispatch: print every candidate and its reason
  std::vector<std::string> warnings;      ///< one line for each value that means nothing
};

/// Reads through `variable` (nullptr: not set), so that it can be tested.
[[nodiscard]] Environment parse_environment(const std::function<const char*(const char*)>& variable);

/// The process's environment, read when called; warnings are printed once.
[[nodiscard]] Environment environment();

/// The process's environment as NAME=value, with one more, or another, value: for a process to be started.
[[nodiscard]] std::vector<std::string> environment_with(const std::string& name, const std::string& value);

}  // namespace tilemamba
