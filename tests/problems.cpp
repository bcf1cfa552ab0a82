// SPDX-License-Identifier: Apache-2.0
#include "tests/problems.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace tilemamba::test {

Spec draw(std::uint64_t seed, double work) {
  Random random(seed);
  Spec s;
  s.seed = seed;
  // Mostly the sizes of released models, else whatever lies between: those take the padded paths.
  s.head_dim =
      random.chance(0.6) ? random.one_of<std::int64_t>({16, 32, 48, 64, 80, 96, 128, 256}) : random.integer(16, 100);
  s.state = random.chance(0.6) ? random.one_of<std::int64_t>({8, 16, 32, 64, 96, 128, 200, 256, 384, 512})
                               : random.integer(8, 140);
  s.groups = random.one_of<std::int64_t>({1, 1, 1, 2, 3});
  s.heads = s.groups * random.integer(1, s.groups == 1 ? 5 : 2);
  const double token_work = static_cast<double>(s.heads * s.head_dim * s.state);
  const auto most = std::clamp<std::int64_t>(static_cast<std::int64_t>(work / token_work), 8, 700);
  const auto length = [&](std::int64_t limit) {
    if (random.chance(0.3)) {  // about the borders of tiles
      const std::int64_t border = random.one_of<std::int64_t>({16, 32, 64, 128, 192, 256}) + random.integer(-1, 1);
      if (border <= limit) return border;
    }
    return random.chance(0.2) ? random.integer(1, std::min<std::int64_t>(limit, 9)) : random.integer(1, limit);
  };
  if (random.chance(0.4)) {
    std::vector<std::int64_t> lengths;
    std::int64_t left = most;
    for (std::int64_t count = random.integer(1, 7); count > 0; --count) {
      lengths.push_back(left == 0 || random.chance(0.15) ? 0 : length(left));
      left -= lengths.back();
    }
    s.pack(lengths);
  } else {
    s.batch = random.one_of<std::int64_t>({1, 1, 2, 3});
    s.tokens = length(std::max<std::int64_t>(most / s.batch, 1));
  }

  const auto any = [&] { return random.one_of({DType::f32, DType::f16, DType::bf16}); };
  s.x = random.one_of({DType::f32, DType::f16, DType::bf16, DType::bf16});
  s.dt = random.chance(0.5) ? s.x : DType::f32;
  s.y = random.chance(0.7) ? s.x : DType::f32;
  s.skip = random.one_of({SkipForm::none, SkipForm::per_head, SkipForm::per_channel});
  s.D = random.chance(0.5) ? s.x : DType::f32;
  s.z = random.chance(0.4);
  if (random.chance(0.5)) s.dt_bias = random.chance(0.5) ? s.dt : DType::f32;
  if (random.chance(0.6)) s.initial_states = any();
  s.final_states.reset();
  if (random.chance(0.8)) s.final_states = any();
  if (random.chance(0.3)) s.new_document = random.one_of({0.01, 0.05, 0.3});
  if (s.new_document == 0 && random.chance(0.3)) {
    s.chunk_states = s.final_states ? *s.final_states : any();
    s.options.chunk_states_every = 16 * random.one_of<std::int64_t>({1, 2, 3, 4, 4, 5, 8});
  }
  s.options.dt_softplus = random.chance(0.5);
  if (random.chance(0.4)) {  // a lower limit above 0 also tells whether rows beyond the end decay the state
    s.options.dt_min = static_cast<float>(random.one_of({0.0, 0.001, 0.05}));
    s.options.dt_max = static_cast<float>(random.one_of({0.1, 1.0, 3.0}));
  }
  s.options.chunk_size = random.one_of<std::int64_t>({0, 64, 128, 256});
  s.options.batch_invariant = random.chance(0.3);
  s.decay = random.one_of({Decay::published, Decay::slow, Decay::slow});
  s.memory = random.one_of({Memory::dense, Memory::one_buffer, Memory::scattered});
  return s;
}

std::uint64_t first_seed() {
  const char* const text = std::getenv("TILEMAMBA_TEST_SEED");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

std::int64_t draws(std::int64_t usual) {
  const char* const text = std::getenv("TILEMAMBA_TEST_DRAWS");
  const double factor = text == nullptr ? 1.0 : std::strtod(text, nullptr);
  return std::max<std::int64_t>(1, std::llround(factor * static_cast<double>(usual)));
}

}  // namespace tilemamba::test
