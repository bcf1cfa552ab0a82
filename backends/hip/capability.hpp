// SPDX-License-Identifier: Apache-2.0
/// @file
/// From the name of an architecture to who runs on it: a rule over plain text, so that devices which are not there can
/// be tested too.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backends/hip/target.hpp"

namespace tilemamba::hip {

/// Kinds of device, and the architectures that the text knows the matrix instructions of.
template <class Target>
struct Kind;
template <>
struct Kind<Cdna> {
  static constexpr std::string_view member = "hip-cdna";
  static constexpr std::string_view what = "MFMA in waves of 64";
  static constexpr std::string_view architectures[] = {"gfx90a", "gfx942"};
};
template <>
struct Kind<Rdna> {
  static constexpr std::string_view member = "hip-rdna";
  static constexpr std::string_view what = "WMMA in waves of 32";
  static constexpr std::string_view architectures[] = {"gfx1100"};
};

/// What the runtime calls a device: "gfx90a:sramecc+:xnack-" is a gfx90a.
[[nodiscard]] inline std::string architecture_of(std::string_view name) {
  return std::string(name.substr(0, name.find(':')));
}

/// Empty: this kind's code runs there. Else why not. `compiled`: the architectures that this build has code for.
template <class Target>
[[nodiscard]] std::string why_not(const std::vector<std::string>& compiled, std::string_view device_name, int wave) {
  const std::string device = architecture_of(device_name);
  std::string known;
  bool is_known = false;
  for (const std::string_view name : Kind<Target>::architectures) {
    is_known = is_known || name == device;
    known += " " + std::string(name);
  }
  if (!is_known) return device + " is none of the architectures that it knows:" + known;
  std::string list;
  bool is_compiled = false;
  for (const std::string& name : compiled) {
    is_compiled = is_compiled || name == device;
    list += " " + name;
  }
  if (!is_compiled) return "this build has no code for " + device + ", only for" + (list.empty() ? " none" : list);
  if (wave != Target::wave)
    return device + " runs waves of " + std::to_string(wave) + ", the code is for " + std::to_string(Target::wave);
  return "";
}

}  // namespace tilemamba::hip
