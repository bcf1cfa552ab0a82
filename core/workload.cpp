// SPDX-License-Identifier: Apache-2.0
#include "core/workload.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <numbers>

#include "core/drawing.hpp"
#include "core/parallel.hpp"
#include "core/tile/view.hpp"

namespace tilemamba::workload {
namespace {

/// In (0, 1): the 53 upper bits of splitmix64's step from `index`.
double uniform_of(std::uint64_t index) {
  std::uint64_t v = (index + 1) * 0x9e3779b97f4a7c15u;
  v = (v ^ (v >> 30)) * 0xbf58476d1ce4e5b9u;
  v = (v ^ (v >> 27)) * 0x94d049bb133111ebu;
  return (static_cast<double>((v ^ (v >> 31)) >> 11) + 0.5) * 0x1p-53;
}

double silu(double v) { return v / (1 + std::exp(-v)); }

}  // namespace

std::vector<std::int32_t> packed_starts(std::int64_t tokens, std::int64_t sequences) {
  // Of S sequences the first s have (2^(8 s/S) - 1) / (2^8 - 1) of the tokens.
  std::vector<std::int32_t> starts;
  for (std::int64_t s = 0; s <= sequences; ++s) {
    const double share = (std::exp2(8.0 * static_cast<double>(s) / static_cast<double>(sequences)) - 1) / 255;
    starts.push_back(static_cast<std::int32_t>(share * static_cast<double>(tokens)));
  }
  starts.back() = static_cast<std::int32_t>(tokens);
  return starts;
}

Inputs::Inputs(const Shape& shape, DType dtype, Decay decay) {
  const auto [batch, tokens, heads, head_dim, groups, state, sequences] = shape;
  const Draw as_silu = [](double normal, double, std::int64_t) { return silu(normal); };
  const Draw as_is = [](double normal, double, std::int64_t) { return normal; };
  const bool slow = decay == Decay::slow;
  arguments_.x = add(dtype, {batch, tokens, heads, head_dim}, as_silu);
  arguments_.dt = add(dtype, {batch, tokens, heads},
                      slow ? Draw([](double, double uniform, std::int64_t) { return 0.09 * uniform; })
                           : Draw([](double normal, double, std::int64_t) { return std::log1p(std::exp(normal)); }));
  arguments_.A = add(DType::f32, {heads},
                     slow ? Draw([](double, double, std::int64_t i) { return i % 2 == 0 ? -1e-3 : -0.2; })
                          : Draw([](double, double uniform, std::int64_t) { return -1 - 15 * uniform; }));
  arguments_.B = add(dtype, {batch, tokens, groups, state}, as_silu);
  arguments_.C = add(dtype, {batch, tokens, groups, state}, as_silu);
  arguments_.D = add(DType::f32, {heads}, as_is);
  if (sequences == 0) {
    arguments_.initial_states = add(DType::f32, {batch, heads, head_dim, state}, as_is);
    return;
  }
  const std::vector<std::int32_t> starts = packed_starts(tokens, sequences);
  MutableTensor cu_seqlens{dense(DType::i32, {sequences + 1}), nullptr};
  cu_seqlens.data = memory_.emplace_back(starts.size() * sizeof starts[0]).data();
  std::memcpy(cu_seqlens.data, starts.data(), starts.size() * sizeof starts[0]);
  arguments_.cu_seqlens = cu_seqlens;
}

Tensor Inputs::add(DType dtype, std::initializer_list<std::int64_t> shape, Draw draw) {
  MutableTensor tensor{dense(dtype, shape), nullptr};
  const auto first = static_cast<std::uint64_t>(memory_.size()) << 32;
  tensor.data = memory_.emplace_back(static_cast<std::size_t>(elements(tensor)) * size_of(dtype)).data();
  fill_drawn(tensor, [&, i = std::int64_t{0}]() mutable {
    const std::uint64_t index = first + 2 * static_cast<std::uint64_t>(i);
    const double uniform = uniform_of(index);
    const double normal = std::sqrt(-2 * std::log(uniform)) * std::cos(2 * std::numbers::pi * uniform_of(index + 1));
    return static_cast<float>(draw(normal, uniform, i++));
  });
  return tensor;
}

Problem problem_of(const Shape& shape, DType dtype) {
  Problem problem;
  problem.batch = shape.batch;
  problem.tokens = shape.tokens;
  problem.heads = shape.heads;
  problem.head_dim = shape.head_dim;
  problem.groups = shape.groups;
  problem.state = shape.state;
  problem.x = problem.dt = problem.y = dtype;
  problem.skip = SkipForm::per_head;
  problem.D = problem.final_states = DType::f32;
  if (shape.sequences > 0) problem.packed_sequences = shape.sequences;
  if (shape.sequences == 0) problem.initial_states = DType::f32;
  return problem;
}

bool all_finite(const Tensor& tensor) {
  std::atomic<bool> finite = true;
  in_parallel(elements(tensor), 1 << 20, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end && finite; ++i) {
      if (!std::isfinite(tile::load(tensor.data, tensor.dtype, i))) finite = false;
    }
  });
  return finite;
}

double minimal_bytes(const Problem& problem) {
  const auto rows = static_cast<double>(problem.batch * problem.tokens);
  const auto x_elements = static_cast<double>(problem.heads * problem.head_dim);
  const auto B_elements = static_cast<double>(problem.groups * problem.state);
  const auto x_size = static_cast<double>(size_of(problem.x));
  const auto y_size = static_cast<double>(size_of(problem.y));
  const auto dt_size = static_cast<double>(size_of(problem.dt));
  return rows *
         (x_elements * (x_size + y_size) + B_elements * 2 * x_size + static_cast<double>(problem.heads) * dt_size);
}

double useful_flop(const Problem& problem) {
  const auto rows = static_cast<double>(problem.batch * problem.tokens);
  constexpr double Q = 128;
  const auto H = static_cast<double>(problem.heads);
  const auto P = static_cast<double>(problem.head_dim);
  const auto G = static_cast<double>(problem.groups);
  const auto N = static_cast<double>(problem.state);
  return rows * (G * Q * N + H * Q * P + 4 * H * P * N);
}

}  // namespace tilemamba::workload
