// SPDX-License-Identifier: Apache-2.0
/// @file
/// The tensors of one call under the names that the text uses.
#pragma once

#include "core/tile/view.hpp"
#include "kernels/sequences.hpp"

namespace tilemamba::kernels {

using tile::ChunkVectors;
using tile::HeadView;
using tile::Slice;
using tile::StateView;
using tile::TokenView;

/// How dt becomes delta: + dt_bias, softplus, dt_limit.
struct StepRule {
  bool softplus = false;
  float least = 0.0f;
  float most = 0.0f;
};

struct Call {
  TokenView x, dt, B, C, z, seq_idx, y;
  HeadView A, D, dt_bias;
  StateView initial_states;  ///< index: sequence
  StateView final_states;    ///< index: sequence
  StateView chunk_states;    ///< batch, index: of the sequence's chunk_states

  // Workspace, staged: of every chunk. Fused: of every segment but a sequence's first.
  StateView entry_states;       ///< the state that enters; index: slot
  ChunkVectors cum, delta;      ///< staged
  ChunkVectors segment_decays;  ///< fused; one value a head and slot: log2 of what is left of a state after the segment
  ChunkVectors scores;  ///< fused, where they are made once for all heads: of a group (Sequences::first_chunk counts)

  Sequences sequences;
  StepRule rule;
  int heads = 0, groups = 0, head_dim = 0;
};

/// A block's share of the heads: `workers` slices of one group, which share C, B and C.B^T.
struct HeadBlocks {
  int heads_of_group;  ///< H / G
  int slices_of_head;  ///< pieces that the policy cuts P into
  int channels;        ///< of a slice
  int workers;         ///< slices of a block
  int blocks_of_group;
  int count;  ///< blocks of all groups

  TILEMAMBA_FN HeadBlocks(const Call& call, int channels_of_slice, int workers_of_block)
      : heads_of_group(call.heads / call.groups),
        slices_of_head(divide_up(call.head_dim, channels_of_slice)),
        channels(channels_of_slice),
        workers(workers_of_block),
        blocks_of_group(divide_up(heads_of_group * slices_of_head, workers_of_block)),
        count(blocks_of_group * call.groups) {}

  /// Slices that block `block` really has; the last of a group may have fewer.
  [[nodiscard]] TILEMAMBA_FN int size(int block) const {
    return least(workers, heads_of_group * slices_of_head - block % blocks_of_group * workers);
  }

  /// Slices of all heads.
  [[nodiscard]] TILEMAMBA_FN int slices() const { return count / blocks_of_group * heads_of_group * slices_of_head; }

  [[nodiscard]] TILEMAMBA_FN Slice slice(int index) const {
    const int head = index / slices_of_head;
    return {head, head / heads_of_group, index % slices_of_head * channels};
  }
  /// The slice of one worker of a block.
  [[nodiscard]] TILEMAMBA_FN Slice slice(int block, int worker) const {
    const int group = block / blocks_of_group, index = block % blocks_of_group * workers + worker;
    return {group * heads_of_group + index / slices_of_head, group, index % slices_of_head * channels};
  }
};

}  // namespace tilemamba::kernels
