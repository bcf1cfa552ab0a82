// SPDX-License-Identifier: Apache-2.0
/// @file
/// Launches: the plain drive of kernels/walk.hpp, a Kokkos team a block.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/kokkos/worker.hpp"
#include "kernels/walk.hpp"

namespace tilemamba::kokkos {

/// Threads of a team, each of so many lanes (which share a row), and the level of scratch memory that holds its tiles.
template <class Space>
struct TeamShape {
  static constexpr int threads = Worker<Space>::on_host ? 1 : 8, lanes = Worker<Space>::on_host ? 1 : 32;
  static constexpr int level = Worker<Space>::on_host ? 0 : 1;
};

/// One block of a launch, as Kokkos calls it.
template <class W, class Body>
struct BlockFunctor {
  kernels::Call call;
  kernels::HeadBlocks heads;
  Extents extents;
  std::size_t scratch_bytes;

  KOKKOS_FUNCTION void operator()(const typename W::Member& team) const {
    using Space = typename W::Space;
    constexpr int level = TeamShape<Space>::level;
    char* memory = static_cast<char*>(team.team_scratch(level).get_shmem_aligned(scratch_bytes, 64));
    W w(&team, Scratch{memory, 0}, extents);
    Body body(w, heads);
    body(w, call, heads, team.league_rank());
  }
};

/// Scratch memory of a block, found by building its tiles over a counter.
template <class W, class Body>
std::size_t scratch_bytes(const Extents& extents, const kernels::HeadBlocks& heads) {
  W counter(nullptr, Scratch{}, extents);
  const Body body(counter, heads);
  return counter.scratch.used;
}

/// In the place of a launcher: the most that any launch of a schedule needs.
template <class W>
struct ScratchMeter {
  Extents extents;
  std::size_t most = 0;

  template <class Body>
  void operator()(const kernels::Call&, const kernels::HeadBlocks& heads) {
    most = std::max(most, scratch_bytes<W, Body>(extents, heads));
  }
};

template <class W>
struct Launcher {
  using Space = typename W::Space;
  Space space;
  Extents extents;

  template <class Body>
  auto policy(std::int64_t blocks, std::size_t bytes) const {
    // Blocks differ in cost (ragged sequences): whoever is free takes the next.
    using Policy = Kokkos::TeamPolicy<Space, Kokkos::Schedule<Kokkos::Dynamic>>;
    Policy result(space, static_cast<int>(blocks), TeamShape<Space>::threads, TeamShape<Space>::lanes);
    result.set_scratch_size(TeamShape<Space>::level, Kokkos::PerTeam(static_cast<int>(bytes + 64)));
    return result;
  }

  template <class Body>
  void operator()(const kernels::Call& call, const kernels::HeadBlocks& heads) const {
    const std::int64_t blocks = Body::blocks(call, heads);
    if (blocks == 0) return;
    const std::size_t bytes = scratch_bytes<W, Body>(extents, heads);
    Kokkos::parallel_for(policy<Body>(blocks, bytes), BlockFunctor<W, Body>{call, heads, extents, bytes});
  }
};

/// Kokkos keeps a thread's scratch memory between launches and enlarges it when one asks for more. This launch asks for
/// the most and does nothing else, so that no later one has to.
template <class Space>
struct Nothing {
  KOKKOS_FUNCTION void operator()(const typename Worker<Space>::Member&) const {}
};
template <class W>
void reserve_scratch(const Launcher<W>& launcher, std::size_t bytes) {
  using Idle = Nothing<typename W::Space>;
  Kokkos::parallel_for(launcher.template policy<Idle>(1, bytes), Idle{});
  launcher.space.fence("tilemamba");
}

}  // namespace tilemamba::kokkos
