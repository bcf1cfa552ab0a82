// SPDX-License-Identifier: Apache-2.0
/// @file
/// The state of the machine of machine.hpp, and what its engines have in common.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/tile/scalar.hpp"
#include "tests/cuda/machine.hpp"
#include "tests/lanes/fibers.hpp"

namespace tilemamba::test::cuda {

constexpr int warp_size = 32, most_warps = 16, most_barriers = 64;
constexpr std::size_t block_stride = std::size_t{1} << 18;  ///< from one block's shared memory to the next one's
constexpr std::size_t cell_bytes = 4;

/// The `clock`th thing that `who` has done. Whoever can do things has a number: threads, and engines that work for
/// them.
struct Epoch {
  std::uint32_t who, clock;
};
constexpr std::uint32_t nobody = ~0u;

/// Who has used a cell of shared memory: its last writer, and since then the last reader of each warp and of each
/// warp's engines (which one of a warp's lanes is chance, so that a lane that nobody has heard of is seen sooner or
/// later).
struct Cell {
  Epoch writer{nobody, 0};
  std::uint64_t readers = 0;  ///< a bit each
  bool by_engine = false;     ///< it was written through the proxy of the engines
};
enum : unsigned {
  threads_of_warp = 0,
  tensor_core_of_warp = most_warps,
  stores_of_warp = 2 * most_warps,
  reader_kinds = 3 * most_warps
};

struct Barrier {
  int arrivals = 0, pending = 0;
  std::int64_t bytes = 0;
  unsigned phase = 0;
  Epoch made{};
  bool published = false;
  bool of_cluster = false;                        ///< another block has reached it
  std::vector<std::uint32_t> gathered, released;  ///< what those that arrive know: in this phase, in the last one
  std::vector<int> waiting;
};

/// A use of tensor memory is counted by kind and warp: loads, stores and products are all done in the background.
enum : unsigned {
  tensor_loads = 0,
  tensor_stores = most_warps,
  tensor_products = 2 * most_warps,
  tensor_users = 3 * most_warps
};
constexpr unsigned tensor_columns = 512, tensor_lanes = 128, lanes_of_cell = 16;
/// Sixteen lanes of a column.
struct TensorCell {
  Epoch writer{nobody, 0};
  std::uint64_t readers = 0;
  std::array<std::uint32_t, tensor_users> reader_clocks{};
};
/// What one warp has given to the tensor core: products, and commits to barriers.
struct TensorWork {
  std::optional<TensorProduct> product;
  Barrier* barrier = nullptr;
  std::uint32_t clock = 0;  ///< a commit's: of the last product that it speaks of
  bool done = false;
};
/// A register of a product that is under way.
struct Registers {
  const std::byte* at;
  std::size_t size;
  int group;
  bool read_only;  ///< an operand
};
struct Thread {
  std::vector<std::uint32_t> fences;  ///< when it published what it had written
  std::vector<Registers> under_way;
  int groups = 0;  ///< of products that it has committed
  bool fenced = false;
  unsigned cluster_phase = 0;                        ///< in which it arrived at its cluster's barrier
  std::array<std::uint32_t, tensor_users> tensor{};  ///< uses of tensor memory that its own may follow
  std::string waits_for;
};

constexpr int loading = -1;  ///< in the place of a group: registers that tensor memory is loaded into

/// A product of a warp's 16 rows, issued by all its lanes.
struct WarpProduct {
  Product what;
  int group;
  std::uint32_t clock;
  std::array<float*, warp_size> d;
  std::array<std::array<std::uint32_t, 4>, warp_size> a;
};
struct Warp {
  std::array<void*, warp_size> objects{};
  std::vector<int> here;  ///< lanes that have come to a meeting of the warp
  std::deque<WarpProduct> products;
  std::uint32_t tensor_clock = 0, store_clock = 0;
  std::deque<TensorWork> tensor_work;
  std::uint32_t tensor_load_clock = 0, tensor_store_clock = 0;
  std::vector<std::uint32_t> clock_of_group;
};
/// Threads that meet.
struct Meeting {
  std::vector<int> here;
  int expected = 0, vote = 0;
  int result = 0;  ///< of the last time
};
struct Block {
  unsigned char* memory = nullptr;
  std::vector<Cell> cells;
  std::vector<Epoch> readers;  ///< reader_kinds of each cell
  std::vector<Warp> warps;
  std::map<unsigned, int> barrier_at;  ///< by offset
  std::deque<Barrier> barriers;
  std::array<Meeting, 16> meetings;
  std::array<std::uint32_t, most_barriers> engine_clocks{};
  int left = 0;
  std::vector<std::uint32_t> tensor;  ///< words of tensor memory, lane by lane
  std::vector<TensorCell> tensor_cells;
  unsigned tensor_begin = 0, tensor_end = 0;  ///< columns that are allocated
  bool relinquished = false;
};

/// What the copy engine takes from shared memory.
struct Store {
  std::function<void()> perform;
  int thread;
  bool committed = false, done = false;
};

extern thread_local Mistake mistake;
// Granules of global memory. `unfinished`: written by launches that may go on when the last one has ended.
extern thread_local std::unordered_set<std::uintptr_t> written_before, written_now, unfinished;
extern thread_local int launches_before;  ///< of this sequence
constexpr int granule_bits = 4;

class Machine {
 public:
  Machine(const Launch& launch, std::uint64_t seed)
      : its(launch),
        per_block_(its.threads + 2 * most_warps + most_barriers),
        dimensions_(its.cluster * per_block_ + 1),
        all_dimensions_(dimensions_ + its.cluster * tensor_users),
        count_(static_cast<int>(its.cluster * its.threads)),
        fibers(count_),
        random_(seed),
        memory_(new unsigned char[its.cluster * block_stride + 1024]) {
    elected = static_cast<int>(random(warp_size));
    arena_ = reinterpret_cast<unsigned char*>((reinterpret_cast<std::uintptr_t>(memory_.get()) + 1023) / 1024 * 1024);
  }

