// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/state.hpp"

namespace tilemamba::test::cuda {

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
void check_map(const TensorMap& map, unsigned address, int column) {
  if (column % 8 != 0) complain("the copy engine wants boxes that begin at a multiple of 16 bytes of a row");
  if (map.encoded != TensorMap::mark) complain("a map that has not been encoded");
  if (address % 128 != 0) complain("the copy engine wants shared memory aligned to 128 bytes");
}

}  // namespace

void load_box(unsigned to, const TensorMap& map, const int (&at)[4], unsigned address) {
  check_map(map, to, at[0]);
  Machine& m = *at_work;
  m.touch_any();
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
                        if (mistake != Mistake::edges_not_filled) std::memset(its, 0, 16);
                        if (global != nullptr) std::memcpy(its, global, size);
                      });
    m.complete(barrier, epoch, static_cast<std::int64_t>(bytes));
  });
}

/// 16 bytes that begin in the tensor are stored whole, what is beyond a row included.
void store_box(const TensorMap& map, unsigned from, const int (&at)[4]) {
  check_map(map, from, at[0]);
  for (const int its : at) {
    if (its < 0) complain("the copy engine stores no box that begins before its tensor");
  }
  Machine& m = *at_work;
  m.touch_any();
  const std::size_t bytes = std::size_t{map.box[0]} * map.box[1] * map.box[2] * map.box[3] * 2;
  const auto place = m.where(from, bytes, 128);
  const Epoch epoch{m.stores(m.block_of(m.me()), m.warp_of(m.me())), ++m.my_warp().store_clock};
  m.reads(place, bytes, m.my_knowledge(), epoch, stores_of_warp + m.warp_of(m.me()), true,
          "the copy engine takes for it");
  const unsigned char* const memory = m.blocks[place.block].memory;
  std::array<int, 4> corner{at[0], at[1], at[2], at[3]};
  const unsigned base = place.offset + first_address;
  m.stores_under_way.push_back({[map, corner, base, memory] {
                                  each_piece_of_box(map, {corner[0], corner[1], corner[2], corner[3]},
                                                    [&](unsigned char* global, std::size_t, unsigned offset) {
                                                      if (global == nullptr) return;
                                                      std::memcpy(global,
                                                                  memory + (placed(base + offset) - first_address), 16);
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
  if (its.block != m.block_of(m.me())) barrier.of_cluster = true;
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
  if (mistake == (launches_before == 0 ? Mistake::others_not_waited_for : Mistake::launch_not_waited_for)) return;
  if (mistake == Mistake::second_launch_does_not_wait && launches_before == 1) return;
  at_work->clock(at_work->me())[at_work->last_launch()] = 1;
  at_work->waited_for_last_launch = true;
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

// ------------------------------------------------------------------------------------------------------------ mma.sync

void multiply_here(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], DType type) {
  struct Lane {
    float* d;
    std::uint32_t a[4], b[2];
    DType type;
  } mine{d, {a[0], a[1], a[2], a[3]}, {b[0], b[1]}, type};
  if (mistake == Mistake::halves_swapped) std::swap(mine.a[1], mine.a[2]);
  together(&mine, [](void* const* all) {
    const auto its = [&](int lane) -> const Lane& { return *static_cast<const Lane*>(all[lane]); };
    const DType kind = its(0).type;
    // tf32 is what an fp32 begins with; what follows is ignored.
    const auto value = [&](const std::uint32_t* words, int i) {
      return kind == DType::f32 ? std::bit_cast<float>(words[i] & 0xffffe000u)
                                : Machine::widened(kind, words[i / 2] >> i % 2 * 16);
    };
    float left[16][16], right[16][8];
    for (int lane = 0; lane < warp_size; ++lane) {
      for (int i = 0; i < (kind == DType::f32 ? 4 : 8); ++i) {
        const At at = kind == DType::f32 ? of_a_tf32(lane, i) : of_a(lane, i);
        left[at.row][at.column] = value(its(lane).a, i);
      }
      for (int i = 0; i < (kind == DType::f32 ? 2 : 4); ++i) {
        const At at = kind == DType::f32 ? of_b_tf32(lane, i) : of_b(lane, i);
        right[at.row][at.column] = value(its(lane).b, i);
      }
    }
    for (int lane = 0; lane < warp_size; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const At at = of_d(lane, i);
        float sum = 0.0f;
        for (int k = 0; k < (kind == DType::f32 ? 8 : 16); ++k)
          sum += Machine::product(left[at.row][k], right[k][at.column]);
        its(lane).d[i] += sum;
      }
    }
  });
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
