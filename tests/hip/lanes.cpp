// SPDX-License-Identifier: Apache-2.0
// Jumps between stacks are what this is for: nothing must look for them.
#undef _FORTIFY_SOURCE
#include "tests/hip/lanes.hpp"

#include <setjmp.h>
#include <ucontext.h>

#include <memory>
#include <vector>

namespace tilemamba::test::lanes {
namespace {

constexpr std::size_t stack_bytes = std::size_t{1} << 18;

struct Lane {
  ucontext_t start{};
  jmp_buf at{};
  std::unique_ptr<std::byte[]> stack;
  bool started = false, done = false;
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
  const std::function<void()>* body = nullptr;
  std::vector<Lane> lanes;
  std::vector<Wave> waves;
  std::vector<std::byte> memory;
  std::vector<Use> uses;
  int arrived = 0, current = 0, left = 0;
  std::uint64_t round = 0;
  std::string fault;
  jmp_buf home{};
};
thread_local Block* at_work = nullptr;

Lane& mine() { return at_work->lanes[static_cast<std::size_t>(at_work->current)]; }
Wave& my_wave() { return at_work->waves[static_cast<std::size_t>(wave())]; }

bool can_run(int index) {
  const Block& block = *at_work;
  const Lane& lane = block.lanes[static_cast<std::size_t>(index)];
  return !lane.done && lane.wave_round == block.waves[static_cast<std::size_t>(index / block.launch.wave)].round &&
         lane.block_round == block.round;
}

[[noreturn]] void go(int index);

/// The next lane that can run: of the same wave, else of another.
[[noreturn]] void go_on() {
  Block& block = *at_work;
  if (block.left == 0) _longjmp(block.home, 1);
  const int width = block.launch.wave, first = block.current / width * width;
  for (int k = 1; k <= width; ++k) {
    const int index = first + (block.current - first + k) % width;
    if (can_run(index)) go(index);
  }
  for (int k = 1; k <= block.launch.lanes; ++k) {
    const int index = (first + k) % block.launch.lanes;
    if (can_run(index)) go(index);
  }
  complain("lanes wait for others that never come");
  _longjmp(block.home, 1);
}

void enter() {
  (*at_work->body)();
  mine().done = true;
  --at_work->left;
  go_on();
}

[[noreturn]] void go(int index) {
  at_work->current = index;
  Lane& lane = mine();
  if (lane.started) _longjmp(lane.at, 1);
  lane.started = true;
  getcontext(&lane.start);
  lane.start.uc_stack.ss_sp = lane.stack.get();
  lane.start.uc_stack.ss_size = stack_bytes;
  lane.start.uc_link = nullptr;
  makecontext(&lane.start, &enter, 0);
  setcontext(&lane.start);
  __builtin_unreachable();
}

/// Others take their turns until this lane can run again.
void give_way() {
  if (_setjmp(mine().at) == 0) go_on();
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
  complain("local memory at " + std::to_string(offset) + ": lane " + std::to_string(at_work->current) + " " + what +
           " lane " + std::to_string(other) + ", and they have not met in between");
}

}  // namespace

int lane() { return at_work->current % at_work->launch.wave; }
int wave() { return at_work->current / at_work->launch.wave; }
std::int64_t block() { return at_work->index; }

void complain(const std::string& fault) {
  if (at_work->fault.empty()) at_work->fault = fault;
}

const void* readable(unsigned offset, std::size_t size) {
  Use* use = uses_of(offset, size);
  if (use == nullptr) return at_work->memory.data();
  const int me = at_work->current, width = at_work->launch.wave;
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
  const int me = at_work->current, width = at_work->launch.wave;
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
  give_way();
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
  give_way();
}

void meet_wave() {
  together(nullptr, nullptr);
  ++mine().fence;
}

std::string run(const Launch& launch, const std::function<void()>& body) {
  Block block;
  block.launch = launch;
  block.body = &body;
  const auto count = static_cast<std::size_t>(launch.lanes);
  std::vector<std::unique_ptr<std::byte[]>> stacks(count);
  for (auto& stack : stacks) stack.reset(new std::byte[stack_bytes]);  // not to be touched before it is used
  Block* const before = at_work;
  at_work = &block;
  for (block.index = 0; block.index < launch.blocks && block.fault.empty(); ++block.index) {
    for (std::size_t i = 0; i < block.lanes.size(); ++i) stacks[i] = std::move(block.lanes[i].stack);
    block.lanes = std::vector<Lane>(count);
    for (std::size_t i = 0; i < count; ++i) block.lanes[i].stack = std::move(stacks[i]);
    block.waves = std::vector<Wave>(count / static_cast<std::size_t>(launch.wave));
    for (Wave& wave : block.waves) wave.objects.resize(static_cast<std::size_t>(launch.wave));
    block.memory.assign(launch.local_bytes, std::byte{0xff});
    block.uses.assign(launch.local_bytes / 2, {});
    block.arrived = 0, block.round = 0, block.left = launch.lanes;
    if (_setjmp(block.home) == 0) go(0);
  }
  at_work = before;
  return block.fault;
}

}  // namespace tilemamba::test::lanes
