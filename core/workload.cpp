// SPDX-License-Identifier: Apache-2.0
#include "core/workload.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <fstream>

#include "core/tile/scalar.hpp"

namespace tilemamba::workload {
namespace {

double normal(std::mt19937_64& random) { return std::normal_distribution<double>()(random); }
double silu_normal(std::mt19937_64& random) { return tile::silu(static_cast<float>(normal(random))); }
double softplus_normal(std::mt19937_64& random) { return tile::softplus(static_cast<float>(normal(random))); }
double decay_rate(std::mt19937_64& random) { return -std::uniform_real_distribution<double>(1, 16)(random); }

void store(DType dtype, float value, std::byte* to) {
  if (dtype == DType::f32) {
    std::memcpy(to, &value, sizeof value);
    return;
  }
  const std::uint16_t bits = dtype == DType::bf16 ? tile::to_bf16(value) : tile::to_f16(value);
  std::memcpy(to, &bits, sizeof bits);
}

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

/// Draws as many values as make no visible period, and repeats them: drawing all of a large tensor takes longer than
/// the benchmark.
Tensor Inputs::add(DType dtype, std::initializer_list<std::int64_t> shape, Draw draw) {
  constexpr std::size_t most_drawn = 65537;
  const Layout layout = dense(dtype, shape);
  std::size_t count = 1;
  for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
  const std::size_t size = size_of(dtype);
  std::byte* const data = memory_.emplace_back(count * size).data();
  const std::size_t drawn = std::min(count, most_drawn);
  for (std::size_t i = 0; i < drawn; ++i) store(dtype, static_cast<float>(draw(random_)), data + i * size);
  for (std::size_t i = drawn; i < count; i += drawn) {
    std::memcpy(data + i * size, data, std::min(drawn, count - i) * size);
  }
  return {layout, data};
}

bool all_finite(const Tensor& tensor) {
  std::size_t count = 1;
  for (int i = 0; i < tensor.rank; ++i) count *= static_cast<std::size_t>(tensor.shape[static_cast<std::size_t>(i)]);
  if (tensor.dtype == DType::f32) {
    const auto* values = static_cast<const float*>(tensor.data);
    return std::all_of(values, values + count, [](float value) { return std::isfinite(value); });
  }
  const auto* values = static_cast<const std::uint16_t*>(tensor.data);
  const unsigned exponent = tensor.dtype == DType::bf16 ? 0x7f80u : 0x7c00u;
  return std::all_of(values, values + count, [&](std::uint16_t bits) { return (bits & exponent) != exponent; });
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

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

}  // namespace tilemamba::workload
