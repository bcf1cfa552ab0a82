// SPDX-License-Identifier: Apache-2.0
#include "core/workload.hpp"

#include <cmath>
#include <cstddef>

#include "core/drawing.hpp"
#include "core/tile/scalar.hpp"
#include "core/tile/view.hpp"

namespace tilemamba::workload {
namespace {

double normal(std::mt19937_64& random) { return std::normal_distribution<double>()(random); }
double silu_normal(std::mt19937_64& random) { return tile::silu(static_cast<float>(normal(random))); }
double softplus_normal(std::mt19937_64& random) { return tile::softplus(static_cast<float>(normal(random))); }
double decay_rate(std::mt19937_64& random) { return -std::uniform_real_distribution<double>(1, 16)(random); }

}  // namespace

Inputs::Inputs(const Shape& shape, DType dtype) {
  const auto [batch, tokens, heads, head_dim, groups, state] = shape;
  arguments_.x = add(dtype, {batch, tokens, heads, head_dim}, silu_normal);
  arguments_.dt = add(dtype, {batch, tokens, heads}, softplus_normal);
  arguments_.A = add(DType::f32, {heads}, decay_rate);
  arguments_.B = add(dtype, {batch, tokens, groups, state}, silu_normal);
  arguments_.C = add(dtype, {batch, tokens, groups, state}, silu_normal);
  arguments_.D = add(DType::f32, {heads}, normal);
  arguments_.initial_states = add(DType::f32, {batch, heads, head_dim, state}, normal);
}

Tensor Inputs::add(DType dtype, std::initializer_list<std::int64_t> shape, Draw draw) {
  MutableTensor tensor;
  static_cast<Layout&>(tensor) = dense(dtype, shape);
  tensor.data = memory_.emplace_back(static_cast<std::size_t>(elements(tensor)) * size_of(dtype)).data();
  fill_drawn(tensor, [&] { return static_cast<float>(draw(random_)); });
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
  problem.D = problem.initial_states = problem.final_states = DType::f32;
  return problem;
}

bool all_finite(const Tensor& tensor) {
  for (std::int64_t i = 0; i < elements(tensor); ++i) {
    if (!std::isfinite(tile::load(tensor.data, tensor.dtype, i))) return false;
  }
  return true;
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