  Launch its;

 private:
  unsigned per_block_, dimensions_;
  unsigned all_dimensions_;  ///< and the uses of tensor memory that have been heard of, in case a fence follows
  int count_;

 public:
  lanes::Fibers fibers;
  unsigned first_block = 0;
  std::vector<Thread> threads;
  std::vector<Block> blocks;
  std::string fault;
  bool busy = false, waited_for_last_launch = false;

  void run_cluster(unsigned index, const std::function<void()>& body) {
    first_block = index * its.cluster;
    threads = std::vector<Thread>(static_cast<std::size_t>(count_));
    clocks_.assign(static_cast<std::size_t>(count_) * all_dimensions_, 0);
    for (int t = 0; t < count_; ++t) clock(t)[number(t)] = 1;
    blocks.resize(its.cluster);
    const std::size_t cells = (its.shared_bytes + cell_bytes - 1) / cell_bytes;
    for (unsigned b = 0; b < its.cluster; ++b) {
      Block& block = blocks[b];
      block.memory = arena_ + b * block_stride;
      std::memset(block.memory, 0xff, its.shared_bytes);
      block.cells.assign(cells, {});
      block.readers.resize(cells * reader_kinds);
      block.warps = std::vector<Warp>((its.threads + warp_size - 1) / warp_size);
      block.barrier_at.clear(), block.barriers.clear(), block.engine_clocks = {};
      block.meetings = {};
      block.left = static_cast<int>(its.threads);
      block.tensor_begin = block.tensor_end = 0;
      block.relinquished = false;
    }
    cluster_barrier = {};
    cluster_barrier.arrivals = cluster_barrier.pending = count_;
    loads.clear(), stores_under_way.clear();
    ready_.clear();
    for (int t = 0; t < count_; ++t) ready_.push_back(t);
    running_ = -1;
    fibers.run(
        [&] {
          body();
          end_of_thread();
        },
        [this] { return next(); });
  }

  // ----------------------------------------------------------------------------------------------------- who is who
  [[nodiscard]] int me() const { return fibers.current(); }
  [[nodiscard]] unsigned block_of(int thread) const { return static_cast<unsigned>(thread) / its.threads; }
  [[nodiscard]] unsigned in_block(int thread) const { return static_cast<unsigned>(thread) % its.threads; }
  [[nodiscard]] unsigned warp_of(int thread) const { return in_block(thread) / warp_size; }
  [[nodiscard]] Block& my_block() { return blocks[block_of(me())]; }
  [[nodiscard]] Warp& my_warp() { return my_block().warps[warp_of(me())]; }
  [[nodiscard]] Thread& mine() { return threads[static_cast<std::size_t>(me())]; }
  [[nodiscard]] int first_of_block(unsigned block) const { return static_cast<int>(block * its.threads); }

  [[nodiscard]] std::uint32_t number(int thread) const { return block_of(thread) * per_block_ + in_block(thread); }
  [[nodiscard]] std::uint32_t tensor_core(unsigned block, unsigned warp) const {
    return block * per_block_ + its.threads + warp;
  }
  [[nodiscard]] std::uint32_t stores(unsigned block, unsigned warp) const {
    return block * per_block_ + its.threads + most_warps + warp;
  }
  [[nodiscard]] std::uint32_t engine(unsigned block, int barrier) const {
    return block * per_block_ + its.threads + 2 * most_warps + static_cast<unsigned>(barrier);
  }
  [[nodiscard]] std::uint32_t last_launch() const { return dimensions_ - 1; }

  [[nodiscard]] std::string name(std::uint32_t who) const {
    const unsigned block = who / per_block_, index = who % per_block_;
    std::string text;
    if (index < its.threads) {
      text = "warp " + std::to_string(index / warp_size) + " lane " + std::to_string(index % warp_size);
    } else if (index < its.threads + most_warps) {
      text = "a product of warp " + std::to_string(index - its.threads);
    } else if (index < its.threads + 2 * most_warps) {
      text = "the copy engine, storing for warp " + std::to_string(index - its.threads - most_warps);
    } else {
      const int barrier = static_cast<int>(index - its.threads - 2 * most_warps);
      text = "the copy engine, loading";
      for (const auto& [offset, its_index] : blocks[block].barrier_at) {
        if (its_index == barrier) text += " for the barrier at " + std::to_string(offset);
      }
    }
    return its.cluster > 1 ? text + " of block " + std::to_string(block) : text;
  }

