// SPDX-License-Identifier: Apache-2.0
/// @file
/// The walk: outputs and states of a segment, for the slices of heads of a block.
///
/// Roles: warp 0 loads B and C; a warp for each worker sums its decays and makes B clean; warp 3 moves x and z in and y
/// out; a warpgroup makes (or loads) the scores of all workers; a warpgroup for each worker has the state and
/// multiplies. Registers go where the accumulators are.
///
/// A state of more than 128 columns is a cluster's: each of its blocks has 128 of them, and of C . B^T and of C . S
/// only what these give. Both are summed as soon as they are there: each block gives away its parts of all tokens but
/// its own 64 / parts, in fp32 through distributed shared memory, and decays the scores, multiplies x and finishes the
/// outputs of those. (A block with all columns of one head would read B and C twice as often from L2, which is as near
/// its limit as the tensor core.)
///
/// Where a group has many heads a launch before makes its scores (`scored`, score_chunks.cuh): that takes an eighth off
/// the walk of a cluster, from shared memory most of all, and leaves more registers to the heads. It reads B and C once
/// more from memory, for which few heads are too few.
///
/// What limits a walk that makes its own is shared memory: on an H200 (N 256) its data path is busy for 72 to 79 % of a
/// chunk's 2800 cycles, with operands of products (a third), tiles that come and go, and what warps load, for every
/// register of which a warp takes a cycle, even if all lanes load the same; tensor cores work for 1400. So a load
/// answers late, and a head's way through a chunk is long. Each head has its turn to issue the products of its state,
/// and outputs are weighed by the block that finishes them, which needs few weights. Tried there, and for N 256, N 512
/// and heads of 128 channels at once none faster by more than a percent: code for each block instead of registers that
/// are selected; another order of rows; scores kept where they stay; two buffers for what two blocks give each other;
/// outputs taken before the next products are issued, published after them, or finished by two other warps; x
/// multiplied from shared memory instead of from registers; a state that is scaled when it must be instead of in every
/// chunk (1 %); waits that suspend a warp for longer; tiles asked for before the roles begin; a slice for a block, of
/// whose columns two warpgroups have half each. Where a thread spills one register, N 512 becomes a tenth slower.
///
/// Where all segments of a sequence are a cluster (`chained`), each is gone over twice. In the first lap B and x come
/// and the heads' workers sum the state, from zero; what enters the first segment then goes along the cluster, from
/// block to block, and gives each the state that enters its own, with which the second lap begins.
#pragma once

#include "backends/cuda/tma/decays.cuh"
#include "backends/cuda/tma/heads.cuh"
#include "backends/cuda/tma/scores.cuh"
#include "backends/cuda/tma/segment.cuh"

namespace tilemamba::cuda::tma {

/// `Cores`: how the tensor cores of a generation are used (sm90/cores.cuh is one).
template <class Cores_, class E_, int n_, Features features_, int parts_>
struct WalkKernel : PartOfState<n_, parts_, features_.chained> {
  using Cores = Cores_;
  using E = E_;
  using HeadWorker = typename Cores::template HeadWorker<WalkKernel>;
  using ScoreWorker = typename Cores::template ScoreWorker<WalkKernel>;
  using PartOfState<n_, parts_, features_.chained>::parts, PartOfState<n_, parts_, features_.chained>::own_tokens;
  static constexpr int n = n_;
  static constexpr Features features = features_;
  static constexpr int threads = 128 * (2 + policy_workers);
  static constexpr bool sums = false;
  /// Does each of the blocks that share a state's columns make its part of the scores?
  static constexpr bool shares_scores = parts > 1 && !features.scored;
  using Decays = StageDecays<features.documents, parts == 1>;

  /// Where a cluster shares the columns: are a chunk's outputs finished under the next one's products?
  static constexpr bool finishes_late =
      parts > 1 && !features.documents && !(features.chained && E::dtype == DType::f16);

