// SPDX-License-Identifier: Apache-2.0
#include "tests/hip/lanes.hpp"

#include <vector>

#include "tests/lanes/fibers.hpp"

namespace tilemamba::test::lanes {
namespace {

struct Lane {
  std::uint64_t wave_round = 0;   ///< meetings of its wave that it has come to, of any kind
  std::uint64_t block_round = 0;  ///< meetings of its block
  std::uint64_t fence = 0;        ///< meetings after which it sees what its wave wrote
};
struct Wave {
  std::vector<void*> objects;
  int arrived = 0;
  std::uint64_t round = 0;
};
/// Who has used two bytes of local memory since when.
struct Use {
  int writer = -1;
  std::uint64_t write_fence = 0, write_round = 0;
  int reader = -1;
  bool several_lanes = false, several_waves = false;
  std::uint64_t read_fence = 0, read_round = 0;
};

struct Block {
  Launch launch;
  std::int64_t index = 0;
  Fibers* fibers = nullptr;
  std::vector<Lane> lanes;
  std::vector<Wave> waves;
  std::vector<std::byte> memory;
  std::vector<Use> uses;
  int arrived = 0;
  std::uint64_t round = 0;
  std::string fault;
};
thread_local Block* at_work = nullptr;

int current() { return at_work->fibers->current(); }
Lane& mine() { return at_work->lanes[static_cast<std::size_t>(current())]; }
Wave& my_wave() { return at_work->waves[static_cast<std::size_t>(wave())]; }

bool can_run(int index) {
  const Block& block = *at_work;
  const Lane& lane = block.lanes[static_cast<std::size_t>(index)];
  return !block.fibers->done(index) &&
         lane.wave_round == block.waves[static_cast<std::size_t>(index / block.launch.wave)].round &&
         lane.block_round == block.round;
}

/// The next lane that can run: of the same wave, else of another; -1: none.
int next_lane() {
  const Block& block = *at_work;
  if (block.fibers->left() == 0) return -1;
  const int width = block.launch.wave, first = current() / width * width;
  for (int k = 1; k <= width; ++k) {
    const int index = first + (current() - first + k) % width;
    if (can_run(index)) return index;
  }
  for (int k = 1; k <= block.launch.lanes; ++k) {
    const int index = (first + k) % block.launch.lanes;
    if (can_run(index)) return index;
  }
  complain("lanes wait for others that never come");
  return -1;
}

Use* uses_of(unsigned offset, std::size_t size) {
  Block& block = *at_work;
  if (offset % size != 0 || offset + size > block.memory.size()) {
    complain("local memory at " + std::to_string(offset) + ", " + std::to_string(size) +
             " bytes, is not aligned or beyond the block's " + std::to_string(block.memory.size()));
    return nullptr;
  }
  return &block.uses[offset / 2];
}

void complain_of(const char* what, int other, unsigned offset) {
  complain("local memory at " + std::to_string(offset) + ": lane " + std::to_string(current()) + " " + what + " lane " +
           std::to_string(other) + ", and they have not met in between");
}

}  // namespace

int lane() { return current() % at_work->launch.wave; }
int wave() { return current() / at_work->launch.wave; }
std::int64_t block() { return at_work->index; }

void complain(const std::string& fault) {
  if (at_work->fault.empty()) at_work->fault = fault;
}

const void* readable(unsigned offset, std::size_t size) {
  Use* use = uses_of(offset, size);
  if (use == nullptr) return at_work->memory.data();
  const int me = current(), width = at_work->launch.wave;
  const Lane& lane = mine();
  for (std::size_t k = 0; k < size / 2; ++k, ++use) {
    if (use->writer >= 0 && use->writer != me &&
        (use->writer / width == me / width ? use->write_fence == lane.fence : use->write_round == lane.block_round))
      complain_of("reads what was written by", use->writer, offset);
    const bool same_round = use->reader >= 0 && use->read_round == lane.block_round;
    const bool same_wave = same_round && use->reader / width == me / width;
    use->several_waves = same_round && (use->several_waves || !same_wave);
    use->several_lanes = same_wave && use->read_fence == lane.fence && (use->several_lanes || use->reader != me);
    use->reader = me, use->read_fence = lane.fence, use->read_round = lane.block_round;
  }
  return at_work->memory.data() + offset;
}

void* writable(unsigned offset, std::size_t size) {
  Use* use = uses_of(offset, size);
  if (use == nullptr) return at_work->memory.data();
  const int me = current(), width = at_work->launch.wave;
  const Lane& lane = mine();
  for (std::size_t k = 0; k < size / 2; ++k, ++use) {
    if (use->writer >= 0 && use->writer != me &&
        (use->writer / width == me / width ? use->write_fence == lane.fence : use->write_round == lane.block_round))
      complain_of("writes over what was written by", use->writer, offset);
    if (use->reader >= 0 && use->read_round == lane.block_round) {
      const bool same_wave = use->reader / width == me / width;
      if (use->several_waves || !same_wave ||
          (use->read_fence == lane.fence && (use->several_lanes || use->reader != me)))
        complain_of("writes over what was read by", use->reader, offset);
    }
    use->writer = me, use->write_fence = lane.fence, use->write_round = lane.block_round;
  }
  return at_work->memory.data() + offset;
}

void meet() {
  Block& block = *at_work;
  ++mine().block_round;
  ++mine().fence;
  if (++block.arrived == block.launch.lanes) {
    block.arrived = 0;
    ++block.round;
    return;
  }
  at_work->fibers->give_way();
}

void together(void* object, void (*perform)(void* const*)) {
  Wave& wave = my_wave();
  wave.objects[static_cast<std::size_t>(lane())] = object;
  ++mine().wave_round;
  if (++wave.arrived == at_work->launch.wave) {
    wave.arrived = 0;
    if (perform != nullptr) perform(wave.objects.data());
    ++wave.round;
    return;
  }
  at_work->fibers->give_way();
}

void meet_wave() {
  together(nullptr, nullptr);
  ++mine().fence;
}

std::string run(const Launch& launch, const std::function<void()>& body) {
  Block block;
  block.launch = launch;
  const auto count = static_cast<std::size_t>(launch.lanes);
  Fibers fibers(launch.lanes);
  block.fibers = &fibers;
  Block* const before = at_work;
  at_work = &block;
  for (block.index = 0; block.index < launch.blocks && block.fault.empty(); ++block.index) {
    block.lanes = std::vector<Lane>(count);
    block.waves = std::vector<Wave>(count / static_cast<std::size_t>(launch.wave));
    for (Wave& wave : block.waves) wave.objects.resize(static_cast<std::size_t>(launch.wave));
    block.memory.assign(launch.local_bytes, std::byte{0xff});
    block.uses.assign(launch.local_bytes / 2, {});
    block.arrived = 0, block.round = 0;
    fibers.run(body, next_lane);
  }
  at_work = before;
  return block.fault;
}

}  // namespace tilemamba::test::lanes