  [[nodiscard]] std::uint32_t* clock(int thread) {
    return clocks_.data() + static_cast<std::size_t>(thread) * all_dimensions_;
  }
  static void learn(std::uint32_t* mine, const std::uint32_t* others, unsigned count) {
    for (unsigned k = 0; k < count; ++k) mine[k] = std::max(mine[k], others[k]);
  }
  void learn(int thread, const std::vector<std::uint32_t>& others) {
    if (!others.empty()) learn(clock(thread), others.data(), all_dimensions_);
  }
  void tell(std::vector<std::uint32_t>& others, int thread) {
    if (others.empty()) others.assign(all_dimensions_, 0);
    learn(others.data(), clock(thread), all_dimensions_);
    ++clock(thread)[number(thread)];
  }
  void tell(std::vector<std::uint32_t>& others, Epoch epoch) {
    if (others.empty()) others.assign(all_dimensions_, 0);
    others[epoch.who] = std::max(others[epoch.who], epoch.clock);
  }

  [[noreturn]] void complain(const std::string& what) {
    if (fault.empty()) fault = what;
    fibers.stop();
  }
  [[noreturn]] void complain_here(const std::string& what) {
    complain("block " + std::to_string(first_block + block_of(me())) + ", " + name(number(me())) + ": " + what);
  }

  // ------------------------------------------------------------------------------------------------------- whose turn
  void wake(int thread) {
    threads[static_cast<std::size_t>(thread)].waits_for.clear();
    ready_.push_back(thread);
  }
  /// Others take their turns until somebody wakes this thread.
  void sleep(std::string why) {
    mine().waits_for = std::move(why);
    running_ = -1;
    fibers.give_way();
  }
  int next() {
    if (running_ >= 0 && !fibers.done(running_)) ready_.push_back(running_);
    running_ = -1;
    if (fibers.left() == 0) return -1;
    if (random(8) == 0) something_in_the_background();
    while (ready_.empty()) {
      if (!something_in_the_background()) {
        say_who_waits();
        return -1;
      }
    }
    const std::size_t chosen = random(ready_.size());
    running_ = ready_[chosen];
    ready_[chosen] = ready_.back();
    ready_.pop_back();
    return running_;
  }
  /// The device's engines have no order among each other.
  bool something_in_the_background() {
    busy_warps_.clear();
    for (Block& block : blocks) {
      for (Warp& warp : block.warps) {
        if (!warp.products.empty() || !warp.tensor_work.empty()) busy_warps_.push_back({&block, &warp});
      }
    }
    waiting_stores_.clear();
    for (Store& store : stores_under_way) {
      if (!store.done) waiting_stores_.push_back(&store);
    }
    const std::size_t with_loads = loads.size(), with_stores = with_loads + waiting_stores_.size(),
                      all = with_stores + busy_warps_.size();
    if (all == 0) return false;
    const std::size_t chosen = random(all);
    if (chosen < with_loads) {
      std::swap(loads[chosen], loads.back());
      const std::function<void()> perform = std::move(loads.back());
      loads.pop_back();
      perform();
    } else if (chosen < with_stores) {
      perform(*waiting_stores_[chosen - with_loads]);
    } else {
      const auto& [block, warp] = busy_warps_[chosen - with_stores];
      warp->products.empty() ? perform_some(*block, *warp) : perform_first(*block, *warp);
    }
    return true;
  }
  static void perform(Store& store) {
    store.done = true;
    store.perform();
  }
  std::size_t random(std::size_t below) { return std::uniform_int_distribution<std::size_t>(0, below - 1)(random_); }

  void say_who_waits() {
    std::string all = "nobody can go on";
    std::map<std::string, std::string> who;
    for (int t = 0; t < count_; ++t) {
      const std::string& why = threads[static_cast<std::size_t>(t)].waits_for;
      if (fibers.done(t) || why.empty()) continue;
      std::string& names = who[why];
      if (names.size() < 60) names += (names.empty() ? "" : ", ") + name(number(t));
    }
    for (const auto& [why, names] : who) all += "; waiting for " + why + ": " + names;
    if (fault.empty()) fault = all;
  }

  void end_of_thread() {
    for (const Store& store : stores_under_way) {
      if (store.thread == me()) complain_here("it ends, and has not waited for a store from its block's memory");
    }
    if (!mine().under_way.empty()) complain_here("it ends, and a product of its registers is under way");
    if (--my_block().left == 0) {
      if (my_block().tensor_end > my_block().tensor_begin)
        complain_here("its block ends, and has not released its tensor memory");
      for (const Warp& warp : my_block().warps) {
        if (!warp.products.empty()) complain_here("its block ends, and a product is under way");
      }
    }
    running_ = -1;
  }

