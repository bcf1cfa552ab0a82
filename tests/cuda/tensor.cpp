// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/state.hpp"

namespace tilemamba::test::cuda {

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

}  // namespace tilemamba::test::cuda
