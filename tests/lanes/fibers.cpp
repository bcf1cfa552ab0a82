// SPDX-License-Identifier: Apache-2.0
// Jumps between stacks are what this is for: nothing must look for them.
#undef _FORTIFY_SOURCE
#include "tests/lanes/fibers.hpp"

#include <setjmp.h>
#include <ucontext.h>

#include <vector>

namespace tilemamba::test::lanes {
namespace {

constexpr std::size_t stack_bytes = std::size_t{1} << 18;

struct Fiber {
  ucontext_t start{};
  jmp_buf at{};
  std::unique_ptr<std::byte[]> stack{new std::byte[stack_bytes]};  // not to be touched before it is used
  bool started = false, done = false;
};

}  // namespace

struct Fibers::State {
  std::vector<Fiber> fibers;
  const std::function<void()>* body = nullptr;
  const std::function<int()>* next = nullptr;
  int current = 0, left = 0;
  jmp_buf home{};

  [[nodiscard]] Fiber& its(int index) { return fibers[static_cast<std::size_t>(index)]; }

  [[noreturn]] void go(int index) {
    if (index < 0) _longjmp(home, 1);
    current = index;
    Fiber& fiber = its(index);
    if (fiber.started) _longjmp(fiber.at, 1);
    fiber.started = true;
    getcontext(&fiber.start);
    fiber.start.uc_stack.ss_sp = fiber.stack.get();
    fiber.start.uc_stack.ss_size = stack_bytes;
    fiber.start.uc_link = nullptr;
    entering = this;
    makecontext(&fiber.start, &enter, 0);
    setcontext(&fiber.start);
    __builtin_unreachable();
  }

  static void enter() {
    State& mine = *entering;
    (*mine.body)();
    mine.its(mine.current).done = true;
    --mine.left;
    mine.go((*mine.next)());
  }
  static thread_local State* entering;
};
thread_local Fibers::State* Fibers::State::entering = nullptr;

Fibers::Fibers(int count) : state_(std::make_unique<State>()) {
  state_->fibers = std::vector<Fiber>(static_cast<std::size_t>(count));
}
Fibers::~Fibers() = default;

void Fibers::run(const std::function<void()>& body, const std::function<int()>& next) {
  for (Fiber& fiber : state_->fibers) fiber.started = fiber.done = false;
  state_->body = &body, state_->next = &next;
  state_->left = static_cast<int>(state_->fibers.size());
  if (_setjmp(state_->home) == 0) state_->go(next());
}

int Fibers::current() const { return state_->current; }

void Fibers::give_way() {
  const int index = (*state_->next)();
  if (index == state_->current) return;
  if (_setjmp(state_->its(state_->current).at) == 0) state_->go(index);
}

void Fibers::stop() { _longjmp(state_->home, 1); }

int Fibers::left() const { return state_->left; }
bool Fibers::done(int index) const { return state_->its(index).done; }
bool Fibers::on_stack(const void* at) const {
  return static_cast<std::size_t>(static_cast<const std::byte*>(at) - state_->its(state_->current).stack.get()) <
         stack_bytes;
}

}  // namespace tilemamba::test::lanes
