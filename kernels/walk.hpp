// SPDX-License-Identifier: Apache-2.0
/// @file
/// The plain drive: one worker does all the cuts of a block one after the other. Backends without roles of their own
/// use it as it stands; those with pipelines and specialised workers write a driver that calls the same cuts.
///
/// Each struct is a launch: its members are the tiles that a block needs (so a worker over a counting allocator tells
/// their size), operator() is one block's work, blocks() says how many there are. Blocks of a launch are independent;
/// launches follow each other as `run` lists them.
#pragma once

#include <tilemamba/schedule.hpp>

#include "kernels/recurrent.hpp"
#include "kernels/scan_fused.hpp"

namespace tilemamba::kernels::walk {

/// What a chunk brings for its group: B and, where outputs are wanted, C and the scores.
template <class W, class Call>
TILEMAMBA_FN void load_group(W& w, const Call& call, const Tokens& tokens, int group, bool outputs,
                             GroupChunk<W>& chunk) {
  w.get(chunk.B, call.B, tokens, Slice{group, group, 0});
  if (outputs) {
    w.get(chunk.C, call.C, tokens, Slice{group, group, 0});
    auto scores = multiply_scores(w, chunk);
    w.wait(scores);
    sum_scores(w, chunk);
  }
  drop_ended_documents(w, call, tokens, chunk);
}

/// The tables of packed sequences. One block.
template <class W>
struct Tabulate {
  TILEMAMBA_FN Tabulate(W&, const HeadBlocks&) {}
  static std::int64_t blocks(const Call& call, const HeadBlocks&) {
    return call.sequences.cu_seqlens == nullptr ? 0 : 1;
  }

  TILEMAMBA_FN void operator()(W&, const Call& call, const HeadBlocks&, std::int64_t) { call.sequences.tabulate(); }
};

/// chunk_cumsum of every chunk and head. Block: (unit, head).
template <class W>
struct Cumsum {
  Decays<W> decays;
  TILEMAMBA_FN Cumsum(W& w, const HeadBlocks&) : decays(w) {}
  static std::int64_t blocks(const Call& call, const HeadBlocks&) { return call.sequences.most_units() * call.heads; }

  TILEMAMBA_FN void operator()(W& w, const Call& call, const HeadBlocks&, std::int64_t block) {
    store_decays(w, call, block / call.heads, static_cast<int>(block % call.heads), decays);
  }
};

/// The state at each chunk's start, chunk after chunk. Block: (sequence, slice of a head).
template <class W>
struct PassState {
  GroupChunk<W> group;
  HeadChunk<W> chunk;
  Carried<W> carried;
  TILEMAMBA_FN PassState(W& w, const HeadBlocks&) : group(w), chunk(w), carried(w) {}
  static std::int64_t blocks(const Call& call, const HeadBlocks& heads) {
    return call.sequences.count * heads.slices();
  }

  TILEMAMBA_FN void operator()(W& w, const Call& call, const HeadBlocks& heads, std::int64_t block) {
    const Sequence sequence = call.sequences[block / heads.slices()];
    const Slice slice = heads.slice(static_cast<int>(block % heads.slices()));
    const HeadRule rule = head_rule(call, slice.head);
    begin_state(w, call, sequence, slice, carried);
    for (std::int64_t c = 0; c < sequence.units; ++c) {
      const std::int64_t unit = sequence.first_unit + c;
      const Tokens tokens = call.sequences.cut.tokens(sequence, c);
      load_group(w, call, tokens, slice.group, false, group);
      load_decays(w, call, tokens, unit, slice.head, chunk.decays);
      exit_weights(w, rule, 0.0f, chunk.decays);
      w.get(chunk.x, call.x, tokens, slice);
      w.put(call.entry_states, std::int64_t{0}, unit, slice, carried.S);
      prepare_state(w, chunk.decays, chunk.x, carried);
      auto advance = advance_state(w, group, carried);
      w.wait(advance);
      put_snapshot(w, call, sequence, tokens, slice, carried);
    }
    finish_state(w, call, sequence, slice, carried);
  }
};

/// x, and z where there is a gate.
template <class W, class Call>
TILEMAMBA_FN void load_tokens(W& w, const Call& call, const Tokens& tokens, const Slice& slice, HeadChunk<W>& chunk) {
  w.get(chunk.x, call.x, tokens, slice);
  if (call.z.given) w.get(chunk.z, call.z, tokens, slice);
}

/// What a chunk brings for one head, for its outputs.
template <class W, class Call>
TILEMAMBA_FN void load_head(W& w, const Call& call, const HeadRule& rule, const Tokens& tokens, const Slice& slice,
                            const GroupChunk<W>& group, HeadChunk<W>& chunk) {
  load_tokens(w, call, tokens, slice, chunk);
  tabulate_decays(w, rule, chunk.decays);
  decay_scores(w, call, rule, slice.head, group, chunk);
}

/// The outputs of a chunk, for the heads of a block. Block: (unit, block of heads).
template <class W>
struct ComputeOut {
  GroupChunk<W> group;
  HeadChunk<W> chunk;
  StateOperand<W> S_in;
  Output<W> out;
  TILEMAMBA_FN ComputeOut(W& w, const HeadBlocks&) : group(w), chunk(w), S_in(w), out(w) {}
  static std::int64_t blocks(const Call& call, const HeadBlocks& heads) {
    return call.sequences.most_units() * heads.count;
  }

