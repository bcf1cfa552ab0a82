// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which devices compiled code runs on: a rule over plain numbers, so that devices which are not there can be tested
/// too.
#pragma once

#include <string>
#include <vector>

namespace tilemamba::cuda {

/// A compute capability, 9.0 as 90, 12.0 as 120.
struct Capability {
  int number;
  [[nodiscard]] int major() const { return number / 10; }
  [[nodiscard]] std::string text() const { return std::to_string(number / 10) + "." + std::to_string(number % 10); }
};

/// What a module was compiled for.
struct Compiled {
  std::vector<int> machine_code;  ///< of one capability each; runs on the same major one from that minor one on
  std::vector<int> ptx;           ///< compiled by the driver for any capability from that one on
};

/// Empty: it runs there. Else why not.
[[nodiscard]] inline std::string why_not(const Compiled& compiled, Capability device) {
  std::string list;
  for (const int number : compiled.machine_code) {
    const Capability code{number};
    if (code.major() == device.major() && number <= device.number) return "";
    list += " sm_" + std::to_string(number);
  }
  for (const int number : compiled.ptx) {
    if (number <= device.number) return "";
    list += " compute_" + std::to_string(number);
  }
  const bool too_old = device.number < 80;
  return "compute capability " + device.text() +
         (too_old ? " is too old: 8.0 is the least" : " is none that this build has code for:" + list);
}

}  // namespace tilemamba::cuda
