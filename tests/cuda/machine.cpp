// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/state.hpp"

namespace tilemamba::test::cuda {

thread_local Mistake mistake = Mistake::none;
thread_local std::unordered_set<std::uintptr_t> written_before, written_now, unfinished;
thread_local int launches_before = 0;
thread_local Machine* at_work = nullptr;

// ------------------------------------------------------------------------------------------------------------ launches

void make(Mistake what) { mistake = what; }
bool makes(Mistake what) { return mistake == what; }
void forget_launches() { written_before.clear(), unfinished.clear(), launches_before = 0; }

std::string run(const Launch& launch, const std::function<void()>& body, std::uint64_t seed) {
  Machine machine(launch, seed);
  if (launch.blocks % launch.cluster != 0 || launch.threads % warp_size != 0 ||
      launch.threads > most_warps * warp_size || launch.shared_bytes > 227 * 1024 || launch.cluster > 8)
    return "a launch that no device takes";
  Machine* const before = at_work;
  at_work = &machine;
  written_now.clear();
  if (!launch.early) unfinished.clear();
  for (unsigned k = 0; k < launch.blocks / launch.cluster && machine.fault.empty(); ++k) machine.run_cluster(k, body);
  at_work = before;
  // Who waits for an early launch waits for what that has waited for, too.
  if (launch.early) (machine.waited_for_last_launch ? written_now : unfinished).merge(written_before);
  std::swap(written_before, written_now);
  ++launches_before;
  return machine.fault;
}

Index thread_index() { return {at_work->in_block(at_work->me()), 0, 0}; }
Index block_index() { return {at_work->first_block + at_work->block_of(at_work->me()), 0, 0}; }
Index block_size() { return {at_work->its.threads, 1, 1}; }
Index grid_size() { return {at_work->its.blocks, 1, 1}; }
int warp() { return static_cast<int>(at_work->warp_of(at_work->me())); }
int lane() { return static_cast<int>(at_work->in_block(at_work->me())) % warp_size; }
void complain(const std::string& fault) { at_work->complain_here(fault); }

unsigned char* shared_memory() { return at_work->my_block().memory; }
unsigned shared_address() { return at_work->my_address(); }
void read_shared(unsigned address, void* to, unsigned size) {
  const auto at = at_work->where(address, size, size);
  at_work->i_read(at, size);
  std::memcpy(to, at_work->blocks[at.block].memory + at.offset, size);
}
void write_shared(unsigned address, const void* from, unsigned size) {
  const auto at = at_work->where(address, size, size);
  if (at.block != at_work->block_of(at_work->me())) complain("ordinary writes do not reach into another block");
  at_work->i_write(at, size);
  std::memcpy(at_work->blocks[at.block].memory + at.offset, from, size);
}

// ------------------------------------------------------------------------------------------------------------ meetings

void meet_warp() {
  if (mistake == Mistake::warp_does_not_meet) return;
  at_work->gather_warp(nullptr, [](const std::vector<int>& all) { at_work->share(all); });
}
int meet_block(int vote) {
  Meeting& meeting = at_work->my_block().meetings[0];
  at_work->meet(meeting, static_cast<int>(at_work->its.threads), vote != 0, "the other threads of its block");
  return meeting.result;
}
void meet_some(int id, int threads) {
  at_work->meet(at_work->my_block().meetings.at(static_cast<std::size_t>(id)), threads, 0,
                "others at barrier " + std::to_string(id));
}
void arrive_at_cluster() {
  if (mistake == Mistake::cluster_does_not_meet) return;
  Barrier& barrier = at_work->cluster_barrier;
  at_work->mine().cluster_phase = barrier.phase;
  at_work->tell(barrier.gathered, at_work->me());
  at_work->count(barrier, 1, 0);
}
void wait_for_cluster() {
  if (mistake == Mistake::cluster_does_not_meet) return;
  Barrier& barrier = at_work->cluster_barrier;
  if (barrier.phase != at_work->mine().cluster_phase) return at_work->learn(at_work->me(), barrier.released);
  barrier.waiting.push_back(at_work->me());
  at_work->sleep("the other threads of its cluster");
}
void together(void* mine, void (*perform)(void* const*)) {
  at_work->gather_warp(mine, [&](const std::vector<int>&) { perform(at_work->my_warp().objects.data()); });
}

std::uint32_t of_lane(std::uint32_t bits, int from) {
  struct Lane {
    std::uint32_t bits;
    int from;
    std::uint32_t result;
  } mine{bits, from >= 0 && from < warp_size ? from : lane(), 0};
  together(&mine, [](void* const* all) {
    for (int i = 0; i < warp_size; ++i) {
      auto& its = *static_cast<Lane*>(all[i]);
      its.result = static_cast<const Lane*>(all[its.from])->bits;
    }
  });
  return mine.result;
}

// ----------------------------------------------------------------------------------------------------------- mbarriers

void barrier_init(unsigned address, int arrivals) {
  const auto at = at_work->where(address, 8, 8);
  Block& block = at_work->blocks[at.block];
  if (block.barrier_at.contains(at.offset)) complain("there is a barrier already at " + at_work->text(at));
  if (block.barriers.size() == most_barriers) complain("more barriers than this machine has");
  block.barrier_at[at.offset] = static_cast<int>(block.barriers.size());
  Barrier& barrier = block.barriers.emplace_back();
  barrier.arrivals = barrier.pending = arrivals;
  barrier.made = at_work->my_epoch();
}
void publish_barriers() {
  for (Barrier& barrier : at_work->my_block().barriers) barrier.published = true;
}
namespace {
/// The mistake is `of_scores` or `of_outputs`, and this is one of the warps that would make it.
bool makes_here(Mistake of_scores, Mistake of_outputs) {
  return (mistake == of_scores && warp() >= 4 && warp() < 8) || (mistake == of_outputs && warp() >= 8);
}
}  // namespace

void arrive(unsigned address, unsigned bytes) {
  Barrier& barrier = at_work->barrier(address, false);
  const bool miscounted = mistake == Mistake::bytes_miscounted ||
                          makes_here(Mistake::scores_bytes_miscounted, Mistake::outputs_bytes_miscounted);
  if (bytes != 0 && miscounted) bytes -= 16;
  if (at_work->where(address, 8, 8).block != at_work->block_of(at_work->me())) barrier.of_cluster = true;
  if (mistake == Mistake::arrival_left_out && warp() == 8) return;
  at_work->tell(barrier.gathered, at_work->me());
  barrier.bytes += bytes;
  if (mistake == Mistake::arrival_too_many && warp() == 8) at_work->count(barrier, 1, 0);
  at_work->count(barrier, 1, 0);
}
void wait_phase(unsigned address, unsigned parity) {
  Barrier& barrier = at_work->barrier(address, false);
  if (mistake == Mistake::wait_left_out && warp() >= 8) return;
  if (mistake == Mistake::wait_for_room_left_out && warp() == 0) return;
  if (mistake == Mistake::parity_swapped && warp() >= 8) parity ^= 1;
  if (barrier.of_cluster) {
    if (makes_here(Mistake::scores_not_waited_for, Mistake::outputs_not_waited_for)) return;
    if (makes_here(Mistake::scores_parity_swapped, Mistake::outputs_parity_swapped)) parity ^= 1;
  }
  if ((barrier.phase & 1) != (parity & 1)) return at_work->learn(at_work->me(), barrier.released);
  barrier.waiting.push_back(at_work->me());
  at_work->sleep("the barrier at " + at_work->text(at_work->where(address, 8, 8)) + ", parity " +
                 std::to_string(parity) + ", " + std::to_string(barrier.pending) + " arrivals and " +
                 std::to_string(barrier.bytes) + " bytes of its phase to come");
}
bool phase_done(unsigned address, unsigned parity) {
  Barrier& barrier = at_work->barrier(address, false);
  if (mistake == Mistake::parity_swapped && warp() >= 8) parity ^= 1;
  if ((barrier.phase & 1) == (parity & 1)) return false;
  at_work->learn(at_work->me(), barrier.released);
  return true;
}
void publish_to_engines() {
  if (mistake == Mistake::fence_left_out) return;
  const Epoch now = at_work->my_epoch();
  at_work->mine().fences.push_back(now.clock);
  ++at_work->clock(at_work->me())[now.who];
}

}  // namespace tilemamba::test::cuda