  TILEMAMBA_FN void operator()(W& w, const Call& call, const HeadBlocks& heads, std::int64_t block) {
    const std::int64_t unit = block / heads.count;
    const int head_block = static_cast<int>(block % heads.count);
    if (unit >= call.sequences.units()) return;
    const Sequence sequence = call.sequences.of_unit(unit);
    const Tokens tokens = call.sequences.cut.tokens(sequence, unit - sequence.first_unit);
    load_group(w, call, tokens, heads.slice(head_block, 0).group, true, group);
    for (int worker = 0; worker < heads.size(head_block); ++worker) {
      const Slice slice = heads.slice(head_block, worker);
      load_decays(w, call, tokens, unit, slice.head, chunk.decays);
      load_head(w, call, head_rule(call, slice.head), tokens, slice, group, chunk);
      w.get(S_in, call.entry_states, std::int64_t{0}, unit, slice);
      compute_out(w, call, group, chunk, S_in, out);
      finish_output(w, call, slice, chunk, out);
      store_output(w, call, tokens, slice, out);
    }
  }
};

/// A segment's state summed from zero. Block: (unit, slice of a head); a sequence's last segment has nothing to do.
template <class W>
struct SumSegments {
  GroupChunk<W> group;
  HeadChunk<W> chunk;
  SegmentSum<W> segment;
  TILEMAMBA_FN SumSegments(W& w, const HeadBlocks&) : group(w), chunk(w), segment(w) {}
  static std::int64_t blocks(const Call& call, const HeadBlocks& heads) {
    return call.sequences.most_units() * heads.slices();
  }

  TILEMAMBA_FN void operator()(W& w, const Call& call, const HeadBlocks& heads, std::int64_t block) {
    const std::int64_t unit = block / heads.slices();
    const Slice slice = heads.slice(static_cast<int>(block % heads.slices()));
    if (unit >= call.sequences.units()) return;
    const Sequence sequence = call.sequences.of_unit(unit);
    const std::int64_t index = unit - sequence.first_unit;
    if (index == sequence.units - 1) return;
    const Cut& cut = call.sequences.cut;
    const HeadRule rule = head_rule(call, slice.head);
    begin_segment_sum(w, segment);
    const std::int64_t first = index * cut.unit_chunks;
    for (std::int64_t c = first + cut.unit_chunks - 1; c >= first && reaches_back(segment.after); --c) {
      const Tokens tokens = cut.tokens(sequence, c);
      load_group(w, call, tokens, slice.group, false, group);
      chunk_steps(w, call, rule, tokens, slice.head, chunk.decays);
      w.get(chunk.x, call.x, tokens, slice);
      step_segment_sum(w, rule, group, chunk, segment);
    }
    finish_segment_sum(w, call, sequence.first_slot + index, slice, segment);
    finish_segment_decay(w, call, sequence.first_slot + index, slice.head, segment.after);
  }
};

/// The states between segments. Block: (sequence, slice of a head).
template <class W>
struct ScanSegments {
  Carried<W> carried;
  typename W::template State<P, N> sum;
  TILEMAMBA_FN ScanSegments(W& w, const HeadBlocks&) : carried(w), sum(w) {}
  static std::int64_t blocks(const Call& call, const HeadBlocks& heads) {
    return call.sequences.count * heads.slices();
  }

  TILEMAMBA_FN void operator()(W& w, const Call& call, const HeadBlocks& heads, std::int64_t block) {
    const Sequence sequence = call.sequences[block / heads.slices()];
    if (sequence.units > 1)
      scan_segments(w, call, sequence, heads.slice(static_cast<int>(block % heads.slices())), carried, sum);
  }
};

/// A chunk of the fused schedule: what it needs, and what is done with it.
template <class W>
struct FusedChunk {
  GroupChunk<W> group;
  HeadChunk<W> chunk;
  Output<W> out;
  TILEMAMBA_FN explicit FusedChunk(W& w) : group(w), chunk(w), out(w) {}

