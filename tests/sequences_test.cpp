// SPDX-License-Identifier: Apache-2.0
// How packed sequences are found: by their units and by their states in the workspace.
#include <cstdint>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/sequences.hpp"

namespace tilemamba::kernels {
namespace {

/// Sequences of these lengths one after the other, and their tables.
struct Packed {
  std::vector<std::int32_t> bounds{0}, units;
  Sequences sequences;

  Packed(const std::vector<int>& lengths, const Cut& cut) {
    for (const int length : lengths) bounds.push_back(bounds.back() + length);
    units.resize(bounds.size());
    sequences.count = static_cast<std::int64_t>(lengths.size());
    sequences.tokens = bounds.back();
    sequences.cu_seqlens = bounds.data();
    sequences.unit_starts = units.data();
    sequences.cut = cut;
    sequences.slots = cut.most_slots(sequences.count, sequences.tokens);
    sequences.tabulate();
  }
};

std::vector<int> lengths_of(std::mt19937& random, int count, int most) {
  std::vector<int> lengths;
  for (int s = 0; s < count; ++s) lengths.push_back(std::uniform_int_distribution<int>(0, most)(random));
  return lengths;
}

TEST(Sequences, UnitsAndStatesBelongToTheirSequences) {
  std::mt19937 random(7);
  const Packed packed(lengths_of(random, 50, 1000), {64, 0, 2, 1});
  const Sequences& all = packed.sequences;
  std::int64_t slot = 0;
  for (std::int64_t s = 0; s < all.count; ++s) {
    EXPECT_EQ(all[s].first_slot, slot);
    for (std::int64_t unit = 0; unit + 1 < all[s].units; ++unit, ++slot) EXPECT_EQ(all.of_slot(slot).index, s);
  }
  EXPECT_EQ(slot, all.states());
  for (std::int64_t unit = 0; unit < all.units(); ++unit) {
    const Sequence sequence = all.of_unit(unit);
    EXPECT_GE(unit, sequence.first_unit);
    EXPECT_LT(unit, sequence.first_unit + sequence.units);
  }
}

/// Each chunk of packed sequences has a place of its own, whatever the lengths and where snapshots are.
TEST(Sequences, ChunksHavePlaces) {
  std::mt19937 random(8);
  for (const std::int64_t period : {0, 1, 48, 64, 65, 100, 200}) {
    for (int turn = 0; turn < 20; ++turn) {
      const Packed packed(lengths_of(random, 30, turn % 2 == 0 ? 300 : 3), {64, period, 2, 1});
      const Sequences& all = packed.sequences;
      std::int64_t free = 0;
      for (std::int64_t s = 0; s < all.count; ++s) {
        EXPECT_GE(all.first_chunk(s), free);
        for (std::int64_t k = 0; k < all.cut.chunks(all[s].length); ++k)
          EXPECT_EQ(all.of_chunk(all.first_chunk(s) + k).index, s);
        free = all.first_chunk(s) + all.cut.chunks(all[s].length);
      }
      EXPECT_LE(free, all.cut.chunks(all.tokens) + all.count);
    }
  }
}
/// Whatever cu_seqlens holds.
TEST(Sequences, ChunksHavePlacesInsideTheWorkspace) {
  std::mt19937 random(9);
  for (int turn = 0; turn < 200; ++turn) {
    Packed packed(lengths_of(random, 30, 300), {64, 0, 2, 1});
    const Sequences& all = packed.sequences;
    const auto most = static_cast<std::int32_t>(all.tokens + 100);
    for (std::int32_t& bound : packed.bounds) bound = std::uniform_int_distribution(-100, most)(random);
    for (std::int64_t s = 0; s < all.count; ++s) {
      EXPECT_GE(all.first_chunk(s), 0);
      EXPECT_LE(all.first_chunk(s) + all.cut.chunks(all.length(s)), all.cut.chunks(all.tokens) + all.count);
    }
    for (std::int64_t chunk = 0; chunk < all.cut.chunks(all.tokens) + all.count; ++chunk) {
      const std::int64_t s = all.of_chunk(chunk).index;
      EXPECT_TRUE(s >= 0 && s < all.count);
    }
  }
}

}  // namespace
}  // namespace tilemamba::kernels