  // --------------------------------------------------------------------------------------------------- shared memory
  struct Where {
    unsigned block, offset;
  };
  Where where(unsigned address, std::size_t size, std::size_t alignment) {
    const Where at{address >> rank_bits, (address & ((1u << rank_bits) - 1)) - first_address};
    if (at.block >= its.cluster || at.offset > its.shared_bytes || at.offset + size > its.shared_bytes)
      complain_here("shared memory at " + text(at) + ", " + std::to_string(size) + " bytes, is beyond the block's " +
                    std::to_string(its.shared_bytes));
    if (at.offset % alignment != 0)
      complain_here("shared memory at " + text(at) + " is not aligned to " + std::to_string(alignment));
    if (blocks[at.block].left == 0) complain_here("shared memory of a block that has ended");
    return at;
  }
  [[nodiscard]] std::string text(const Where& at) const {
    return std::to_string(at.offset) + (its.cluster > 1 ? " of block " + std::to_string(at.block) : std::string());
  }
  [[nodiscard]] unsigned my_address() const { return block_of(me()) << rank_bits | first_address; }

  /// Who has been heard of: by a thread, or by all lanes of a warp.
  struct Knowledge {
    Machine& machine;
    int first, count;
    [[nodiscard]] std::uint32_t of(std::uint32_t who) const {
      std::uint32_t least = ~0u;
      for (int t = first; t < first + count; ++t) least = std::min(least, machine.clock(t)[who]);
      return least;
    }
  };
  void check_published(const Knowledge& known, const Cell& cell, const Where& at, const char* what) {
    const std::uint32_t who = cell.writer.who, index = who % per_block_;
    if (cell.by_engine || who == nobody || index >= its.threads) return;
    const auto thread = static_cast<std::size_t>(who / per_block_ * its.threads + index);
    const auto& fences = threads[thread].fences;
    const auto fence = std::lower_bound(fences.begin(), fences.end(), cell.writer.clock);
    if (fence == fences.end() || known.of(who) < *fence)
      complain_here(std::string(what) + " shared memory at " + text(at) + ", which " + name(who) +
                    " has written and not published (fence.proxy.async)");
  }
  void reads(Where at, std::size_t size, const Knowledge& known, Epoch reader, unsigned kind, bool is_engine,
             const char* what) {
    Block& block = blocks[at.block];
    for (std::size_t c = at.offset / cell_bytes; c <= (at.offset + size - 1) / cell_bytes; ++c) {
      Cell& cell = block.cells[c];
      if (cell.writer.who != nobody && cell.writer.who != reader.who && known.of(cell.writer.who) < cell.writer.clock)
        complain_here(std::string(what) + " shared memory at " +
                      text({at.block, static_cast<unsigned>(c * cell_bytes)}) + ", which " + name(cell.writer.who) +
                      " writes, and has not waited for that");
      if (is_engine) check_published(known, cell, {at.block, static_cast<unsigned>(c * cell_bytes)}, what);
      cell.readers |= std::uint64_t{1} << kind;
      block.readers[c * reader_kinds + kind] = reader;
    }
  }
  void writes(Where at, std::size_t size, const Knowledge& known, Epoch writer, bool is_engine, const char* what) {
    Block& block = blocks[at.block];
    for (std::size_t c = at.offset / cell_bytes; c <= (at.offset + size - 1) / cell_bytes; ++c) {
      Cell& cell = block.cells[c];
      const Where here{at.block, static_cast<unsigned>(c * cell_bytes)};
      const auto expect_known = [&](Epoch other, const char* does) {
        if (other.who != writer.who && known.of(other.who) < other.clock)
          complain_here(std::string(what) + " shared memory at " + text(here) + ", which " + name(other.who) + does +
                        ", and has not waited for that");
      };
      if (cell.writer.who != nobody) expect_known(cell.writer, " writes");
      for (std::uint64_t left = cell.readers; left != 0; left &= left - 1) {
        const int kind = __builtin_ctzll(left);
        expect_known(block.readers[c * reader_kinds + static_cast<std::size_t>(kind)], " reads");
      }
      if (is_engine) check_published(known, cell, here, what);
      cell = {writer, 0, is_engine};
    }
  }
  Knowledge my_knowledge() { return {*this, me(), 1}; }
  Knowledge warps_knowledge() { return {*this, me() - me() % warp_size, warp_size}; }
  Epoch my_epoch() { return {number(me()), clock(me())[number(me())]}; }
  void i_read(const Where& at, std::size_t size) {
    if (at.block != block_of(me())) complain_here("ordinary reads do not reach into another block");
    reads(at, size, my_knowledge(), my_epoch(), threads_of_warp + warp_of(me()), false, "it reads");
  }
  void i_write(const Where& at, std::size_t size) { writes(at, size, my_knowledge(), my_epoch(), false, "it writes"); }