// --------------------------------------------------------------------------- what -fsanitize=thread calls in kernels'
// text

namespace {
void touch(const void* at, std::size_t size, bool write) {
  if (size == 0) return;
  if (auto* const machine = tilemamba::test::cuda::at_work) machine->touch(at, size, write);
}
}  // namespace

#define TILEMAMBA_TOUCH(size)                                            \
  void __tsan_read##size(void* at) { touch(at, size, false); }           \
  void __tsan_write##size(void* at) { touch(at, size, true); }           \
  void __tsan_unaligned_read##size(void* at) { touch(at, size, false); } \
  void __tsan_unaligned_write##size(void* at) { touch(at, size, true); }

extern "C" {
TILEMAMBA_TOUCH(1)
TILEMAMBA_TOUCH(2)
TILEMAMBA_TOUCH(4)
TILEMAMBA_TOUCH(8)
TILEMAMBA_TOUCH(16)
void __tsan_read_range(void* at, unsigned long size) { touch(at, size, false); }
void __tsan_write_range(void* at, unsigned long size) { touch(at, size, true); }
// clang's, in the place of the functions of the C library.
void* __tsan_memcpy(void* to, const void* from, unsigned long size) {
  touch(from, size, false), touch(to, size, true);
  return std::memcpy(to, from, size);
}
void* __tsan_memmove(void* to, const void* from, unsigned long size) {
  touch(from, size, false), touch(to, size, true);
  return std::memmove(to, from, size);
}
void* __tsan_memset(void* to, int value, unsigned long size) {
  touch(to, size, true);
  return std::memset(to, value, size);
}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
}
#undef TILEMAMBA_TOUCH