  // Shared memory: [C, B of each stage][x][z][decayed scores][y given by others][scores given][states][decays][ones]
  // [D][barriers][segment]
  static constexpr int group_planes = n / 64;
  static constexpr unsigned group_bytes = group_planes * plane_bytes;
  static constexpr unsigned stage_bytes = 2 * group_bytes, head_bytes = policy_workers * plane_bytes;
  /// A tile of x comes, becomes y and leaves: that takes longer than two chunks of a small state, or if y is late.
  static constexpr int x_stages = n == 64 || (finishes_late && parts == 2 && !features.chained) ? 4 : 3,
                       z_stages = features.rich ? 2 : 0;
  /// What is late is given into another buffer than the chunk before; between two blocks x gains more from the room.
  static constexpr int given_buffers = finishes_late && parts > 2 && !features.chained ? 2 : 1;
  static constexpr unsigned z_bytes = head_bytes / parts;
  static constexpr unsigned decayed_tile = own_tokens * 128, decayed_bytes = 2 * policy_workers * decayed_tile;
  static constexpr unsigned given_bytes = (parts - 1) * own_tokens * channels_of_slice * 4;   ///< to one worker
  static constexpr unsigned scores_bytes = (shares_scores ? parts : 0) * own_tokens * q * 4;  ///< to a block
  /// Of the state that enters from the segment before: registers of a piece, and how many there is room for at once.
  static constexpr int state_piece = 8, state_places = features.chained ? (parts == 1 ? 4 : 3) : 0;
  static constexpr unsigned states_bytes = policy_workers * state_places * state_piece * 512;
  static constexpr unsigned other_bytes = x_stages * head_bytes + z_stages * z_bytes + decayed_bytes +
                                          given_buffers * policy_workers * given_bytes + scores_bytes + states_bytes +
                                          2048;
  static constexpr int fitting_stages = (most_bytes - other_bytes) / (stage_bytes + policy_workers * sizeof(Decays));
  static constexpr int stages = fitting_stages < 6 ? fitting_stages : 6;
  static constexpr unsigned x_at = stages * stage_bytes;
  static constexpr unsigned z_at = x_at + x_stages * head_bytes;
  static constexpr unsigned decayed_at = z_at + z_stages * z_bytes;
  static constexpr unsigned given_at = decayed_at + decayed_bytes;
  static constexpr unsigned scores_at = given_at + given_buffers * policy_workers * given_bytes;
  static constexpr unsigned states_at = scores_at + scores_bytes;
  static constexpr unsigned decays_at = states_at + states_bytes;
  static constexpr unsigned ones_at = decays_at + stages * policy_workers * sizeof(Decays);
  static constexpr unsigned skips_at = ones_at + q * 4;
  static constexpr unsigned barriers_at = skips_at + policy_workers * channels_of_slice * 4;
  static constexpr int cluster_barriers = parts > 1 ? 2 * (given_buffers * policy_workers + shares_scores) : 0;
  static constexpr int barriers = 3 * stages + 5 * policy_workers + 2 * x_stages + z_stages + 1 + cluster_barriers +
                                  3 * policy_workers * state_places;
  static constexpr unsigned cores_at = barriers_at + barriers * 8;  ///< what the tensor cores' workers need
  static constexpr unsigned segment_at = (cores_at + Cores::shared_bytes + 15) / 16 * 16;
  static constexpr unsigned shared_bytes = segment_at + sizeof(Segment);
  static_assert(stages >= 3 && shared_bytes <= most_bytes);

  static constexpr bool in_cluster = parts > 1 || features.chained;
  /// Do the heads say that they reach into no other block before they store their state? In a chain there are no
  /// registers for it.
  static constexpr bool leaves_early = parts > 1 && !features.chained;

  /// Is the next chunk's state prepared under this one's products?
  static constexpr bool prepares_early = Cores::prepares_early(E::dtype, features);

  // Registers of a thread of each role; 512 in all.
  static constexpr int head_registers = Cores::head_registers(n, features, parts);
  static constexpr int score_registers = Cores::score_registers(n, features, parts);
  static constexpr int mover_registers = 512 - 2 * head_registers - score_registers;

  // Offsets of barriers.
  static constexpr unsigned of(int index) { return barriers_at + 8 * index; }
  static constexpr unsigned landed = of(0);  ///< B and C of a chunk that must be made clean
  static constexpr unsigned full = of(stages), empty = of(2 * stages);
  static constexpr unsigned decayed_full = of(3 * stages),
                            decayed_empty = of(3 * stages + 2 * policy_workers);  ///< of (worker, buffer)
  static constexpr unsigned x_full = of(3 * stages + 4 * policy_workers), y_full = x_full + 8 * x_stages,
                            z_full = y_full + 8 * x_stages;
  static constexpr unsigned x_landed = z_full + 8 * z_stages;  ///< of a chunk that must be made clean
  /// Of each worker and buffer: what the other blocks gave is there; all of them have taken what was given before.
  static constexpr unsigned given = x_landed + 8, taken = given + 8 * given_buffers * policy_workers;
  /// The same of scores, whose parts a block gives to itself too.
  static constexpr unsigned scores_given = taken + 8 * given_buffers * policy_workers, scores_taken = scores_given + 8;
  /// Of (worker, place): a piece of the state has come from the segment before. Of (worker, by whom, place): it has
  /// been taken there, see HeadFragments::left.
  static constexpr unsigned state_entered = x_landed + 8 + 8 * cluster_barriers,
                            state_left = state_entered + 8 * policy_workers * state_places;
  /// Of each worker: the other one's products of the state have been issued.
  static constexpr unsigned turn = state_left + 16 * policy_workers * state_places;
  /// Of a chunk to this block: 16 rows have 16 columns more than those before.
  static TILEMAMBA_DEVICE unsigned scores_given_bytes() {
    constexpr unsigned rows = own_tokens / 16;
    return parts * (rows * rows * PartOfState<n, parts>::part() + rows * (rows + 1) / 2) * (16 * 16 * 4);
  }

  static TILEMAMBA_DEVICE Decays& decays(int stage, int worker) {
    return reinterpret_cast<Decays*>(shared_memory + decays_at)[stage * policy_workers + worker];
  }

