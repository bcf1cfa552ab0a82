// SPDX-License-Identifier: Apache-2.0
/// @file
/// Launches: the plain drive of kernels/walk.hpp, a Kokkos team a block.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/kokkos/worker.hpp"
#include "kernels/walk.hpp"

namespace tilemamba::kokkos {

/// Threads of a team, and the level of scratch memory that holds its tiles.
template <class Space>
struct TeamShape {
  static constexpr int threads = Worker<Space>::on_host ? 1 : 128;
  static constexpr int level = Worker<Space>::on_host ? 0 : 1;
};

/// One block of a launch, as Kokkos calls it.
template <class Space, class Body>
struct BlockFunctor {
  using W = Worker<Space>;
  kernels::Call call;
  kernels::HeadBlocks heads;
  Extents extents;
  std::size_t scratch_bytes;

  KOKKOS_FUNCTION void operator()(const typename W::Member& team) const {
    char* memory = static_cast<char*>(team.team_scratch(TeamShape<Space>::level).get_shmem_aligned(scratch_bytes, 64));
    W w{&team, {memory, 0}, extents};
    Body body(w, heads);
    body(w, call, heads, team.league_rank());
  }
};

/// Scratch memory of a block, found by building its tiles over a counter.
template <class Space, class Body>
std::size_t scratch_bytes(const Extents& extents, const kernels::HeadBlocks& heads) {
  Worker<Space> counter{nullptr, {}, extents};
  const Body body(counter, heads);
  return counter.scratch.used;
}

/// In the place of a launcher: the most that any launch of a schedule needs.
template <class Space>
struct ScratchMeter {
  using W = Worker<Space>;
  Extents extents;
  std::size_t most = 0;

  template <class Body>
  void operator()(const kernels::Call&, const kernels::HeadBlocks& heads) {
    most = std::max(most, scratch_bytes<Space, Body>(extents, heads));
  }
};

template <class Space>
struct Launcher {
  using W = Worker<Space>;
  Space space;
  Extents extents;

  template <class Body>
  auto policy(std::int64_t blocks, std::size_t bytes) const {
    // Blocks differ in cost (ragged sequences): whoever is free takes the next.
    using Policy = Kokkos::TeamPolicy<Space, Kokkos::Schedule<Kokkos::Dynamic>>;
    Policy result(space, static_cast<int>(blocks), TeamShape<Space>::threads);
    result.set_scratch_size(TeamShape<Space>::level, Kokkos::PerTeam(static_cast<int>(bytes + 64)));
    return result;
  }

  template <class Body>
  void operator()(const kernels::Call& call, const kernels::HeadBlocks& heads) const {
    const std::int64_t blocks = Body::blocks(call, heads);
    if (blocks == 0) return;
    const std::size_t bytes = scratch_bytes<Space, Body>(extents, heads);
    Kokkos::parallel_for(policy<Body>(blocks, bytes), BlockFunctor<Space, Body>{call, heads, extents, bytes});
  }
};

/// Kokkos keeps a thread's scratch memory between launches and enlarges it when one asks for more. This launch asks for
/// the most and does nothing else, so that no later one has to.
template <class Space>
struct Nothing {
  KOKKOS_FUNCTION void operator()(const typename Worker<Space>::Member&) const {}
};
template <class Space>
void reserve_scratch(const Launcher<Space>& launcher, std::size_t bytes) {
  Kokkos::parallel_for(launcher.template policy<Nothing<Space>>(1, bytes), Nothing<Space>{});
  launcher.space.fence("tilemamba");
}

}  // namespace tilemamba::kokkos