  TILEMAMBA_FN void load(W& w, const Call& call, const Tokens& tokens, int group_index) {
    load_group(w, call, tokens, group_index, true, group);
  }
  TILEMAMBA_FN void step(W& w, const Call& call, const Tokens& tokens, const Slice& slice, Carried<W>& carried) {
    const HeadRule rule = head_rule(call, slice.head);
    chunk_cumsum(w, call, rule, tokens, slice.head, chunk.decays);
    entry_decays(w, chunk.decays);
    exit_weights(w, rule, 0.0f, chunk.decays);
    load_head(w, call, rule, tokens, slice, group, chunk);
    prepare_state(w, chunk.decays, chunk.x, carried);
    step_fused(
        w, call, group, chunk, carried, out, [] {}, [] {});
  }
};

/// The same of the recurrent schedule.
template <class W>
struct RecurrentRun {
  GroupRun<W> group;
  HeadChunk<W> chunk;
  Output<W> out;
  TILEMAMBA_FN explicit RecurrentRun(W& w) : group(w), chunk(w), out(w) {}

  TILEMAMBA_FN void load(W& w, const Call& call, const Tokens& tokens, int group_index) {
    load_run(w, call, tokens, group_index, group);
  }
  TILEMAMBA_FN void step(W& w, const Call& call, const Tokens& tokens, const Slice& slice, Carried<W>& carried) {
    const HeadRule rule = head_rule(call, slice.head);
    chunk_cumsum(w, call, rule, tokens, slice.head, chunk.decays);
    step_decays(w, rule, chunk.decays);
    load_tokens(w, call, tokens, slice, chunk);
    step_recurrent(w, tokens, group, chunk, carried, out);
  }
};

/// Outputs and states of a segment, for the heads of a block, chunk after chunk. Block: (unit, block of heads).
template <class W, template <class> class Chunk>
struct WalkSegment {
  Chunk<W> at_hand;
  Carried<W> carried[W::most_workers];

  TILEMAMBA_FN WalkSegment(W& w, const HeadBlocks& heads) : at_hand(w) {
    for (int worker = 0; worker < heads.workers; ++worker) carried[worker] = Carried<W>(w);
  }
  static std::int64_t blocks(const Call& call, const HeadBlocks& heads) {
    return call.sequences.most_units() * heads.count;
  }

  TILEMAMBA_FN void operator()(W& w, const Call& call, const HeadBlocks& heads, std::int64_t block) {
    const std::int64_t unit = block / heads.count;
    const int head_block = static_cast<int>(block % heads.count);
    if (unit >= call.sequences.units()) return;
    const Sequence sequence = call.sequences.of_unit(unit);
    const Cut& cut = call.sequences.cut;
    const std::int64_t segment = unit - sequence.first_unit;
    const bool leaves = segment == sequence.units - 1;
    const int workers = heads.size(head_block);
    for (int worker = 0; worker < workers; ++worker) {
      begin_segment(w, call, sequence, segment, heads.slice(head_block, worker), carried[worker]);
    }
    const std::int64_t end = least(cut.chunks(sequence.length), (segment + 1) * cut.unit_chunks);
    for (std::int64_t c = segment * cut.unit_chunks; c < end; ++c) {
      const Tokens tokens = cut.tokens(sequence, c);
      at_hand.load(w, call, tokens, heads.slice(head_block, 0).group);
      for (int worker = 0; worker < workers; ++worker) {
        const Slice slice = heads.slice(head_block, worker);
        at_hand.step(w, call, tokens, slice, carried[worker]);
        finish_output(w, call, slice, at_hand.chunk, at_hand.out);
        store_output(w, call, tokens, slice, at_hand.out);
        put_snapshot(w, call, sequence, tokens, slice, carried[worker]);
      }
    }
    for (int worker = 0; worker < workers && leaves; ++worker) {
      finish_state(w, call, sequence, heads.slice(head_block, worker), carried[worker]);
    }
  }
};

/// The launches of a schedule, in order.
template <class W, class Launch>
void run(Schedule schedule, const Call& call, const HeadBlocks& heads, Launch&& launch) {
  launch.template operator()<Tabulate<W>>(call, heads);
  switch (schedule) {
    case Schedule::staged:  // as published: a state per chunk goes through memory
      launch.template operator()<Cumsum<W>>(call, heads);
      launch.template operator()<PassState<W>>(call, heads);
      launch.template operator()<ComputeOut<W>>(call, heads);
      break;
    case Schedule::recurrent:
      launch.template operator()<WalkSegment<W, RecurrentRun>>(call, heads);
      break;
    default:  // fused: one walk over each segment; two short passes before it where there are states between segments
      if (call.sequences.slots > 0) {
        launch.template operator()<SumSegments<W>>(call, heads);
        launch.template operator()<ScanSegments<W>>(call, heads);
      }
      launch.template operator()<WalkSegment<W, FusedChunk>>(call, heads);
  }
}

}  // namespace tilemamba::kernels::walk