  static TILEMAMBA_DEVICE void init_barriers(unsigned memory) {
    const auto init = [&](unsigned first, int count, int arrivals) {
      for (int k = 0; k < count; ++k) barrier_init(memory + first + 8 * k, arrivals);
    };
    init(landed, stages, 1);
    init(full, stages, 1 + policy_workers);
    init(empty, stages, 4 + 4 * policy_workers);
    init(decayed_full, 4 * policy_workers, 4);
    init(x_full, x_stages, 1);
    init(y_full, x_stages, 4 * policy_workers);
    init(z_full, z_stages + 1, 1);
    if constexpr (parts > 1) {
      init(given, given_buffers * policy_workers, 1);
      init(taken, given_buffers * policy_workers, 4 * (parts - 1));
      for (int k = 0; k < given_buffers * policy_workers; ++k) expect_bytes(memory + given + 8 * k, given_bytes);
    }
    if constexpr (shares_scores) {
      init(scores_given, 1, 1);
      init(scores_taken, 1, 4 * parts);
      expect_bytes(memory + scores_given, scores_given_bytes());
    }
    init(state_entered, policy_workers * state_places, 1);
    init(state_left, 2 * policy_workers * state_places, 4);
    for (int place = 0; place < policy_workers * state_places; ++place)
      expect_bytes(memory + state_entered + 8 * place, state_piece * 512);
    init(turn, policy_workers, 4);
    Cores::init_barriers(memory + cores_at);
    publish_barriers();
  }
};

template <class K>
struct Walk {
  using E = typename K::E;
  static constexpr Features features = K::features;
  const Job& job;
  const Segment& segment;
  unsigned memory;  ///< address of the block's shared memory
  int warp;
  unsigned lane;

  TILEMAMBA_DEVICE tile::Tokens tokens(int k) const { return segment.tokens(k); }
  /// Chunks that are first gone over for their state alone: all or none.
  [[nodiscard]] TILEMAMBA_DEVICE int first_lap() const { return features.chained ? segment.first_lap : 0; }
  /// Of a chunk's tokens those that this block finishes.
  TILEMAMBA_DEVICE static tile::Tokens own(const tile::Tokens& its) {
    if constexpr (K::parts == 1) return its;
    const int count = min(its.count - K::first_token(), K::own_tokens);
    return {its.batch, its.first + K::first_token(), max(count, 0), its.begins};
  }

  /// Must B be looked through before others read it?
  TILEMAMBA_DEVICE bool needs_cleaning(const tile::Tokens& its) const {
    return (features.documents && job.call.seq_idx.given) || segment.ragged(its);
  }

  // ---------------------------------------------------------------------------------------------------------- tiles in
  // and out
  TILEMAMBA_DEVICE void load_group() const {
    const bool by_hand = job.maps.B.by_hand || job.maps.C.by_hand;
    if (!by_hand && lane != 0) return;
    Ring<K::stages> ring;
    const int first_lap = this->first_lap();
    for (int k = -first_lap; k < segment.chunks; ++k, ring.advance()) {
      const unsigned to = memory + ring.stage * K::stage_bytes, full = memory + K::full + 8 * ring.stage;
      const bool first = k < 0;
      const tile::Tokens its = tokens(first ? k + first_lap : k);
      const bool clean = needs_cleaning(its);
      const unsigned ready = clean ? memory + K::landed + 8 * ring.stage : full;
      wait_phase(memory + K::empty + 8 * ring.stage, ring.parity ^ 1);
      if (by_hand) {
        if (!first) copy_planes(to, job.call.C, its);
        copy_planes(to + K::group_bytes, job.call.B, its);
        publish_to_engines();
        __syncwarp();
        if (lane == 0) arrive(ready);
        if (lane == 0 && clean) arrive(full);
        continue;
      }
      expect_bytes(ready, first ? K::group_bytes : K::stage_bytes);
      if (clean) arrive(full);
      const int token = static_cast<int>(its.first), batch = static_cast<int>(its.batch);
      if (!first) load_planes<K::group_planes>(to, job.maps.C, segment.C, token, batch, ready);
      load_planes<K::group_planes>(to + K::group_bytes, job.maps.B, segment.B, token, batch, ready);
    }
  }
  TILEMAMBA_DEVICE void copy_planes(unsigned to, const kernels::TokenView& view, const tile::Tokens& its) const {
#pragma unroll 1
    for (int plane = 0; plane < K::group_planes; ++plane) {
      copy_tile(to + plane * plane_bytes, view, K::first_column() + plane * 64, segment.slices[0].group, its, lane);
    }
  }

