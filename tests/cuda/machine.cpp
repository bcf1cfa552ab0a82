// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/machine.hpp"

#include <algorithm>
#include <array>
#include <bit>
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
#include "tests/lanes/fibers.hpp"

namespace tilemamba::test::cuda {
namespace {

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

thread_local Mistake mistake = Mistake::none;
thread_local std::unordered_set<std::uintptr_t> written_before, written_now;  ///< granules of global memory
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
  bool busy = false;

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
    cluster_meeting = {};
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
  void touch_global(const void* at, std::size_t size, bool write) {
    const auto first = reinterpret_cast<std::uintptr_t>(at) >> granule_bits,
               last = (reinterpret_cast<std::uintptr_t>(at) + size - 1) >> granule_bits;
    const bool too_early = its.early && !written_before.empty() && clock(me())[last_launch()] == 0;
    if (!write && !too_early) return;
    for (std::uintptr_t k = first; k <= last; ++k) {
      if (too_early && written_before.contains(k))
        complain_here("it touches what the launch before has written, and has not waited for that");
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
  Meeting cluster_meeting;

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
  /// sum = a b, of 16 rows.
  static void multiply(float (&sum)[16][256], const float (&a)[16][16], const float (&b)[16][256], int columns) {
    for (int i = 0; i < 16; ++i) {
      for (int j = 0; j < columns; ++j) sum[i][j] = 0.0f;
      for (int k = 0; k < 16; ++k) {
        for (int j = 0; j < columns; ++j) sum[i][j] += a[i][k] * b[k][j];
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

thread_local Machine* at_work = nullptr;

}  // namespace

// ------------------------------------------------------------------------------------------------------- what lies
// where

At of_a(int thread, int i) {
  const int group = thread % 32 / 4, in_group = thread % 4;
  return {(i < 2 || (i >= 4 && i < 6) ? group : group + 8) + thread / 32 * 16,
          in_group * 2 + (i & 1) + (i < 4 ? 0 : 8)};
}
At of_d(int thread, int i) {
  const int group = thread % 32 / 4, in_group = thread % 4;
  return {(i % 4 < 2 ? group : group + 8) + thread / 32 * 16, i / 4 * 8 + in_group * 2 + i % 2};
}
At of_matrix(int lane, int half, bool transposed) {
  const int along = lane / 4, across = lane % 4 * 2 + half;
  return transposed ? At{across, along} : At{along, across};
}
unsigned swizzled(unsigned address) { return address ^ (address >> 7 & 7u) << 4; }

At in_tensor(int thread, int i, bool wide) {
  // .16x256b: of eight columns, registers 0 and 1 are two of row thread / 4, 2 and 3 those of the row eight further on.
  if (wide) return {thread / 4 + i / 2 % 2 * 8, i / 4 * 8 + thread % 4 * 2 + i % 2};
  // .16x128b: of four columns, register 0 is one of row thread / 4, register 1 that of the row eight further on.
  return {thread / 4 + i % 2 * 8, i / 2 * 4 + thread % 4};
}
int lane_of_row(int row) { return row / 16 * 32 + row % 16; }
Instruction decoded(std::uint32_t descriptor) {
  const auto field = [&](int at, int bits) { return descriptor >> at & ((1u << bits) - 1); };
  const std::uint32_t a = field(7, 3), b = field(10, 3);
  // Bits 0-3 sparsity and saturation, 4-5 the result's type (1: fp32), 13-14 negation, 15 a transposed, 16 b
  // transposed, 17-22 N / 8, 24-28 M / 16, 30-31 shift.
  const bool right = field(0, 4) == 0 && field(4, 2) == 1 && field(6, 1) == 0 && a == b && a <= 1 &&
                     field(13, 3) == 0 && field(23, 1) == 0 && field(29, 3) == 0;
  return {right, a == 1 ? DType::bf16 : DType::f16, field(16, 1) == 1, static_cast<int>(field(24, 5)) * 16,
          static_cast<int>(field(17, 6)) * 8};
}

unsigned in_shared(std::uint64_t descriptor, bool transposed, int row, int inner) {
  // Addresses and distances are kept without their last four bits, 14 bits each.
  const auto field = [&](int at) { return static_cast<unsigned>(descriptor >> at & 0x3fffu) << 4; };
  const unsigned start = field(0), leading = field(16), stride = field(32);
  const auto u = [](int v) { return static_cast<unsigned>(v); };
  // In units of 8 elements (16 bytes), with swizzle: K-major ((8,m),(T,2)): ((8T,SBO),(1,T)); MN-major ((T,8,m),(8,k)):
  // ((1,T,LBO),(8T,SBO)).
  const unsigned offset = transposed
                              ? u(row % 64) * 2 + u(row / 64) * leading + u(inner % 8) * 128 + u(inner / 8) * stride
                              : u(row % 8) * 128 + u(row / 8) * stride + u(inner) * 2;
  return swizzled(start + offset);
}

// ------------------------------------------------------------------------------------------------------------ launches

void make(Mistake what) { mistake = what; }
bool makes(Mistake what) { return mistake == what; }
void forget_launches() { written_before.clear(); }

std::string run(const Launch& launch, const std::function<void()>& body, std::uint64_t seed) {
  Machine machine(launch, seed);
  if (launch.blocks % launch.cluster != 0 || launch.threads % warp_size != 0 ||
      launch.threads > most_warps * warp_size || launch.shared_bytes > 227 * 1024 || launch.cluster > 8)
    return "a launch that no device takes";
  Machine* const before = at_work;
  at_work = &machine;
  written_now.clear();
  for (unsigned k = 0; k < launch.blocks / launch.cluster && machine.fault.empty(); ++k) machine.run_cluster(k, body);
  at_work = before;
  std::swap(written_before, written_now);
  return machine.fault;
}

Index thread_index() { return {at_work->in_block(at_work->me()), 0, 0}; }
Index block_index() { return {at_work->first_block + at_work->block_of(at_work->me()), 0, 0}; }
Index block_size() { return {at_work->its.threads, 1, 1}; }
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
void meet_cluster() {
  if (mistake == Mistake::cluster_does_not_meet) return;
  at_work->meet(at_work->cluster_meeting, static_cast<int>(at_work->its.threads * at_work->its.cluster), 0,
                "the other threads of its cluster");
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
void arrive(unsigned address, unsigned bytes) {
  Barrier& barrier = at_work->barrier(address, false);
  if (bytes != 0 && mistake == Mistake::bytes_miscounted) bytes -= 16;
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
  if ((barrier.phase & 1) != (parity & 1)) return at_work->learn(at_work->me(), barrier.released);
  barrier.waiting.push_back(at_work->me());
  at_work->sleep("the barrier at " + at_work->text(at_work->where(address, 8, 8)) + ", parity " +
                 std::to_string(parity) + ", " + std::to_string(barrier.pending) + " arrivals and " +
                 std::to_string(barrier.bytes) + " bytes of its phase to come");
}
void publish_to_engines() {
  if (mistake == Mistake::fence_left_out) return;
  const Epoch now = at_work->my_epoch();
  at_work->mine().fences.push_back(now.clock);
  ++at_work->clock(at_work->me())[now.who];
}

// ------------------------------------------------------------------------------------------------------ the copy
// engine

namespace {

/// Every 16 bytes of a box: where they are in the tensor (null: outside) and in shared memory.
template <class See>
void each_piece_of_box(const TensorMap& map, const int (&at)[4], const See& see) {
  unsigned offset = 0;
  for (unsigned l = 0; l < map.box[3]; ++l) {
    for (unsigned k = 0; k < map.box[2]; ++k) {
      for (unsigned j = 0; j < map.box[1]; ++j) {
        for (unsigned i = 0; i < map.box[0]; i += 8, offset += 16) {
          const std::int64_t its[4] = {at[0] + static_cast<std::int64_t>(i), at[1] + static_cast<std::int64_t>(j),
                                       at[2] + static_cast<std::int64_t>(k), at[3] + static_cast<std::int64_t>(l)};
          bool inside = true;
          for (int d = 0; d < 4; ++d)
            inside = inside && its[d] >= 0 && its[d] < static_cast<std::int64_t>(map.counts[d]);
          // The last piece of a row may end outside.
          const std::int64_t elements =
              inside ? std::min<std::int64_t>(8, static_cast<std::int64_t>(map.counts[0]) - its[0]) : 0;
          unsigned char* global = inside ? map.data : nullptr;
          for (int d = 0; d < 4 && inside; ++d) global += its[d] * static_cast<std::int64_t>(map.strides[d]);
          see(global, static_cast<std::size_t>(elements) * 2, offset);
        }
      }
    }
  }
}
unsigned placed(unsigned address) {
  return mistake == Mistake::swizzle_of_64_bytes ? address ^ (address >> 7 & 3u) << 4 : swizzled(address);
}
void check_map(const TensorMap& map, unsigned address) {
  if (map.encoded != TensorMap::mark) complain("a map that has not been encoded");
  if (address % 128 != 0) complain("the copy engine wants shared memory aligned to 128 bytes");
}

}  // namespace

void load_box(unsigned to, const TensorMap& map, const int (&at)[4], unsigned address) {
  check_map(map, to);
  Machine& m = *at_work;
  Barrier& barrier = m.barrier(address, true);
  const auto place = m.where(to, map.box[0] * map.box[1] * 2, 128);
  const auto barriers_place = m.where(address, 8, 8);
  const int index = m.blocks[barriers_place.block].barrier_at[barriers_place.offset];
  const Epoch epoch{m.engine(barriers_place.block, index),
                    ++m.blocks[barriers_place.block].engine_clocks[static_cast<std::size_t>(index)]};
  const std::size_t bytes = std::size_t{map.box[0]} * map.box[1] * map.box[2] * map.box[3] * 2;
  m.writes(place, bytes, m.my_knowledge(), epoch, true, "the copy engine fills for it");
  unsigned char* const memory = m.blocks[place.block].memory;
  std::array<int, 4> corner{at[0], at[1], at[2], at[3]};
  const unsigned base = place.offset + first_address;
  m.loads.push_back([&m, &barrier, map, corner, base, memory, bytes, epoch] {
    each_piece_of_box(map, {corner[0], corner[1], corner[2], corner[3]},
                      [&](const unsigned char* global, std::size_t size, unsigned offset) {
                        unsigned char* const its = memory + (placed(base + offset) - first_address);
                        std::memset(its, 0, 16);
                        if (global != nullptr) std::memcpy(its, global, size);
                      });
    m.complete(barrier, epoch, static_cast<std::int64_t>(bytes));
  });
}

void store_box(const TensorMap& map, unsigned from, const int (&at)[4]) {
  check_map(map, from);
  Machine& m = *at_work;
  const std::size_t bytes = std::size_t{map.box[0]} * map.box[1] * map.box[2] * map.box[3] * 2;
  const auto place = m.where(from, bytes, 128);
  const Epoch epoch{m.stores(m.block_of(m.me()), m.warp_of(m.me())), ++m.my_warp().store_clock};
  m.reads(place, bytes, m.my_knowledge(), epoch, stores_of_warp + m.warp_of(m.me()), true,
          "the copy engine takes for it");
  const unsigned char* const memory = m.blocks[place.block].memory;
  std::array<int, 4> corner{at[0], at[1], at[2], at[3]};
  const unsigned base = place.offset + first_address;
  m.stores_under_way.push_back({[map, corner, base, memory] {
                                  each_piece_of_box(
                                      map, {corner[0], corner[1], corner[2], corner[3]},
                                      [&](unsigned char* global, std::size_t size, unsigned offset) {
                                        if (global == nullptr) return;
                                        std::memcpy(global, memory + (placed(base + offset) - first_address), size);
                                      });
                                },
                                m.me()});
}
void commit_stores() {
  for (Store& store : at_work->stores_under_way) store.committed = store.committed || store.thread == at_work->me();
}
void wait_stores() {
  if (mistake == Mistake::stores_not_waited_for) return;
  Machine& m = *at_work;
  bool all = true;
  std::erase_if(m.stores_under_way, [&](Store& store) {
    if (store.thread != m.me()) return false;
    all = all && store.committed;
    if (store.committed && !store.done) Machine::perform(store);
    return store.committed;
  });
  std::uint32_t& known = m.clock(m.me())[m.stores(m.block_of(m.me()), m.warp_of(m.me()))];
  if (all) known = std::max(known, m.my_warp().store_clock);
}

void store_there(unsigned to, const float* v, unsigned address) {
  Machine& m = *at_work;
  Barrier& barrier = m.barrier(address, false);
  const auto place = m.where(to, 16, 16), its = m.where(address, 8, 8);
  if (place.block != its.block) complain("the memory and the barrier of a store are in different blocks");
  const int index = m.blocks[its.block].barrier_at[its.offset];
  const Epoch epoch{m.engine(its.block, index), ++m.blocks[its.block].engine_clocks[static_cast<std::size_t>(index)]};
  m.writes(place, 16, m.my_knowledge(), epoch, false, "it stores into");
  std::array<float, 4> values{v[0], v[1], v[2], v[3]};
  unsigned char* const there = m.blocks[place.block].memory + place.offset;
  m.loads.push_back([&m, &barrier, values, there, epoch] {
    std::memcpy(there, values.data(), 16);
    m.complete(barrier, epoch, 16);
  });
}

void wait_for_last_launch() {
  if (mistake != Mistake::launch_not_waited_for) at_work->clock(at_work->me())[at_work->last_launch()] = 1;
}

// ------------------------------------------------------------------------------------------------------------ products

void begin_products() { at_work->mine().fenced = mistake != Mistake::product_not_fenced; }
void multiply(const Product& product) {
  Product mine = product;
  if (mistake == Mistake::wrong_stride) mine.b_descriptor ^= std::uint64_t{0x20} << 32;
  at_work->gather_warp(&mine, [](const std::vector<int>& all) { at_work->issue(all); });
}
void commit_products() {
  Thread& mine = at_work->mine();
  Warp& warp = at_work->my_warp();
  ++mine.groups;
  mine.fenced = false;
  const auto groups = static_cast<std::size_t>(mine.groups);
  if (warp.clock_of_group.size() < groups) warp.clock_of_group.resize(groups);
  warp.clock_of_group[groups - 1] = std::max(warp.clock_of_group[groups - 1], warp.tensor_clock);
}
void wait_products(int pending) {
  if (mistake == Mistake::product_not_waited_for) return;
  if (mistake == Mistake::product_waited_for_too_late) ++pending;
  at_work->wait_for_groups(at_work->mine().groups - pending);
}

// ------------------------------------------------------------------------------------------------------------- tcgen05

void tensor_allocate(unsigned to, unsigned columns) {
  struct Wanted {
    unsigned to, columns;
  } mine{to, mistake == Mistake::few_columns ? columns / 2 : columns};
  together(&mine, [](void* const* all) {
    const auto wanted = *static_cast<const Wanted*>(all[0]);
    Block& block = at_work->my_block();
    if (wanted.columns < 32 || wanted.columns > tensor_columns || (wanted.columns & (wanted.columns - 1)) != 0)
      complain("columns are allocated by powers of two from 32 to 512");
    if (block.relinquished || block.tensor_end > 0) complain("it has allocated its tensor memory already");
    // The last columns: addresses begin anywhere.
    block.tensor_begin = tensor_columns - wanted.columns, block.tensor_end = tensor_columns;
    block.tensor.assign(tensor_lanes * tensor_columns, ~0u);
    block.tensor_cells.assign(tensor_lanes / lanes_of_cell * tensor_columns, {});
    write_shared(wanted.to, &block.tensor_begin, 4);
  });
}
void tensor_relinquish() { at_work->my_block().relinquished = true; }
void tensor_release(unsigned address, unsigned columns) {
  if (mistake == Mistake::not_released) return;
  struct Given {
    unsigned address, columns;
  } mine{address, columns};
  together(&mine, [](void* const* all) {
    const auto given = *static_cast<const Given*>(all[0]);
    Block& block = at_work->my_block();
    if (given.address != block.tensor_begin || given.columns != block.tensor_end - block.tensor_begin)
      complain("it releases other tensor memory than it has");
    for (const Warp& its : block.warps) {
      if (!its.tensor_work.empty()) complain("it releases tensor memory, and products are under way");
    }
    block.tensor_begin = block.tensor_end = 0;
  });
}

namespace {

struct Transfer {
  std::uint32_t* r;
  int count;
  unsigned address;
  bool wide, load;
};
void transfer(Transfer mine) {
  if (mistake == Mistake::lanes_of_others) mine.address ^= 32u << 16;
  at_work->gather_warp(&mine, [](const std::vector<int>& all) {
    Machine& m = *at_work;
    Warp& its = m.my_warp();
    const unsigned w = m.warp_of(m.me());
    const auto what = *static_cast<const Transfer*>(its.objects[0]);
    const auto place = m.tensor_place(what.address, static_cast<unsigned>(what.count) * 2);
    if (place.lane / 32 != w % 4)
      complain("lane " + std::to_string(place.lane) + " of tensor memory is none of its warp's");
    const int first = *std::min_element(all.begin(), all.end());
    const unsigned user = (what.load ? tensor_loads : tensor_stores) + w;
    const std::uint32_t clock = what.load ? ++its.tensor_load_clock : ++its.tensor_store_clock;
    m.use_tensor(place, !what.load, user, clock, first, warp_size, false);
    for (int t = 0; t < warp_size; ++t) {
      const auto& object = *static_cast<const Transfer*>(its.objects[static_cast<std::size_t>(t)]);
      if (object.address != what.address) complain("lanes of a warp have different addresses");
      for (int i = 0; i < what.count; ++i) {
        const At at = in_tensor(t, i, what.wide);
        std::uint32_t& word = Machine::word(m.my_block(), place.lane + static_cast<unsigned>(at.row),
                                            place.column + static_cast<unsigned>(at.column));
        what.load ? object.r[i] = word : word = object.r[i];
      }
      if (what.load)
        Machine::keep(m.threads[static_cast<std::size_t>(first + t)], object.r,
                      static_cast<std::size_t>(what.count) * 4, loading, false);
    }
  });
}

}  // namespace

void tensor_load(std::uint32_t* r, int count, unsigned from) { transfer({r, count, from, true, true}); }
void tensor_store(const std::uint32_t* r, int count, unsigned to, bool wide) {
  transfer({const_cast<std::uint32_t*>(r), count, to, wide, false});
}
void wait_tensor_loads() {
  if (mistake == Mistake::tensor_loads_not_waited_for) return;
  Thread& mine = at_work->mine();
  mine.tensor[tensor_loads + at_work->warp_of(at_work->me())] = at_work->my_warp().tensor_load_clock;
  std::erase_if(mine.under_way, [](const Registers& registers) { return registers.group == loading; });
}
void wait_tensor_stores() {
  if (mistake == Mistake::tensor_stores_not_waited_for) return;
  at_work->mine().tensor[tensor_stores + at_work->warp_of(at_work->me())] = at_work->my_warp().tensor_store_clock;
}
void fence_before_sync() {
  if (mistake == Mistake::before_left_out) return;
  Machine::learn(at_work->heard_of_tensor(at_work->me()), at_work->mine().tensor.data(), tensor_users);
}
void fence_after_sync() {
  if (mistake == Mistake::after_left_out) return;
  Machine::learn(at_work->mine().tensor.data(), at_work->heard_of_tensor(at_work->me()), tensor_users);
}
bool elect() { return lane() == at_work->elected; }

void tensor_multiply(const TensorProduct& product) {
  TensorProduct mine = product;
  if (mistake == Mistake::other_half_of_lanes) mine.d ^= 16u << 16;
  if (mistake == Mistake::columns_overlap) mine.d += 32;
  if (mistake == Mistake::instruction_of_other_type) mine.instruction ^= 1u << 7 | 1u << 10;
  at_work->issue_tensor(mine);
}
void commit_tensor_products(unsigned address) {
  if (mistake == Mistake::commit_left_out && warp() == 8) return;
  Warp& its = at_work->my_warp();
  Barrier& barrier = at_work->barrier(address, true);
  const TensorWork commit{{}, &barrier, its.tensor_clock};
  if (mistake == Mistake::commit_too_early && !its.tensor_work.empty()) {
    its.tensor_work.insert(its.tensor_work.end() - 1, {{}, &barrier, its.tensor_clock - 1});
  } else {
    its.tensor_work.push_back(commit);
  }
}

// ------------------------------------------------------------------------------------------------- ldmatrix, stmatrix

namespace {

struct Matrices {
  unsigned address;
  std::uint32_t* r;
  bool transposed;
};
/// For each lane, the place of each half of each of its words.
template <class See>
void each_half(void* const* all, const See& see) {
  const auto its = [&](int lane) -> Matrices& { return *static_cast<Matrices*>(all[lane]); };
  for (int lane = 0; lane < warp_size; ++lane) {
    for (int matrix = 0; matrix < 4; ++matrix) {
      for (int half = 0; half < 2; ++half) {
        const At at = of_matrix(lane, half, its(lane).transposed);
        const auto row = at_work->where(its(8 * matrix + at.row).address, 16, 16);
        see(its(lane).r[matrix], half, at_work->blocks[row.block].memory + row.offset + 2 * at.column);
      }
    }
  }
}

}  // namespace

void load_matrices(std::uint32_t (&r)[4], unsigned address, bool transposed) {
  at_work->i_read(at_work->where(address, 16, 16), 16);
  if (mistake == Mistake::not_transposed) transposed = false;
  Matrices mine{address, r, transposed};
  together(&mine, [](void* const* all) {
    each_half(all, [](std::uint32_t& word, int half, const unsigned char* at) {
      std::uint16_t bits;
      std::memcpy(&bits, at, 2);
      word = half == 0 ? bits : (word & 0xffffu) | static_cast<std::uint32_t>(bits) << 16;
    });
  });
}
void store_matrices(unsigned address, const std::uint32_t (&r)[4], bool transposed) {
  at_work->i_write(at_work->where(address, 16, 16), 16);
  std::uint32_t words[4] = {r[0], r[1], r[2], r[3]};
  if (mistake == Mistake::matrices_swapped) std::swap(words[1], words[2]);
  Matrices mine{address, words, transposed};
  together(&mine, [](void* const* all) {
    each_half(all, [](const std::uint32_t& word, int half, unsigned char* at) {
      const auto bits = static_cast<std::uint16_t>(word >> 16 * half);
      std::memcpy(at, &bits, 2);
    });
  });
}

}  // namespace tilemamba::test::cuda

// --------------------------------------------------------------------------- what -fsanitize=thread calls in kernels'
// text

namespace {
void touch(const void* at, std::size_t size, bool write) {
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
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
}
#undef TILEMAMBA_TOUCH
