// SPDX-License-Identifier: Apache-2.0
/// @file
/// Work on the host that is as large as a call's tensors, for programs that look at what a call gave.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace tilemamba {

/// f(begin, end) for all of [0, count) in pieces of `piece`, by as many threads as the machine has. `f` throws nothing.
template <class F>
void in_parallel(std::int64_t count, std::int64_t piece, const F& f) {
  std::atomic<std::int64_t> next = 0;
  const auto work = [&] {
    for (std::int64_t begin = next.fetch_add(piece); begin < count; begin = next.fetch_add(piece)) {
      f(begin, std::min(count, begin + piece));
    }
  };
  std::vector<std::jthread> helpers;
  const std::int64_t pieces = (count + piece - 1) / piece;
  for (std::int64_t i = 1; i < std::min<std::int64_t>(std::thread::hardware_concurrency(), pieces); ++i) {
    helpers.emplace_back(work);
  }
  work();
}

}  // namespace tilemamba