  template <int rows>
  TILEMAMBA_DEVICE void copy_heads(const kernels::TokenView& view, unsigned to, unsigned barrier,
                                   const tile::Tokens& its) const {
    __syncwarp();  // lane 0 has waited until what was stored from there has left
#pragma unroll 1
    for (int worker = 0; worker < policy_workers; ++worker) {
      const tile::Slice& slice = segment.slices[worker];
      copy_tile<rows>(to + worker * rows * 128, view, slice.channel, slice.head, its, lane);
    }
    publish_to_engines();
    __syncwarp();
    if (lane == 0) arrive(barrier);
  }
  template <int rows>
  TILEMAMBA_DEVICE void load_heads(const Map& map, const Places& places, const kernels::TokenView& view, unsigned to,
                                   unsigned barrier, const tile::Tokens& its) const {
    if (map.by_hand) return copy_heads<rows>(view, to, barrier, its);
    if (lane != 0) return;
    expect_bytes(barrier, policy_workers * rows * 128);
    places.load<rows>(to, map, static_cast<int>(its.first), static_cast<int>(its.batch), barrier);
  }
  /// `cleaned`: how many chunks needed it so far.
  TILEMAMBA_DEVICE void load_x(unsigned to, unsigned full, const tile::Tokens& its, unsigned& cleaned) const {
    const bool clean = segment.ragged(its) && !job.maps.x.by_hand;
    load_heads<q>(job.maps.x, segment.x, job.call.x, to, clean ? memory + K::x_landed : full, its);
    if (!clean) return;
    __syncwarp();
    wait_phase(memory + K::x_landed, cleaned++ & 1);
    for (int worker = 0; worker < policy_workers; ++worker) clear_rows(to + worker * plane_bytes, 1, its.count, lane);
    publish_to_engines();
    __syncwarp();
    if (lane == 0) arrive(full);
  }
  TILEMAMBA_DEVICE void load_z(int stage, const tile::Tokens& its) const {
    if constexpr (features.rich) {
      load_heads<K::own_tokens>(job.maps.z, segment.z, job.call.z, memory + K::z_at + stage * K::z_bytes,
                                memory + K::z_full + 8 * stage, own(its));
    }
  }
  /// `from`: where the block's own tokens are. Whole tiles, and those that end where the tensor does, by the copy
  /// engine; the next sequence's rows are not ours.
  TILEMAMBA_DEVICE void store_y(unsigned from, const tile::Tokens& its) const {
    if (K::parts > 1 && its.count == 0) return;
    if (!segment.ragged(its, K::own_tokens) && !job.maps.y.by_hand) {
      if (lane == 0)
        segment.y.store(job.maps.y, from, static_cast<int>(its.first), static_cast<int>(its.batch),
                        segment.often.real_workers);
      return;
    }
    const kernels::TokenView& y = job.call.y;
#pragma unroll 1
    for (int worker = 0; worker < segment.often.real_workers; ++worker) {
      const tile::Slice& slice = segment.slices[worker];
      auto* const to = static_cast<std::uint16_t*>(y.data) + y.offset(its, slice.head, slice.channel);
#pragma unroll 1
      for (int k = lane; k < its.count * 8; k += 32) {
        const int row = k / 8, piece = k % 8;
        if (slice.channel + piece * 8 >= job.call.head_dim) continue;
        std::uint32_t pairs[4];
        load_shared_words(pairs, from + worker * plane_bytes + swizzled(row, piece));
        std::uint16_t* const there = to + row * y.token_stride + piece * 8;
        if (!job.maps.y.by_hand) {
          *reinterpret_cast<uint4*>(there) = {pairs[0], pairs[1], pairs[2], pairs[3]};
          continue;
        }
#pragma unroll
        for (int e = 0; e < 8; ++e) there[e] = static_cast<std::uint16_t>(pairs[e / 2] >> e % 2 * 16);
      }
    }
    publish_to_engines();
    __syncwarp();
  }
  TILEMAMBA_DEVICE void move_heads() const {
    unsigned cleaned = 0;
    const bool gate = features.rich && job.call.z.given;
    const int chunks = segment.chunks, first_lap = this->first_lap();
    // What enters a stage at step k is chunk k (of the second lap; steps of the first are negative); what leaves it
    // first, the outputs of the chunk before there.
    Ring<K::x_stages> ring;
    for (int k = -first_lap;; ++k, ring.advance()) {
      const unsigned at = memory + K::x_at + ring.stage * K::head_bytes, full = memory + K::x_full + 8 * ring.stage;
      const Segment::Often its = segment.often;
      if (const int before = k - K::x_stages; before >= -first_lap) {
        if (before >= chunks) break;
        wait_phase(memory + K::y_full + 8 * ring.stage, ring.parity ^ 1);
        // The heads wait for this one and the next step: few instructions where nothing is special.
        if constexpr (!features.wide) {
          if (features.chained && before < 0) {
          } else if (before >= its.whole) {
            store_y(at + K::first_token() * 128, own(tokens(before)));
          } else if (lane == 0) {
            segment.y.store(job.maps.y, at + K::first_token() * 128, its.token + before * q + K::first_token(),
                            its.batch, its.real_workers);
          }
        }
      }
      const int next = features.chained && k < 0 ? k + first_lap : k;
      if (next < its.whole) {
        if (lane == 0) {
          expect_bytes(full, K::head_bytes);
          segment.x.load<q>(at, job.maps.x, its.token + next * q, its.batch, full);
        }
      } else if (next < chunks) {
        load_x(at, full, tokens(next), cleaned);
      }
      // z has fewer stages: two at first, then one whenever the outputs of the chunk two before are there.
      const int its_z = k < K::z_stages ? k : k - K::x_stages + K::z_stages;
      if (gate && its_z >= 0 && its_z < chunks && (k < K::z_stages || k >= K::x_stages))
        load_z(its_z % 2, tokens(its_z));
    }
    if (lane == 0) wait_stores();
  }

