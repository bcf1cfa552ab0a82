// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which devices compiled code runs on: rules over plain numbers, so that devices which are not there can be tested
/// too.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tilemamba::cuda {

/// A compute capability, 9.0 as 90, 12.0 as 120.
struct Capability {
  int number;
  [[nodiscard]] int major() const { return number / 10; }
  [[nodiscard]] std::string text() const { return std::to_string(number / 10) + "." + std::to_string(number % 10); }
};

/// A version as CUDA counts them: 13000 is "13.0".
[[nodiscard]] inline std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// What a module was compiled for.
struct Compiled {
  std::vector<int> machine_code;  ///< of one capability each; runs on the same major one from that minor one on
  std::vector<int> ptx;           ///< compiled by the driver for any capability from that one on
  int toolkit;                    ///< version that made the PTX: older drivers do not know it
};

/// Empty: it runs there. Else why not. @param driver the version of CUDA that the driver is made for.
[[nodiscard]] inline std::string why_not(const Compiled& compiled, Capability device, int driver) {
  std::string list;
  for (const int number : compiled.machine_code) {
    const Capability code{number};
    if (code.major() == device.major() && number <= device.number) return "";
    list += " sm_" + std::to_string(number);
  }
  for (const int number : compiled.ptx) {
    if (number <= device.number && driver >= compiled.toolkit) return "";
    if (number <= device.number) {
      return "compute capability " + device.text() + " needs this build's PTX, and that a driver for CUDA " +
             version_text(compiled.toolkit) + "; this one is made for " + version_text(driver);
    }
    list += " compute_" + std::to_string(number);
  }
  const bool too_old = device.number < 80;
  return "compute capability " + device.text() +
         (too_old ? " is too old: 8.0 is the least" : " is none that this build has code for:" + list);
}

/// Instructions that only some capabilities have. Code with them is machine code for exactly the one it was made for.
struct Instructions {
  std::string_view name;
  std::span<const int> capabilities;
};
inline constexpr int capabilities_of_wgmma[] = {90};
inline constexpr Instructions wgmma = {"wgmma", capabilities_of_wgmma};

/// Empty: the device has them. Else why not.
[[nodiscard]] inline std::string why_not(const Instructions& instructions, Capability device) {
  std::string list;
  for (const int number : instructions.capabilities) {
    if (number == device.number) return "";
    list += (list.empty() ? "" : " or ") + Capability{number}.text();
  }
  return std::string(instructions.name) + " needs compute capability " + list + ", the device has " + device.text();
}

/// What a driver that shows no device says of itself.
struct DriverFacts {
  bool installed;
  int version;   ///< of CUDA that it is made for
  bool too_old;  ///< for the run-time library
};
[[nodiscard]] inline std::string why_none(const DriverFacts& driver, int runtime) {
  if (!driver.installed) return "there is no NVIDIA driver on this machine (libcuda.so.1)";
  if (driver.too_old) {
    return "the NVIDIA driver is too old: it is made for CUDA " + version_text(driver.version) + ", this build needs " +
           version_text(runtime);
  }
  return "there is an NVIDIA driver but no device that it shows";
}

}  // namespace tilemamba::cuda