  /// Of the kernel's own C++.
  void touch(const void* at, std::size_t size, bool write) {
    const auto* const byte = static_cast<const unsigned char*>(at);
    if (const auto offset = static_cast<std::size_t>(byte - arena_); offset < its.cluster * block_stride) {
      const Where where{static_cast<unsigned>(offset / block_stride), static_cast<unsigned>(offset % block_stride)};
      if (where.offset + size > its.shared_bytes)
        complain_here("shared memory at " + text(where) + " is beyond the block's " + std::to_string(its.shared_bytes));
      return write ? i_write(where, size) : i_read(where, size);
    }
    if (fibers.on_stack(at)) {
      if (!mine().under_way.empty()) touch_registers(static_cast<const std::byte*>(at), size, write);
      return;
    }
    touch_global(at, size, write);
  }
  void touch_registers(const std::byte* at, std::size_t size, bool write) {
    for (const Registers& registers : mine().under_way) {
      if (at + size <= registers.at || registers.at + registers.size <= at || (registers.read_only && !write)) continue;
      complain_here(std::string("it ") + (write ? "writes" : "reads") + " a register of a product that is under way");
    }
  }
  [[nodiscard]] bool is_early() { return its.early && clock(me())[last_launch()] == 0; }
  /// Of global memory.
  void touch_any() {
    if (launches_before == 0 && is_early())
      complain_here("it touches what belongs to the launch before, and has not waited for its end");
  }
  void touch_global(const void* at, std::size_t size, bool write) {
    touch_any();
    const auto first = reinterpret_cast<std::uintptr_t>(at) >> granule_bits,
               last = (reinterpret_cast<std::uintptr_t>(at) + size - 1) >> granule_bits;
    const bool too_early = !written_before.empty() && is_early();
    if (!write && !too_early && unfinished.empty()) return;
    for (std::uintptr_t k = first; k <= last; ++k) {
      if (too_early && written_before.contains(k))
        complain_here("it touches what the launch before has written, and has not waited for that");
      if (unfinished.contains(k))
        complain_here("it touches what a launch has written for whose end the next one has not waited");
      if (write) written_now.insert(k);
    }
  }

  // ------------------------------------------------------------------------------------------------------- meetings
  void meet(Meeting& meeting, int expected, int vote, const std::string& name_of_it) {
    if (!meeting.here.empty() && meeting.expected != expected)
      complain_here("it comes to " + name_of_it + " with others in mind than those that are there");
    meeting.expected = expected;
    meeting.vote |= vote;
    meeting.here.push_back(me());
    if (static_cast<int>(meeting.here.size()) < expected) {
      return sleep(name_of_it);
    }
    const std::vector<int> all = std::move(meeting.here);
    meeting.here.clear();
    meeting.result = std::exchange(meeting.vote, 0);
    share(all);
    for (const int t : all) {
      if (t != me()) wake(t);
    }
  }
  void share(const std::vector<int>& all) {
    gathered_.assign(all_dimensions_, 0);
    for (const int t : all) tell(gathered_, t);
    for (const int t : all) learn(t, gathered_);
  }
  /// All lanes of a warp; `perform` is done by the last one that comes.
  template <class Perform>
  void gather_warp(void* object, const Perform& perform) {
    Warp& warp = my_warp();
    warp.objects[in_block(me()) % warp_size] = object;
    warp.here.push_back(me());
    if (warp.here.size() < warp_size) return sleep("the other lanes of its warp");
    const std::vector<int> all = std::move(warp.here);
    warp.here.clear();
    perform(all);
    for (const int t : all) {
      if (t != me()) wake(t);
    }
  }
  Barrier cluster_barrier;

  // ------------------------------------------------------------------------------------------------------- mbarriers
  Barrier& barrier(unsigned address, bool from_engine) {
    const Where at = where(address, 8, 8);
    Block& block = blocks[at.block];
    const auto found = block.barrier_at.find(at.offset);
    if (found == block.barrier_at.end()) complain_here("there is no barrier at " + text(at));
    Barrier& barrier = block.barriers[static_cast<std::size_t>(found->second)];
    if (clock(me())[barrier.made.who] < barrier.made.clock)
      complain_here("the barrier at " + text(at) + " is made by " + name(barrier.made.who) +
                    ", and it has not waited for that");
    if ((from_engine || at.block != block_of(me())) && !barrier.published)
      complain_here("the barrier at " + text(at) + " has not been published (fence.mbarrier_init)");
    return barrier;
  }
  void count(Barrier& barrier, int arrivals, std::int64_t bytes) {
    if (arrivals > barrier.pending) complain_here("a barrier gets an arrival too many");
    barrier.pending -= arrivals;
    barrier.bytes += bytes;
    if (barrier.pending > 0 || barrier.bytes != 0) return;
    barrier.pending = barrier.arrivals;
    ++barrier.phase;
    barrier.released = std::move(barrier.gathered);
    barrier.gathered.clear();
    for (const int t : barrier.waiting) {
      learn(t, barrier.released);
      wake(t);
    }
    barrier.waiting.clear();
  }
  /// What an engine brings is there.
  void complete(Barrier& barrier, Epoch epoch, std::int64_t bytes) {
    tell(barrier.gathered, epoch);
    if (barrier.pending == 0 && barrier.bytes < bytes) complain("more bytes come to a barrier than are expected");
    count(barrier, 0, -bytes);
  }

  // ---------------------------------------------------------------------------------------------------- the copy
  // engine
  std::vector<std::function<void()>> loads;
  std::deque<Store> stores_under_way;

