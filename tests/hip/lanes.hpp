// SPDX-License-Identifier: Apache-2.0
/// @file
/// A block of a GPU on the host: each lane is a thread of control of its own, and they take turns. It sees what real
/// lanes would hide: local memory read or written without a meeting in between, or out of bounds, and lanes that wait
/// for others that never come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace tilemamba::test::lanes {

struct Launch {
  std::int64_t blocks = 1;
  int lanes = 64;  ///< of a block
  int wave = 64;   ///< lanes of a wave
  std::size_t local_bytes = 0;
};
/// Runs `body` in every lane of every block, block after block. Local memory is full of NaN at first. @returns the
/// first fault that was seen, or "".
[[nodiscard]] std::string run(const Launch& launch, const std::function<void()>& body);

// What a lane may ask.
[[nodiscard]] int lane();
[[nodiscard]] int wave();
[[nodiscard]] std::int64_t block();
/// Local memory of the block, to be read or written.
[[nodiscard]] const void* readable(unsigned offset, std::size_t size);
[[nodiscard]] void* writable(unsigned offset, std::size_t size);
void meet();
void meet_wave();
/// All lanes of the wave come here, each with an object of its own; `perform` is called once with all of them.
void together(void* mine, void (*perform)(void* const* all));
/// For whoever defines an instruction: it was not used as it wants to be.
void complain(const std::string& fault);

}  // namespace tilemamba::test::lanes