  // ----------------------------------------------------------------------------------------------------------------------
  // decays
  TILEMAMBA_DEVICE void sum_decays(int worker) const {
    using W = DecayWorker<K>;
    unsigned led = 0;
    for (const int leader : segment.leaders) led += leader == worker;
    if (led == 0) return;
    const int head = segment.slices[worker].head;
    // The walk waits for this warp as often as for any: it keeps what it needs for every chunk.
    const Segment::Often often = segment.often;
    const int first_lap = this->first_lap(), chunks = segment.chunks + first_lap;  // of both laps
    const auto chunk = [&](int k) { return features.chained && k >= first_lap ? k - first_lap : k; };
    const auto fetch = [&](const W& w, int k) {
      return k < chunks ? w.fetch(job.call.seq_idx, segment.tokens(often, chunk(k))) : typename W::Steps{};
    };
    W w(job.call.dt, segment.batch, head, lane);
    typename W::Steps next = fetch(w, 0);
    constexpr int foreseen = 3;
    const auto foresee = [&](int k) {
      if (k < segment.chunks) w.foresee(segment.tokens(often, k));
    };
    for (int k = 1; k < foreseen; ++k) foresee(k);
    const kernels::HeadRule rule = kernels::head_rule(job.call, head);
    unsigned cleaned = 0;  // parities, one a stage
    for (int k = 0; k < chunks; ++k) {
      const int in_stage = k % K::stages;  // from k each time: few registers here
      w.steps = next, next = fetch(w, k + 1);
      foresee(k + foreseen);
      const tile::Tokens its = segment.tokens(often, chunk(k));
      kernels::Decays<W> d;
      kernels::chunk_cumsum(w, job.call, rule, its, head, d);
      kernels::entry_decays(w, d);
      kernels::exit_weights(w, rule, 0.0f, d);
      wait_phase(memory + K::empty + 8 * in_stage, (k / K::stages & 1) ^ 1);
      auto& stage = K::decays(in_stage, worker);
      d.table.at = &stage.table;
      w.publish(stage, d.cum, d.entry, d.exit, d.document);
      kernels::tabulate_decays(w, rule, d);
      if (worker == 0 && needs_cleaning(its)) {
        wait_phase(memory + K::landed + 8 * in_stage, cleaned >> in_stage & 1);
        cleaned ^= 1u << in_stage;
        const unsigned B = memory + in_stage * K::stage_bytes + K::group_bytes;
        const bool ragged = segment.ragged(its), documents = w.last(d.document) != 0;
        if (ragged) clear_rows(B, K::group_planes, its.count, lane);
        if (documents) clear_undefined<E>(B, K::group_planes, lane);
        if (ragged || documents) publish_to_engines();
      }
      __syncwarp();
      if (lane < led) arrive(memory + K::full + 8 * in_stage);
    }
  }

