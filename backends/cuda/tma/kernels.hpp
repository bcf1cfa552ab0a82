// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the host knows of the kernels, which are compiled in files of their own.
#pragma once

#include <cuda.h>

#include "backends/cuda/tma/policy.hpp"

namespace tilemamba::cuda::tma {

/// How the copy engine sees a tensor: (column, token, head, batch row); where heads follow each other without gaps, all
/// of them as the columns of one, so that neighbours share lines.
struct Map {
  CUtensorMap map;
  int columns_of_head;  ///< from head to head; 0: heads are a dimension
  bool by_hand;  ///< it cannot see it: an address or a stride is no multiple of 16 bytes. Warps copy element by element
};
struct Maps {
  Map x, z, B, C, y;
};

struct States : kernels::StateView {
  bool as_registers = false;  ///< of segments: as the registers that hold them, so that both sides move 16 bytes a lane
};

/// The parameter of a launch.
struct Job {
  Maps maps;
  kernels::Call call;
  States initial_states, entry_states;
  kernels::HeadBlocks heads;
  /// Rows of a batch are all like the first, so that a block finds its own by a division of 32 bits.
  kernels::Sequence first_row;
  std::int64_t chunks_of_row;
  int units_of_walk;
};

struct Kernel {
  const void* function = nullptr;
  int threads = 0;
  unsigned shared_bytes = 0;
};
struct Kernels {
  Kernel sum_segments, walk;
};

}  // namespace tilemamba::cuda::tma