  // -------------------------------------------------------------------------------------------------------- products
  /// The 16-byte pieces of an operand.
  template <class See>
  void each_piece(std::uint64_t descriptor, bool transposed, int first_row, int rows, const See& see) {
    for (int inner = 0; inner < 16; inner += transposed ? 1 : 8) {
      for (int row = first_row; row < first_row + rows; row += transposed ? 8 : 1)
        see(where(block_of(me()) << rank_bits | in_shared(descriptor, transposed, row, inner), 16, 16));
    }
  }
  void issue(const std::vector<int>& all) {
    Warp& warp = my_warp();
    const unsigned w = warp_of(me());
    WarpProduct product;
    product.what = *static_cast<const Product*>(warp.objects[0]);
    product.group = threads[static_cast<std::size_t>(all[0])].groups;
    product.clock = ++warp.tensor_clock;
    for (const int t : all) {
      const unsigned lane = in_block(t) % warp_size;
      const auto& mine = *static_cast<const Product*>(warp.objects[lane]);
      Thread& thread = threads[static_cast<std::size_t>(t)];
      if (mine.b_descriptor != product.what.b_descriptor || mine.a_descriptor != product.what.a_descriptor)
        complain_here("the lanes of its warp have different descriptors");
      if (!thread.fenced) complain_here("a product without wgmma.fence");
      if (thread.groups != product.group) complain_here("lanes of a warp have committed different products");
      product.d[lane] = mine.d;
      keep(thread, mine.d, static_cast<std::size_t>(mine.columns) / 2 * 4, product.group, false);
      if (mine.a == nullptr) continue;
      std::copy_n(mine.a, 4, product.a[lane].begin());
      keep(thread, mine.a, 16, product.group, true);
    }
    const Epoch epoch{tensor_core(block_of(me()), w), product.clock};
    const Knowledge known = warps_knowledge();
    const auto see = [&](const Where& at) {
      reads(at, 16, known, epoch, tensor_core_of_warp + w, true, "its product reads");
    };
    each_piece(product.what.b_descriptor, product.what.b_transposed, 0, product.what.columns, see);
    if (product.what.a == nullptr)
      each_piece(product.what.a_descriptor, false, static_cast<int>(16 * (w % 4)), 16, see);
    warp.products.push_back(product);
  }
  static void keep(Thread& thread, const void* at, std::size_t size, int group, bool read_only) {
    for (Registers& registers : thread.under_way) {
      if (registers.at == at && registers.read_only == read_only) {
        registers.group = group;
        return;
      }
    }
    thread.under_way.push_back({static_cast<const std::byte*>(at), size, group, read_only});
  }
  void perform_first(const Block& block, Warp& warp) {
    perform(warp.products.front(), block, static_cast<int>((&warp - block.warps.data()) % 4));
    warp.products.pop_front();
  }
  static float widened(DType type, std::uint32_t bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    return type == DType::bf16 ? tile::from_bf16(half) : tile::from_f16(half);
  }
  static float element(const Block& block, DType type, std::uint64_t descriptor, bool transposed, int row, int inner) {
    std::uint16_t half;
    std::memcpy(&half, block.memory + (in_shared(descriptor, transposed, row, inner) - first_address), 2);
    return widened(type, half);
  }
  /// A product that is no normal number is cut and not rounded: what lies below the last bit is gone.
  static float product(float a, float b) {
    const float rounded = a * b;
    if (rounded == 0.0f || !(std::fabs(rounded) <= 0x1p-126f)) return rounded;
    return static_cast<float>(std::trunc(static_cast<double>(a) * b * 0x1p149) * 0x1p-149);
  }
  /// sum = a b, of 16 rows.
  static void multiply(float (&sum)[16][256], const float (&a)[16][16], const float (&b)[16][256], int columns) {
    for (int i = 0; i < 16; ++i) {
      int small = 0;
      for (int j = 0; j < columns; ++j) sum[i][j] = 0.0f;
      for (int k = 0; k < 16; ++k) {
        for (int j = 0; j < columns; ++j) {
          const float rounded = a[i][k] * b[k][j];
          small |= (std::fabs(rounded) <= 0x1p-126f) & (rounded != 0.0f);
          sum[i][j] += rounded;
        }
      }
      if (small == 0) continue;
      for (int j = 0; j < columns; ++j) {
        sum[i][j] = 0.0f;
        for (int k = 0; k < 16; ++k) sum[i][j] += product(a[i][k], b[k][j]);
      }
    }
  }
  static void load_b(float (&b)[16][256], const Block& block, DType type, std::uint64_t descriptor, bool transposed,
                     int columns) {
    for (int k = 0; k < 16; ++k) {
      for (int j = 0; j < columns; ++j) b[k][j] = element(block, type, descriptor, transposed, j, k);
    }
  }
  void perform(const WarpProduct& product, const Block& block, int quarter) {
    const Product& what = product.what;
    float a[16][16], b[16][256], sum[16][256];
    if (what.a == nullptr) {
      for (int i = 0; i < 16; ++i) {
        for (int k = 0; k < 16; ++k) a[i][k] = element(block, what.type, what.a_descriptor, false, 16 * quarter + i, k);
      }
    } else {
      for (int lane = 0; lane < warp_size; ++lane) {
        for (int i = 0; i < 8; ++i) {
          const At at = of_a(lane, i);
          a[at.row][at.column] = widened(
              what.type, product.a[static_cast<std::size_t>(lane)][static_cast<std::size_t>(i / 2)] >> i % 2 * 16);
        }
      }
    }
    load_b(b, block, what.type, what.b_descriptor, what.b_transposed, what.columns);
    multiply(sum, a, b, what.columns);
    const int turned = mistake == Mistake::rows_swapped ? 8 : 0;
    for (int lane = 0; lane < warp_size; ++lane) {
      float* const d = product.d[static_cast<std::size_t>(lane)];
      for (int i = 0; i < what.columns / 2; ++i) {
        const At at = of_d(lane, i);
        const float more = sum[at.row ^ turned][at.column];
        d[i] = what.accumulate ? d[i] + more : more;
      }
    }
  }
  void wait_for_groups(int count) {
    Warp& warp = my_warp();
    std::uint32_t latest = 0;
    while (!warp.products.empty() && warp.products.front().group < count) perform_first(my_block(), warp);
    if (count > 0 && static_cast<std::size_t>(count) <= warp.clock_of_group.size())
      latest = warp.clock_of_group[static_cast<std::size_t>(count) - 1];
    std::uint32_t& known = clock(me())[tensor_core(block_of(me()), warp_of(me()))];
    known = std::max(known, latest);
    std::erase_if(mine().under_way,
                  [&](const Registers& registers) { return registers.group != loading && registers.group < count; });
  }

