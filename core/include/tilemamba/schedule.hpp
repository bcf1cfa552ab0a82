// SPDX-License-Identifier: Apache-2.0
/// @file
/// The ways to order the work of a call.
#pragma once

#include <cstdint>

namespace tilemamba {

enum class Schedule : std::uint8_t {
  automatic,  ///< the planner's choice
  staged,     ///< chunk_cumsum, fwd_pass_state, compute_out: as published, a state per chunk goes through memory
  fused,      ///< one walk over the chunks of a segment, the state in the worker's hands; segments in parallel
  recurrent,  ///< token by token, for few tokens
};

}  // namespace tilemamba
