// SPDX-License-Identifier: Apache-2.0
/// @file
/// Launches on a machine that the host plays, as the CUDA backend makes them.
#pragma once

#include <cstdint>
#include <string>

#include "tests/cuda/machine.hpp"

namespace tilemamba::test::cuda {

/// Calls a kernel with its only parameter, in a thread of the machine. Whoever links the kernels defines it.
void start(const void* function, void* parameter);

/// The next launches follow nothing, and their threads take turns in the order that this seed gives; 0: in another one
/// than before.
void begin_calls(std::uint64_t first_seed = 0);
/// Of the last launch; "": it went well.
[[nodiscard]] const std::string& last_fault();

}  // namespace tilemamba::test::cuda