  // ----------------------------------------------------------------------------------------------------------------------
  // scores
  struct ScoresCall {
    NotGiven D;
  };
  /// D of each channel of the workers' slices, which they see when the first scores are there.
  TILEMAMBA_DEVICE void find_skips() const {
    const int index = static_cast<int>(threadIdx.x) % 128, channel = index % channels_of_slice;
    const tile::Slice& slice = segment.slices[index / channels_of_slice];
    reinterpret_cast<float*>(shared_memory + K::skips_at)[index] =
        slice.channel + channel < job.call.head_dim ? tile::value(job.call.D, slice.head, slice.channel + channel)
                                                    : 0.0f;
  }
  /// The first lap of the scores' warps, which read nothing: they let stages go, and give the first segment the state
  /// that enters the sequence. There is room for some pieces of it; others follow when that segment takes them.
  TILEMAMBA_DEVICE void make_first_lap(Ring<K::stages>& ring) const {
    constexpr int turns = kernels::divide_up(K::n / 2, K::state_piece * K::state_places);
    const auto with_initial = [&](int worker, auto do_it) {
      const tile::Slice& slice = segment.slices[worker];
      const HeadFragments<K> w{lane, warp % 4, worker, min(channels_of_slice, job.call.head_dim - slice.channel), 0};
      if (segment.index == 0) do_it(w, job.initial_states.offset(0, segment.sequence.index, slice));
    };
#pragma unroll 1
    for (int worker = 0; worker < policy_workers; ++worker)
      with_initial(worker, [&](auto& w, std::int64_t offset) { w.foresee(job.initial_states, offset); });
#pragma unroll 1
    for (int turn = 0; turn < policy_workers * turns; ++turn) {
      with_initial(turn % policy_workers,
                   [&](auto& w, std::int64_t offset) { w.hand_on(job.initial_states, offset, turn / policy_workers); });
      if (turn != policy_workers - 1) continue;
      for (int k = 0; k < segment.first_lap; ++k, ring.advance()) {
        wait_phase(memory + K::full + 8 * ring.stage, ring.parity);
        if (lane == 0) arrive(memory + K::empty + 8 * ring.stage);
      }
    }
  }
  TILEMAMBA_DEVICE void make_scores() const {
    using W = typename K::ScoreWorker;
    find_skips();
    W w{lane, warp % 4, 0};
    const ScoresCall call{};
    const unsigned base = memory / 16;
    const auto begin = [&](kernels::GroupChunk<W>& group, const Ring<K::stages>& ring, bool exists, int k) {
      if constexpr (K::features.scored) {
        if (exists) kernels::load_scores(w, job.call, segment.scores + k, segment.slices[0].group, group);
        return typename W::Token{};
      } else {
        if (exists) wait_phase(memory + K::full + 8 * ring.stage, ring.parity);
        group.C.at = base + ring.stage * (K::stage_bytes / 16);
        group.B.at = group.C.at + K::group_bytes / 16;
        return kernels::multiply_scores(w, group);
      }
    };
    const auto end = [&](const typename W::Token& product, kernels::GroupChunk<W>& group, bool exists, int buffer) {
      if constexpr (!K::features.scored) w.wait(product);
      w.chunk_parity = buffer;
      if constexpr (K::shares_scores)
        if (exists) w.give(group.scores);
    };
    const bool one_head = segment.leaders[policy_workers - 1] == 0;
    const auto decay = [&](kernels::GroupChunk<W>& group, int stage, unsigned ready, int buffer, unsigned parity) {
      w.chunk_parity = buffer;
      if constexpr (K::features.scored) wait_phase(memory + K::full + 8 * stage, ready);
      kernels::sum_scores(w, group);
      for (int worker = 0; worker < policy_workers; ++worker)
        wait_phase(memory + K::decayed_empty + 8 * (2 * worker + buffer), parity);
      const auto decay_for = [&](int worker) {
        kernels::HeadChunk<W> chunk;
        const auto& decays = K::decays(stage, worker);
        if constexpr (features.documents) chunk.decays.document.at = decays.document_start;
        chunk.decays.table.at = &decays;
        chunk.decayed.at = base + (K::decayed_at + (2 * worker + buffer) * K::decayed_tile) / 16;
        kernels::decay_scores(w, call, kernels::HeadRule{}, worker, group, chunk);
      };
      static_assert(policy_workers == 2);
      if (one_head) {
        decay_for(0);
      } else {  // in one go: they take turns
        decay_for(0);
        decay_for(1);
      }
      publish_to_engines();
      __syncwarp();
      if (lane < policy_workers) arrive(memory + K::decayed_full + 8 * (2 * lane + buffer));
      if (lane == 0) arrive(memory + K::empty + 8 * stage);
    };
    // Two chunks a turn, so that which accumulators and which buffer is known when this is compiled. Past the end
    // something old is multiplied, which nobody uses.
    kernels::GroupChunk<W> even, odd;
    Ring<K::stages> ring;
    const int chunks = segment.chunks;
    if constexpr (features.chained) make_first_lap(ring);
    if constexpr (K::features.scored) wait_for_last_launch();
    auto first = begin(even, ring, true, 0);
    end(first, even, true, 0);
    for (int k = 0; k < chunks; k += 2) {
      const int even_stage = ring.stage;
      const unsigned even_ready = ring.parity;
      ring.advance();
      auto odd_product = begin(odd, ring, k + 1 < chunks, k + 1);
      decay(even, even_stage, even_ready, 0, (k / 2 & 1) ^ 1);
      end(odd_product, odd, k + 1 < chunks, 1);
      const int odd_stage = ring.stage;
      const unsigned odd_ready = ring.parity;
      ring.advance();
      auto even_product = begin(even, ring, k + 2 < chunks, k + 2);
      if (k + 1 < chunks) decay(odd, odd_stage, odd_ready, 1, (k / 2 & 1) ^ 1);
      end(even_product, even, k + 2 < chunks, 0);
    }
  }

  // -----------------------------------------------------------------------------------------------------------------------
  // heads
  struct Segments {
    const Segment& cut;
  };
  struct HeadCall {
    NotGiven seq_idx;
    std::conditional_t<features.rich, const kernels::TokenView&, NotGiven> z;
    const kernels::TokenView& y;
    const kernels::HeadView& D;
    const States &initial_states, &entry_states;
    const kernels::StateView& final_states;
    std::conditional_t<features.rich, const kernels::StateView&, NotGiven> chunk_states;
    const Segments sequences;
    const kernels::ChunkVectors& segment_decays;
  };
  TILEMAMBA_DEVICE HeadCall head_call() const {
    const kernels::Call& call = job.call;
    if constexpr (features.rich) {
      return {{},
              call.z,
              call.y,
              call.D,
              job.initial_states,
              job.entry_states,
              call.final_states,
              call.chunk_states,
              {segment},
              call.segment_decays};
    } else {
      return {{},
              {},
              call.y,
              call.D,
              job.initial_states,
              job.entry_states,
              call.final_states,
              {},
              {segment},
              call.segment_decays};
    }
  }

