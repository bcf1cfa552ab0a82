// SPDX-License-Identifier: Apache-2.0
/// @file
/// The time of calls on a device, and whose time it is.
#pragma once

#include <memory>

#include "backends/cuda/common/device.hpp"

namespace tilemamba::cuda {

/// For how long measured times are valid: for devices of this name with a driver for this version of CUDA.
[[nodiscard]] Identity identity(const Device& device);

/// Replays of a graph of calls, between two events: what the host does to launch them is not in it.
[[nodiscard]] std::unique_ptr<Stopwatch> stopwatch(const Device& device, Calls calls, Outcome& outcome);

}  // namespace tilemamba::cuda
