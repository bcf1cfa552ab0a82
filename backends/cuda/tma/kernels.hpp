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
class Walks {
 public:
  /// Units of a sequence.
  struct Walk {
    int sequence, begin, units;
  };

  Walks() = default;
  /// `length`: units of a walk, counted from a sequence's end; its first walk has what is left. `units`: of a sequence.
  /// `dealt`: of so many sequences, the last, each unit of the first walk is a walk.
  Walks(int length, int sequences, int units, int dealt)
      : length_(length), sequences_(sequences), units_(units), dealt_(dealt), later_((units - 1) / length) {}

  [[nodiscard]] TILEMAMBA_FN int units() const { return units_; }
  [[nodiscard]] TILEMAMBA_FN int count() const { return sequences_ * (later_ + 1) - dealt_ + dealt_ * first(); }
  [[nodiscard]] TILEMAMBA_FN Walk operator[](int index) const {
    if (index < sequences_ * later_) {
      const Walk turn = dealt_out(index, 0, sequences_);
      return {turn.sequence, units_ - (turn.begin + 1) * length_, length_};
    }
    index -= sequences_ * later_;
    const int kept = sequences_ - dealt_;
    return index < kept ? Walk{index, 0, first()} : dealt_out(index - kept, kept, dealt_);
  }

  /// Units that a walk begins after, which are first summed, a sequence's last first.
  [[nodiscard]] TILEMAMBA_FN int sums() const { return (sequences_ - whole()) * summed(); }
  [[nodiscard]] TILEMAMBA_FN Walk sum(int index) const {
    Walk unit = dealt_out(index, whole(), sequences_ - whole());
    unit.begin = summed() - 1 - unit.begin;
    return unit;
  }

 private:
  /// Units of a sequence's first walk.
  [[nodiscard]] TILEMAMBA_FN int first() const { return units_ - later_ * length_; }
  /// Sequences, the first, that are one walk each.
  [[nodiscard]] TILEMAMBA_FN int whole() const { return later_ == 0 ? sequences_ - dealt_ : 0; }
  /// Units of any other sequence that a walk begins after.
  [[nodiscard]] TILEMAMBA_FN int summed() const { return units_ - (later_ == 0 ? 1 : length_); }
  /// The first unit of each of `count` sequences from `from` on, then the second of each, ...
  [[nodiscard]] TILEMAMBA_FN static Walk dealt_out(int index, int from, int count) {
    const unsigned turn = static_cast<unsigned>(index) / static_cast<unsigned>(count);
    return {from + index - static_cast<int>(turn) * count, static_cast<int>(turn), 1};
  }

  int length_ = 0, sequences_ = 0, units_ = 0, dealt_ = 0;
  int later_ = 0;  ///< walks of a sequence but the first
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
  bool follows = false;  ///< the launch follows one of this call, which began when all before had ended
};

struct Kernel {
  const void* function = nullptr;
  int threads = 0;
  unsigned shared_bytes = 0;
};
struct Kernels {
  Kernel score_chunks, sum_segments, walk;
};

}  // namespace tilemamba::cuda::tma
