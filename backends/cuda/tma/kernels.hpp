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

/// How rows of a batch, all of them alike, are walked (`Cutting`); a sequence is a row's for the heads of a block. What
/// takes longest begins first.
struct Walks {
  int length;            ///< units of a walk, counted from a sequence's end; its first walk has what is left
  int sequences, units;  ///< of a sequence
  int dealt;             ///< of so many sequences, the last, each unit of the first walk is a walk

  struct Walk {
    int sequence, begin, units;
  };

  [[nodiscard]] TILEMAMBA_FN int later() const { return (units - 1) / length; }  ///< walks of a sequence but the first
  [[nodiscard]] TILEMAMBA_FN int first() const { return units - later() * length; }  ///< units of the first
  [[nodiscard]] TILEMAMBA_FN int count() const { return sequences * later() + sequences - dealt + dealt * first(); }

  [[nodiscard]] TILEMAMBA_FN Walk operator[](int index) const {
    if (index < sequences * later()) return {index % sequences, units - (index / sequences + 1) * length, length};
    index -= sequences * later();
    const int kept = sequences - dealt;
    if (index < kept) return {index, 0, first()};
    return {kept + (index - kept) % dealt, (index - kept) / dealt, 1};
  }
  /// Does a walk begin after this unit?
  [[nodiscard]] TILEMAMBA_FN bool needs_sum(int sequence, int unit) const {
    return unit < units - (later() == 0 && sequence >= sequences - dealt ? 1 : length);
  }
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
  Walks walks;
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