  // --------------------------------------------------------------------------------------------------- tensor memory
  /// Columns from an address on, of sixteen lanes.
  struct TensorPlace {
    unsigned lane, column, columns;
  };
  TensorPlace tensor_place(unsigned address, unsigned columns) {
    const TensorPlace at{address >> 16, address & 0xffffu, columns};
    const Block& block = my_block();
    if (at.lane % lanes_of_cell != 0 || at.lane >= tensor_lanes)
      complain_here("tensor memory has no sixteen lanes from " + std::to_string(at.lane) + " on");
    if (at.column < block.tensor_begin || at.column + columns > block.tensor_end)
      complain_here("columns " + std::to_string(at.column) + " to " + std::to_string(at.column + columns - 1) +
                    " of tensor memory are not all allocated");
    return at;
  }
  static std::uint32_t& word(Block& block, unsigned lane, unsigned column) {
    return block.tensor[lane * tensor_columns + column];
  }
  std::string tensor_name(unsigned user) const {
    const char* const what = user < tensor_stores     ? "loads of warp "
                             : user < tensor_products ? "stores of warp "
                                                      : "products issued by warp ";
    return what + std::to_string(user % most_warps);
  }
  /// `first` and `count`: threads that all must be allowed to follow what came before. A product may follow another of
  /// the same thread that has the same result.
  void use_tensor(const TensorPlace& at, bool write, unsigned user, std::uint32_t clock, int first, int count,
                  bool may_follow_own) {
    Block& block = my_block();
    const auto expect = [&](Epoch other, const char* does, unsigned column) {
      if (may_follow_own && other.who == user) return;
      for (int t = first; t < first + count; ++t) {
        if (threads[static_cast<std::size_t>(t)].tensor[other.who] >= other.clock) continue;
        complain_here(std::string(write ? "it changes" : "it reads") + " tensor memory, lane " +
                      std::to_string(at.lane) + " column " + std::to_string(column) + ", which " +
                      tensor_name(other.who) + does +
                      ", and that has not been waited for, with fences where it was another's");
      }
    };
    for (unsigned column = at.column; column < at.column + at.columns; ++column) {
      TensorCell& cell = block.tensor_cells[at.lane / lanes_of_cell * tensor_columns + column];
      if (cell.writer.who != nobody) {
        expect(cell.writer, " change", column);
      } else if (!write) {
        complain_here("it reads tensor memory, lane " + std::to_string(at.lane) + " column " + std::to_string(column) +
                      ", which nobody has written");
      }
      if (!write) {
        cell.readers |= std::uint64_t{1} << user;
        cell.reader_clocks[user] = clock;
        continue;
      }
      for (std::uint64_t left = cell.readers; left != 0; left &= left - 1) {
        const auto reader = static_cast<unsigned>(__builtin_ctzll(left));
        expect({reader, cell.reader_clocks[reader]}, " read", column);
      }
      cell.writer = {user, clock};
      cell.readers = 0;
    }
  }
  void issue_tensor(const TensorProduct& product) {
    Warp& warp = my_warp();
    const unsigned w = warp_of(me());
    const Instruction its_kind = decoded(product.instruction);
    if (!its_kind.right || its_kind.rows != 64)
      complain_here("an instruction descriptor of another kind than those played");
    for (const std::uint64_t descriptor :
         {product.b_descriptor, product.a_in_tensor ? product.b_descriptor : product.a_descriptor}) {
      if ((descriptor >> 46 & 7) != 1 || (descriptor >> 49 & 7) != 0 || (descriptor >> 61) != 2)
        complain_here("a descriptor of shared memory that has not the version, or not the 128-byte swizzle");
    }
    const std::uint32_t clock_of_it = ++warp.tensor_clock;
    const auto columns = static_cast<unsigned>(its_kind.columns);
    for (unsigned quarter = 0; quarter < 4; ++quarter) {
      const unsigned lanes = quarter * 32 << 16;
      if (product.a_in_tensor) {
        if (product.a >> 16 != product.d >> 16)
          complain_here("a product's operand and its result are in different lanes");
        use_tensor(tensor_place(product.a + lanes, 8), false, tensor_products + w, clock_of_it, me(), 1, false);
      }
      if (product.accumulate)
        use_tensor(tensor_place(product.d + lanes, columns), false, tensor_products + w, clock_of_it, me(), 1, true);
      use_tensor(tensor_place(product.d + lanes, columns), true, tensor_products + w, clock_of_it, me(), 1, true);
    }
    const Epoch epoch{tensor_core(block_of(me()), w), clock_of_it};
    const auto see = [&](const Where& at) {
      reads(at, 16, my_knowledge(), epoch, tensor_core_of_warp + w, true, "its product reads");
    };
    each_piece(product.b_descriptor, its_kind.b_transposed, 0, its_kind.columns, see);
    if (!product.a_in_tensor) each_piece(product.a_descriptor, false, 0, 64, see);
    warp.tensor_work.push_back({product, nullptr, clock_of_it});
  }
  /// Any product whose result no earlier one has, or the commit that nothing is before.
  void perform_some(Block& block, Warp& warp) {
    std::vector<TensorWork*> can;
    for (std::size_t k = 0; k < warp.tensor_work.size(); ++k) {
      TensorWork& work = warp.tensor_work[k];
      if (work.done) continue;
      bool later = false;
      for (std::size_t before = 0; before < k; ++before) {
        const TensorWork& other = warp.tensor_work[before];
        later = later || (!other.done && (!work.product || (other.product && other.product->d == work.product->d)));
      }
      if (!later) can.push_back(&work);
    }
    TensorWork& work = *can[random(can.size())];
    work.done = true;
    if (work.product) {
      perform(*work.product, block);
    } else {
      const auto b = static_cast<unsigned>(&block - blocks.data()),
                 w = static_cast<unsigned>(&warp - block.warps.data());
      tell(work.barrier->gathered, Epoch{tensor_core(b, w), work.clock});
      tell(work.barrier->gathered, Epoch{dimensions_ + b * tensor_users + tensor_products + w, work.clock});
      count(*work.barrier, 1, 0);
    }
    while (!warp.tensor_work.empty() && warp.tensor_work.front().done) warp.tensor_work.pop_front();
  }
  static void perform(const TensorProduct& product, Block& block) {
    const Instruction its_kind = decoded(product.instruction);
    float a[16][16], b[16][256], sum[16][256];
    load_b(b, block, its_kind.type, product.b_descriptor, its_kind.b_transposed, its_kind.columns);
    for (int quarter = 0; quarter < 4; ++quarter) {
      const auto lane_of = [&](unsigned address, int i) {
        return (address >> 16) + static_cast<unsigned>(lane_of_row(16 * quarter + i));
      };
      for (int i = 0; i < 16; ++i) {
        for (int k = 0; k < 16; ++k) {
          a[i][k] = product.a_in_tensor
                        ? widened(its_kind.type, word(block, lane_of(product.a, i),
                                                      (product.a & 0xffffu) + static_cast<unsigned>(k / 2)) >>
                                                     k % 2 * 16)
                        : element(block, its_kind.type, product.a_descriptor, false, 16 * quarter + i, k);
        }
      }
      multiply(sum, a, b, its_kind.columns);
      for (int i = 0; i < 16; ++i) {
        for (int j = 0; j < its_kind.columns; ++j) {
          std::uint32_t& d = word(block, lane_of(product.d, i), (product.d & 0xffffu) + static_cast<unsigned>(j));
          d = std::bit_cast<std::uint32_t>(product.accumulate ? std::bit_cast<float>(d) + sum[i][j] : sum[i][j]);
        }
      }
    }
  }
  /// What the fences hand on.
  [[nodiscard]] std::uint32_t* heard_of_tensor(int thread) {
    return clock(thread) + dimensions_ + block_of(thread) * tensor_users;
  }
  int elected = 0;  ///< the lane that elect.sync takes

 private:
  std::mt19937_64 random_;
  std::unique_ptr<unsigned char[]> memory_;
  unsigned char* arena_;
  std::vector<std::uint32_t> clocks_, gathered_;
  std::vector<int> ready_;
  std::vector<std::pair<Block*, Warp*>> busy_warps_;
  std::vector<Store*> waiting_stores_;
  int running_ = -1;
};

/// Whose threads run now, on this thread of the host.
extern thread_local Machine* at_work;

}  // namespace tilemamba::test::cuda
