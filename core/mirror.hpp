// SPDX-License-Identifier: Apache-2.0
/// @file
/// A call's tensors on a device, and its time there: for programs that have them in host memory, the command line, the
/// tests, the benchmarks and `tune`.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <tilemamba/tilemamba.hpp>

namespace tilemamba {

/// Where tensors for this member or family are to be; an empty name stands for TILEMAMBA_BACKEND. The CPU if there is
/// no choice, or if it cannot run. @throws Error listing the valid names.
[[nodiscard]] TILEMAMBA_EXPORT Device home_of(std::string_view backend);

/// The same arguments, said to be on `device`: what a call needs to be planned before its tensors are there.
[[nodiscard]] TILEMAMBA_EXPORT Arguments placed_on(const Device& device, Arguments arguments);

/// A copy of a call's tensors, and a workspace, in the memory of a plan's device. Each tensor's bytes, gaps between its
/// elements included, lie between guard zones and at the same offset from a multiple of 256 as on the host. On the CPU
/// it is the host's tensors themselves.
class TILEMAMBA_EXPORT Mirror {
 public:
  /// @param host the call, outputs included; what it points to must outlive this object.
  /// @throws Error out_of_memory or backend_failure.
  Mirror(const Plan& plan, const Arguments& host);
  ~Mirror();
  Mirror(Mirror&&) noexcept;
  Mirror& operator=(Mirror&&) noexcept;

  [[nodiscard]] const Arguments& arguments() const noexcept;
  [[nodiscard]] void* workspace() const noexcept;
  /// Returns when the device has done all that it was given.
  void wait() const;
  /// Brings the host's bytes of the outputs to the device.
  void poison() const;
  /// Waits for the device and brings the outputs to where the host has them.
  void fetch();
  /// Whether nothing was written beside the workspace or beside a tensor, nor into an input. Waits for the device.
  [[nodiscard]] bool intact() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The time of a plan's calls, which take turns with mirrors of their tensors: so many that no cache holds them are the
/// caller's to give. The device's time alone, where launches are the host's work.
class TILEMAMBA_EXPORT Timing {
 public:
  /// @param mirrors must outlive this object; their workspaces are large enough for this plan.
  /// @throws Error backend_failure, here and when it is taken.
  Timing(const Plan& plan, const std::vector<const Mirror*>& mirrors);
  ~Timing();
  Timing(Timing&&) noexcept;
  Timing& operator=(Timing&&) noexcept;

  struct Taken {
    double seconds = 0;     ///< of a call
    std::size_t calls = 0;  ///< whose mean it is
  };
  [[nodiscard]] Taken take();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilemamba
