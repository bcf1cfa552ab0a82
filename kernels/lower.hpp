// SPDX-License-Identifier: Apache-2.0
/// @file
/// From the public API's tensors to the text's Call, and what of the workspace belongs to whom. Host only.
#pragma once

#include <cstddef>

#include <tilemamba/tilemamba.hpp>

#include "kernels/call.hpp"

namespace tilemamba::kernels {

/// How a policy cuts a problem: what the schedules need to know, whatever the backend.
struct Arrangement {
  Schedule schedule = Schedule::staged;
  int chunk = 64;                   ///< Q
  std::int64_t segment_chunks = 1;  ///< fused: chunks of a segment
  int stateless_segments = 1;       ///< fused: the first of a sequence that need no state in the workspace
  bool stores_decays = true;        ///< staged: cum and delta are handed on in the workspace, not made anew
  int scores = 0;                   ///< floats of the workspace for a chunk's scores, once made for a group; 0: never
};

inline constexpr std::int64_t whole_sequence = std::int64_t{1} << 40;  ///< as segment_chunks: sequences are not cut

[[nodiscard]] inline Cut cut_of(const Problem& problem, const Arrangement& arrangement) {
  const bool staged = arrangement.schedule == Schedule::staged;
  return {arrangement.chunk, problem.options.chunk_states_every, staged ? 1 : arrangement.segment_chunks,
          staged ? 0 : arrangement.stateless_segments};
}

/// Offsets in the workspace; every piece starts at a multiple of 256 bytes.
struct WorkspaceLayout {
  std::int64_t slots = 0;   ///< staged: chunks; else: segments that another one precedes
  std::int64_t chunks = 0;  ///< whose scores there is room for
  std::size_t entry_states = 0, cum = 0, delta = 0, segment_decays = 0, scores = 0, unit_starts = 0,
              snapshot_starts = 0;
  std::size_t bytes = 0;

  WorkspaceLayout(const Problem& problem, const Arrangement& arrangement) {
    const Cut cut = cut_of(problem, arrangement);
    const bool staged = arrangement.schedule == Schedule::staged;
    slots = problem.packed_sequences ? cut.most_slots(*problem.packed_sequences, problem.tokens)
                                     : problem.batch * (cut.units(problem.tokens) - cut.stateless_units);
    const auto count = static_cast<std::size_t>(slots);
    const auto heads = static_cast<std::size_t>(problem.heads);
    const auto elements = heads * static_cast<std::size_t>(problem.head_dim * problem.state);
    entry_states = take(count * elements * (staged ? size_of(problem.x) : sizeof(float)));
    const bool decays = staged && arrangement.stores_decays;
    cum = take(decays ? count * heads * static_cast<std::size_t>(cut.chunk) * sizeof(float) : 0);
    delta = take(decays ? count * heads * static_cast<std::size_t>(cut.chunk) * sizeof(float) : 0);
    segment_decays = take(staged ? 0 : count * heads * sizeof(float));
    if (arrangement.scores > 0)
      chunks = problem.packed_sequences ? cut.chunks(problem.tokens) + *problem.packed_sequences
                                        : problem.batch * cut.chunks(problem.tokens);
    scores = take(static_cast<std::size_t>(chunks * problem.groups * arrangement.scores) * sizeof(float));
    const std::size_t table =
        problem.packed_sequences ? static_cast<std::size_t>(*problem.packed_sequences + 1) * sizeof(std::int32_t) : 0;
    unit_starts = take(table);
    snapshot_starts = take(problem.chunk_states ? table : 0);
  }

 private:
  std::size_t take(std::size_t size) {
    const std::size_t offset = bytes;
    bytes += (size + 255) / 256 * 256;
    return offset;
  }
};

namespace detail {

template <class View>
void set_memory(View& view, const Tensor& tensor) {
  view.data = const_cast<void*>(tensor.data);  // NOLINT: the text writes outputs only
  view.dtype = tensor.dtype;
  view.given = true;
}

/// (B,T,H,W), (B,T,H) or (B,T).
[[nodiscard]] inline TokenView token_view(const Tensor& tensor) {
  TokenView view;
  set_memory(view, tensor);
  view.batch_stride = tensor.strides[0];
  view.token_stride = tensor.strides[1];
  if (tensor.rank > 2) view.head_stride = tensor.strides[2];
  if (tensor.rank > 3) view.width = static_cast<int>(tensor.shape[3]);
  return view;
}

[[nodiscard]] inline HeadView head_view(const Tensor& tensor) {
  HeadView view{tensor.data, tensor.dtype, true, tensor.strides[0]};
  if (tensor.rank > 1) view.channel_stride = tensor.strides[1];
  if (tensor.rank > 1) view.width = static_cast<int>(tensor.shape[1]);
  return view;
}

/// (index,H,P,N), or (B,index,H,P,N).
[[nodiscard]] inline StateView state_view(const Tensor& tensor) {
  StateView view;
  set_memory(view, tensor);
  const int first = tensor.rank - 4;
  if (first > 0) view.batch_stride = tensor.strides[0];
  view.index_stride = tensor.strides[first];
  view.head_stride = tensor.strides[first + 1];
  view.channel_stride = tensor.strides[first + 2];
  view.channels = static_cast<int>(tensor.shape[first + 2]);
  view.width = static_cast<int>(tensor.shape[first + 3]);
  return view;
}

}  // namespace detail

/// The call of `arguments`, which are those of `problem`, with its intermediate results in `workspace`.
[[nodiscard]] inline Call lower(const Arguments& arguments, const Problem& problem, const Arrangement& arrangement,
                                void* workspace) {
  const WorkspaceLayout layout(problem, arrangement);
  const auto piece = [&](std::size_t offset) { return static_cast<std::byte*>(workspace) + offset; };
  const bool staged = arrangement.schedule == Schedule::staged;

  Call call;
  call.x = detail::token_view(arguments.x);
  call.dt = detail::token_view(arguments.dt);
  call.B = detail::token_view(arguments.B);
  call.C = detail::token_view(arguments.C);
  call.y = detail::token_view(arguments.y);
  call.A = detail::head_view(arguments.A);
  if (arguments.z) call.z = detail::token_view(*arguments.z);
  if (arguments.seq_idx) call.seq_idx = detail::token_view(*arguments.seq_idx);
  if (arguments.D) call.D = detail::head_view(*arguments.D);
  if (arguments.dt_bias) call.dt_bias = detail::head_view(*arguments.dt_bias);
  if (arguments.initial_states) call.initial_states = detail::state_view(*arguments.initial_states);
  if (arguments.final_states) call.final_states = detail::state_view(*arguments.final_states);
  if (arguments.chunk_states) call.chunk_states = detail::state_view(*arguments.chunk_states);

  const std::int64_t state_elements = problem.head_dim * problem.state;
  call.entry_states.data = piece(layout.entry_states);
  call.entry_states.dtype = staged ? problem.x : DType::f32;
  call.entry_states.given = true;
  call.entry_states.index_stride = problem.heads * state_elements;
  call.entry_states.head_stride = state_elements;
  call.entry_states.channel_stride = problem.state;
  call.entry_states.channels = static_cast<int>(problem.head_dim);
  call.entry_states.width = static_cast<int>(problem.state);
  const auto vectors = [&](std::size_t offset, std::int64_t count, int length) {
    return ChunkVectors{reinterpret_cast<float*>(piece(offset)), count * length, length};
  };
  call.cum = vectors(layout.cum, layout.slots, arrangement.chunk);
  call.delta = vectors(layout.delta, layout.slots, arrangement.chunk);
  call.segment_decays = vectors(layout.segment_decays, layout.slots, 1);
  call.scores = vectors(layout.scores, layout.chunks, arrangement.scores);

  Sequences& sequences = call.sequences;
  sequences.count = problem.sequences();
  sequences.tokens = problem.tokens;
  sequences.slots = layout.slots;
  sequences.chunks = layout.chunks;
  sequences.cut = cut_of(problem, arrangement);
  if (arguments.cu_seqlens) {
    sequences.cu_seqlens = static_cast<const std::int32_t*>(arguments.cu_seqlens->data);
    sequences.unit_starts = reinterpret_cast<std::int32_t*>(piece(layout.unit_starts));
    if (problem.chunk_states) {
      sequences.snapshot_starts = reinterpret_cast<std::int32_t*>(piece(layout.snapshot_starts));
      sequences.snapshots = *problem.packed_chunk_states;
    }
  }
  call.rule = {problem.options.dt_softplus, problem.options.dt_min, problem.options.dt_max};
  call.heads = static_cast<int>(problem.heads);
  call.groups = static_cast<int>(problem.groups);
  call.head_dim = static_cast<int>(problem.head_dim);
  return call;
}

}  // namespace tilemamba::kernels