  TILEMAMBA_DEVICE void walk_head(int worker) const {
    using W = typename K::HeadWorker;
    if constexpr (K::finishes_late) worker = forgotten(worker);  // asked for anew it takes long
    // Looked up again where it is needed: in between there are no registers for it.
    const auto again = [](int value) { return features.chained || E::dtype == DType::f16 ? forgotten(value) : value; };
    const auto slice = [&]() -> const tile::Slice& { return segment.slices[again(worker)]; };
    const auto real = [&] { return worker < segment.often.real_workers; };
    const int leader = __shfl_sync(~0u, segment.leaders[worker], 0);
    W w{lane, warp % 4, worker, 0, 0};
    const auto see_channels = [&] { w.channels = min(channels_of_slice, job.call.head_dim - slice().channel); };
    const HeadCall call = head_call();
    kernels::Carried<W> carried;
    kernels::Output<W> out;
    see_channels();
    Ring<K::stages> ring;
    Ring<K::x_stages> x_ring;
    const unsigned base = memory / 16;
    const auto chunk_at = [&](int stage, int x_stage) {
      kernels::HeadChunk<W> chunk;
      const auto& decays = K::decays(stage, leader);
      chunk.x.at = base + (K::x_at + x_stage * K::head_bytes + worker * plane_bytes) / 16;
      chunk.decays.entry.at = decays.entry;
      chunk.decays.exit.at = decays.exit;
      return chunk;
    };
    const auto store = [&](int x_stage, int k) {
      if (!features.wide || real())
        kernels::store_output(w, call, features.wide ? tokens(k) : tile::Tokens{}, slice(), out);
      __syncwarp();
      if (lane == 0) arrive(memory + K::y_full + 8 * x_stage);
    };
    const auto look_at_z = [&](auto& chunk, int k) {
      if constexpr (features.rich) {
        w.lane = forgotten(w.lane);
        if (call.z.given) wait_phase(memory + K::z_full + 8 * (k % 2), k / 2 & 1);
        chunk.z.at =
            base +
            (K::z_at + k % 2 * K::z_bytes + (K::parts > 1 ? forgotten(worker) : worker) * K::own_tokens * 128) / 16;
      }
    };
    const auto finish = [&](kernels::HeadChunk<W>& chunk, int k) {
      look_at_z(chunk, k);
      if constexpr (!features.wide) out.leaving.at = chunk.x.at;
      kernels::finish_output(w, call, slice(), chunk, out);
    };
    // Where a cluster shares the columns: the others' parts have had time to come.
    const auto finish_shared = [&](int x_stage, int k) {
      w.lane = forgotten(w.lane);
      if constexpr (features.wide) see_channels();
      auto chunk = chunk_at(0, x_stage);
      w.take(out.y, static_cast<unsigned>(k));
      finish(chunk, k);
      store(x_stage, k);
    };
    if constexpr (features.chained) {
      w.lane = forgotten(w.lane);
      float left = 1.0f;
      kernels::Carried<W> sum;
      w.zero(sum.S);
#pragma unroll 1
      for (int k = first_lap(); k > 0; --k, ring.advance(), x_ring.advance()) {
        wait_phase(memory + K::full + 8 * ring.stage, ring.parity);
        wait_phase(memory + K::x_full + 8 * x_ring.stage, x_ring.parity);
        auto chunk = chunk_at(ring.stage, x_ring.stage);
        kernels::GroupChunk<W> group;
        group.B.at = base + (ring.stage * K::stage_bytes + K::group_bytes) / 16;
        w.fetch(chunk.x);
        auto advance = kernels::step_sum(w, group, chunk.decays, chunk.x, sum, left);
        w.wait(advance);
        __syncwarp();
        if (lane == 0) {
          arrive(memory + K::empty + 8 * ring.stage);
          arrive(memory + K::y_full + 8 * x_ring.stage);
        }
      }
      w.lane = forgotten(w.lane);
      wait_for_cluster();
      kernels::scan_sums(w, segment.sequence, segment.index, left, sum);
      carried.S = sum.S;
      w.lane = forgotten(w.lane);
    } else {
      wait_for_last_launch();
      kernels::gather_segments(w, call, segment.sequence, segment.index, slice(), carried);
    }
    int last_x_stage = 0;
    const int chunks = segment.chunks;
    if (chunks > 0) {
      wait_phase(memory + K::decayed_full + 8 * 2 * worker, 0);  // before, D has been found
      wait_phase(memory + K::full + 8 * ring.stage, ring.parity);
      wait_phase(memory + K::x_full + 8 * x_ring.stage, x_ring.parity);
      auto chunk = chunk_at(ring.stage, x_ring.stage);
      w.fetch(chunk.x);
      kernels::prepare_state(w, chunk.decays, chunk.x, carried);
    }
    for (int k = 0; k < chunks; ++k) {
      const int stage = ring.stage, x_stage = x_ring.stage, buffer = k & 1;
      kernels::GroupChunk<W> group;
      group.C.at = base + stage * (K::stage_bytes / 16);
      group.B.at = group.C.at + K::group_bytes / 16;
      auto chunk = chunk_at(stage, x_stage);
      chunk.decayed = {base + (K::decayed_at + (2 * leader + buffer) * K::decayed_tile) / 16,
                       memory + K::decayed_full + 8 * (2 * worker + buffer), static_cast<unsigned>(k / 2 & 1)};
      const auto prepare_next = [&] {
        last_x_stage = x_ring.stage;
        ring.advance();
        x_ring.advance();
        // Past the end: something old, and a state that decays by one; nobody uses what comes of it but the state.
        if (k + 1 < chunks) {
          wait_phase(memory + K::full + 8 * ring.stage, ring.parity);
          wait_phase(memory + K::x_full + 8 * x_ring.stage, x_ring.parity);
        }
        auto next = chunk_at(ring.stage, x_ring.stage);
        if (k + 1 >= chunks) next.decays.entry.at = reinterpret_cast<const float*>(shared_memory + K::ones_at);
        w.fetch(next.x);
        kernels::prepare_state(w, next.decays, next.x, carried);
      };
      w.chunk = static_cast<unsigned>(k);
      // One head after the other: products that are issued at once end at once, and then none are under way.
      static_assert(policy_workers == 2);
      wait_phase(memory + K::turn + 8 * worker, (k & 1) ^ (worker == 0));
      kernels::step_fused(
          w, call, group, chunk, carried, out,
          [&] {
            __syncwarp();
            if (lane == 0) arrive(memory + K::turn + 8 * (worker ^ 1));
            if (!features.wide && K::parts == 1 && k > 0) store(last_x_stage, k - 1);
            if (K::finishes_late && k > 0) finish_shared(x_ring.previous(), k - 1);
            if constexpr (features.documents || K::E::dtype == DType::f16 || K::parts > 1) w.lane = forgotten(w.lane);
          },
          [&] {
            if constexpr (features.rich) {
              w.lane = forgotten(w.lane);
              if constexpr (K::parts > 1 && features.wide) see_channels();
              if (real()) kernels::put_snapshot(w, call, segment.sequence, tokens(k), slice(), carried);
            }
            if constexpr (K::prepares_early) {
              // B and C are done with: what comes next there is on its way while the next chunk is prepared.
              __syncwarp();
              if (lane == 0) arrive(memory + K::empty + 8 * stage);
              prepare_next();
            }
          });
      w.collect(out.y, chunk.x);
      __syncwarp();
      if (lane == 0) {
        if constexpr (!K::prepares_early) arrive(memory + K::empty + 8 * stage);
        arrive(memory + K::decayed_empty + 8 * (2 * worker + buffer));
      }
      if constexpr (K::parts == 1) finish(chunk, k);
      if constexpr (K::parts > 1 && !K::finishes_late) finish_shared(x_stage, k);
      if constexpr (!K::prepares_early) prepare_next();
      if constexpr (features.wide && K::parts == 1) store(last_x_stage, k);
    }
    if (chunks > 0) {
      if constexpr (K::finishes_late) finish_shared(x_ring.previous(), chunks - 1);
      if constexpr (!features.wide && K::parts == 1) store(last_x_stage, chunks - 1);
    }
    if constexpr (K::leaves_early) leave_cluster();
    see_channels();
    if (real() && segment.is_last()) kernels::finish_state(w, call, segment.sequence, slice(), carried);
  }
};

template <class K>
__global__ void __launch_bounds__(K::threads, 1) walk(const __grid_constant__ Job job) {
  Segment& segment = *reinterpret_cast<Segment*>(shared_memory + K::segment_at);
  let_next_launch_start();
  const unsigned memory = shared_address(0);
  int work = 0;
  // Each warp has something to do before the roles begin.
  if (threadIdx.x == 0) work = find_segment<K>(segment, job);
  if (threadIdx.x == 32) K::init_barriers(memory);
  if (threadIdx.x == 64 && job.chunks_of_row > 0) {
    for (const Map* map : {&job.maps.B, &job.maps.C, &job.maps.x}) {
      if (!map->by_hand) prefetch_map(map->map);
    }
  }
  // After another launch of this call it is only that one which must be waited for, and later.
  if (threadIdx.x == 96 && !job.follows) wait_for_last_launch();
  if (threadIdx.x >= 128) {
    const unsigned thread = threadIdx.x - 128;
    // Above the diagonal the decayed scores stay zero.
    for (unsigned k = thread * 16; k < K::decayed_bytes; k += (K::threads - 128) * 16) {
      *reinterpret_cast<uint4*>(shared_memory + K::decayed_at + k) = {};
    }
    if (thread < q) reinterpret_cast<float*>(shared_memory + K::ones_at)[thread] = 1.0f;
    publish_to_engines();
  }
  if (__syncthreads_or(work) == 0) return;
  K::Cores::template begin<K>();
  if constexpr (K::in_cluster) arrive_at_cluster();  // nobody reaches into a block before its barriers are there
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
  const Walk<K> roles{job, segment, memory, warp, threadIdx.x % 32};
  if (warp < 4) {
    give_registers<K::mover_registers>();
    if (warp == 0) {
      roles.load_group();
    } else if (warp == 3) {
      roles.move_heads();
    } else {
      roles.sum_decays(warp - 1);
    }
    if constexpr (K::in_cluster) wait_for_cluster();
    if constexpr (K::leaves_early) leave_cluster();
  } else if (warp < 8) {
    set_registers<K::score_registers, 128>();
    if constexpr (K::in_cluster) wait_for_cluster();
    if (segment.chunks > 0) roles.make_scores();
    if constexpr (K::leaves_early) leave_cluster();
  } else {
    take_registers<K::head_registers>();
    if constexpr (K::parts > 1 && !K::features.chained) wait_for_cluster();
    roles.walk_head(warp / 4 - 2);
  }
  K::Cores::template end<K>();
  // Nor once it has gone; of a chain nobody does when it has its state.
  if constexpr (K::leaves_early) {
    wait_for_cluster();
  } else if constexpr (K::parts > 1) {
    meet_cluster();
  }
}

}  // namespace tilemamba::cuda::tma
