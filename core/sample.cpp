// SPDX-License-Identifier: Apache-2.0
#include "core/sample.hpp"

#include <algorithm>
#include <cmath>

#include "core/parallel.hpp"
#include "core/tile/view.hpp"

namespace tilemamba {

namespace {

double value_at(const Tensor& tensor, std::int64_t i) { return tile::load(tensor.data, tensor.dtype, i); }

}  // namespace

double Distance::relative() const { return std::sqrt(error_ / norm_); }

Sample::Sample(const Problem& problem, const Arguments& call) : problem_(problem) {
  constexpr double most_work = 4e8, most_channels = 32;
  const std::int64_t all = problem.sequences() * problem.heads * problem.head_dim;
  const double work = static_cast<double>(std::max<std::int64_t>(problem.tokens * problem.state, 1));
  const auto count = std::min(all, static_cast<std::int64_t>(std::clamp(most_work / work, 2.0, most_channels)));
  const auto* starts = call.cu_seqlens ? static_cast<const std::int32_t*>(call.cu_seqlens->data) : nullptr;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t which = count == 1 ? all / 2 : (all - 1) / (count - 1) * i;
    const std::int64_t head = which / problem.head_dim, sequence = head / problem.heads;
    const std::int64_t begin = starts != nullptr ? starts[sequence] : sequence * problem.tokens;
    const std::int64_t end = starts != nullptr ? starts[sequence + 1] : begin + problem.tokens;
    channels_.push_back({sequence, head % problem.heads, which % problem.head_dim, begin, end, {}, {}});
  }
  in_parallel(count, 1, [&](std::int64_t k, std::int64_t) { compute(call, channels_[static_cast<std::size_t>(k)]); });
}

void Sample::compute(const Arguments& a, Channel& c) const {
  const std::int64_t H = problem_.heads, P = problem_.head_dim, G = problem_.groups, N = problem_.state;
  std::vector<double> h(static_cast<std::size_t>(N), 0.0);
  for (std::int64_t n = 0; n < N && a.initial_states; ++n) {
    h[static_cast<std::size_t>(n)] = value_at(*a.initial_states, ((c.sequence * H + c.head) * P + c.channel) * N + n);
  }
  const double A = value_at(a.A, c.head);
  const double bias = a.dt_bias ? value_at(*a.dt_bias, c.head) : 0.0;
  const double D = a.D ? value_at(*a.D, problem_.skip == SkipForm::per_head ? c.head : c.head * P + c.channel) : 0.0;
  const auto* documents = a.seq_idx ? static_cast<const std::int32_t*>(a.seq_idx->data) : nullptr;
  for (std::int64_t t = c.begin; t < c.end; ++t) {
    if (documents != nullptr && t > c.begin && documents[t] != documents[t - 1]) std::fill(h.begin(), h.end(), 0.0);
    double delta = value_at(a.dt, t * H + c.head) + bias;
    if (problem_.options.dt_softplus && delta <= 20) delta = std::log1p(std::exp(delta));
    delta = std::clamp<double>(delta, problem_.options.dt_min, problem_.options.dt_max);
    const double decay = std::exp(delta * A);
    const std::int64_t at = (t * H + c.head) * P + c.channel;
    const double x = value_at(a.x, at);
    double y = D * x;
    for (std::int64_t n = 0; n < N; ++n) {
      const std::int64_t of_group = (t * G + c.head / (H / G)) * N + n;
      double& state = h[static_cast<std::size_t>(n)];
      state = decay * state + delta * x * value_at(a.B, of_group);
      y += state * value_at(a.C, of_group);
    }
    if (a.z) {
      const double z = value_at(*a.z, at);
      y *= z / (1 + std::exp(-z));
    }
    c.y.push_back(y);
  }
  c.final_state = h;
}

void Sample::add(const Arguments& a, const Channel& c, Errors& errors) const {
  const std::int64_t H = problem_.heads, P = problem_.head_dim, N = problem_.state;
  for (std::int64_t t = c.begin; t < c.end; ++t) {
    errors.y.add(value_at(a.y, (t * H + c.head) * P + c.channel), c.y[static_cast<std::size_t>(t - c.begin)]);
  }
  for (std::int64_t n = 0; n < N && a.final_states; ++n) {
    errors.final_states.add(value_at(*a.final_states, ((c.sequence * H + c.head) * P + c.channel) * N + n),
                            c.final_state[static_cast<std::size_t>(n)]);
  }
}

Sample::Errors Sample::errors_of(const Arguments& call) const {
  Errors errors;
  for (const Channel& channel : channels_) add(call, channel, errors);
  return errors;
}

bool Sample::within(double bar, const Arguments& call) const {
  return std::all_of(channels_.begin(), channels_.end(), [&](const Channel& channel) {
    Errors errors;
    add(call, channel, errors);
    return errors.y.within(bar) && errors.final_states.within(bar);
  });
}

}  // namespace tilemamba
