// SPDX-License-Identifier: Apache-2.0
/// @file
/// Threads of control on one thread of the host, which take turns: what a machine that the host plays is made of.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace tilemamba::test::lanes {

/// They live in memory of their own from one run to the next, so that a stack is there as soon as it is needed.
class Fibers {
 public:
  explicit Fibers(int count);
  ~Fibers();
  Fibers(const Fibers&) = delete;
  Fibers& operator=(const Fibers&) = delete;

  /// Runs `body` in each of them. `next` is asked, by whoever gives way or has ended, whose turn it is; the run ends
  /// when it says -1. Those that have not ended then are left as they are: what they hold is lost.
  void run(const std::function<void()>& body, const std::function<int()>& next);

  // From within:
  [[nodiscard]] int current() const;
  void give_way();
  /// Ends the run.
  [[noreturn]] void stop();

  [[nodiscard]] int left() const;  ///< that have not ended
  [[nodiscard]] bool done(int index) const;
  /// Is this the memory of the current one?
  [[nodiscard]] bool on_stack(const void* at) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tilemamba::test::lanes
