// SPDX-License-Identifier: Apache-2.0
#include "core/reference.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <optional>
#include <stdexcept>
#include <thread>

namespace tilemamba::reference {
namespace {

// ------------------------------------------------------------------------------------------------------------ numbers

float from_bf16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16) | 0x0040u);  // stay a NaN whatever is cut off
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float widened_f16(std::uint16_t bits) {
  const int sign = bits >> 15, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  float magnitude = 0;
  if (exponent == 31) {
    magnitude = fraction == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(fraction), -24);
  } else {
    magnitude = std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
  }
  return sign != 0 ? -magnitude : magnitude;
}

float from_f16(std::uint16_t bits) {
  static const std::vector<float> table = [] {  // every value once: ldexp is too slow for the inner loops
    std::vector<float> all(1u << 16);
    for (std::uint32_t k = 0; k < all.size(); ++k) all[k] = widened_f16(static_cast<std::uint16_t>(k));
    return all;
  }();
  return table[bits];
}

std::uint16_t to_f16(float value) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000u : 0u);
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | 0x7e00u);
  const float magnitude = std::fabs(value);
  if (magnitude >= 65520.0f) return static_cast<std::uint16_t>(sign | 0x7c00u);  // halfway above the largest, 65504
  if (magnitude <
      std::ldexp(1.0f, -14)) {  // subnormal: a whole number of 2^-24 (1024 of them are the smallest normal's bits)
    return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(std::nearbyint(std::ldexp(magnitude, 24))));
  }
  const auto bits = std::bit_cast<std::uint32_t>(magnitude);
  const std::uint32_t even = bits + 0x0fffu + ((bits >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | ((even >> 13) - ((127u - 15u) << 10)));
}

// --------------------------------------------------------------------------------------------------- what is computed

/// One state's worth of tokens: a row of the batch, or a packed sequence.
struct Sequence {
  std::int64_t row = 0;    ///< batch index of its tokens
  std::int64_t first = 0;  ///< its first token in that row
  std::int64_t length = 0;
  std::int64_t state = 0;              ///< its index in initial_states and final_states
  std::int64_t first_chunk_state = 0;  ///< packed: index of its first chunk state
};

std::vector<Sequence> sequences(const Arguments& a, const Options& options) {
  std::vector<Sequence> all;
  const std::int64_t every = options.chunk_states_every;
  if (!a.cu_seqlens) {
    for (std::int64_t b = 0; b < a.x.shape[0]; ++b) {
      all.push_back({b, 0, a.x.shape[1], b, every == 0 ? 0 : b * (a.x.shape[1] / every)});
    }
    return all;
  }
  std::int64_t chunk_states = 0;
  for (std::int64_t s = 0; s + 1 < a.cu_seqlens->shape[0]; ++s) {
    const auto begin = static_cast<std::int64_t>(at(*a.cu_seqlens, s));
    const auto end = static_cast<std::int64_t>(at(*a.cu_seqlens, s + 1));
    if (begin < 0 || end < begin || end > a.x.shape[1]) throw std::logic_error("reference: cu_seqlens is wrong");
    all.push_back({0, begin, end - begin, s, chunk_states});
    if (every != 0) chunk_states += (end - begin) / every;
  }
  return all;
}

std::int64_t count_chunk_states(const std::vector<Sequence>& all, std::int64_t every) {
  std::int64_t count = 0;
  if (every == 0) return 0;
  for (const Sequence& s : all) count += s.length / every;
  return count;
}

double delta_of(const Arguments& a, const Options& options, std::int64_t row, std::int64_t token, std::int64_t head) {
  double delta = at(a.dt, row, token, head);
  if (a.dt_bias) delta += at(*a.dt_bias, head);
  if (options.dt_softplus && delta <= 20.0) delta = std::log1p(std::exp(delta));
  return std::clamp(delta, static_cast<double>(options.dt_min), static_cast<double>(options.dt_max));
}

double skip_of(const Arguments& a, std::int64_t head, std::int64_t channel) {
  if (!a.D) return 0.0;
  return a.D->rank == 1 ? at(*a.D, head) : at(*a.D, head, channel);
}

/// Document number of each token of a sequence, counted from 0: 0 is the document that the initial state belongs to.
std::vector<int> documents(const Arguments& a, const Sequence& s) {
  std::vector<int> document(static_cast<std::size_t>(s.length), 0);
  if (!a.seq_idx) return document;
  for (std::int64_t t = 1; t < s.length; ++t) {
    const bool fresh = at(*a.seq_idx, s.row, s.first + t) != at(*a.seq_idx, s.row, s.first + t - 1);
    document[t] = document[t - 1] + (fresh ? 1 : 0);
  }
  return document;
}

Answer sized(const Arguments& a, const Options& options, const std::vector<Sequence>& all) {
  const std::int64_t heads = a.x.shape[2], head_dim = a.x.shape[3], state = a.B.shape[3];
  const std::int64_t entries = heads * head_dim * state;
  Answer answer;
  answer.y.resize(a.x.shape[0] * a.x.shape[1] * heads * head_dim);
  answer.final_states.resize(static_cast<std::int64_t>(all.size()) * entries);
  answer.chunk_states.resize(count_chunk_states(all, options.chunk_states_every) * entries);
  return answer;
}

void recur(const Arguments& a, const Options& options, const Sequence& s, std::int64_t head, Answer& answer) {
  const std::int64_t T = a.x.shape[1], H = a.x.shape[2], P = a.x.shape[3], N = a.B.shape[3];
  const std::int64_t group = head / (H / a.B.shape[2]);
  const std::int64_t every = options.chunk_states_every;
  const double A = at(a.A, head);
  std::vector<double> h(N * P, 0.0), x(P),
      y(P);  // h[n][p]: the inner loops run along p, and sums over n keep their order
  if (a.initial_states) {
    for (std::int64_t p = 0; p < P; ++p) {
      for (std::int64_t n = 0; n < N; ++n) h[n * P + p] = at(*a.initial_states, s.state, head, p, n);
    }
  }
  const auto copy_state = [&](std::vector<double>& to, std::int64_t index) {
    double* const out = to.data() + (index * H + head) * P * N;
    for (std::int64_t p = 0; p < P; ++p) {
      for (std::int64_t n = 0; n < N; ++n) out[p * N + n] = h[n * P + p];
    }
  };
  const std::vector<int> document = documents(a, s);
  for (std::int64_t i = 0; i < s.length; ++i) {
    const std::int64_t t = s.first + i;
    if (i > 0 && document[i] != document[i - 1]) std::fill(h.begin(), h.end(), 0.0);
    const double delta = delta_of(a, options, s.row, t, head);
    const double decay = std::exp(delta * A);
    for (std::int64_t p = 0; p < P; ++p) {
      x[p] = at(a.x, s.row, t, head, p);
      y[p] = skip_of(a, head, p) * x[p];
    }
    for (std::int64_t n = 0; n < N; ++n) {
      const double weight = delta * at(a.B, s.row, t, group, n), c = at(a.C, s.row, t, group, n);
      double* const row = h.data() + n * P;
      for (std::int64_t p = 0; p < P; ++p) {
        row[p] = decay * row[p] + weight * x[p];
        y[p] += c * row[p];
      }
    }
    double* const out = answer.y.data() + ((s.row * T + t) * H + head) * P;
    for (std::int64_t p = 0; p < P; ++p) {
      out[p] = y[p];
      if (a.z) {
        const double z = at(*a.z, s.row, t, head, p);
        out[p] *= z / (1.0 + std::exp(-z));
      }
    }
    if (every != 0 && (i + 1) % every == 0) copy_state(answer.chunk_states, s.first_chunk_state + i / every);
  }
  copy_state(answer.final_states, s.state);
}

// --------------------------------------------------------------------------------------------------- the chunked form

/// One (sequence, head) of the chunked form in float, operands rounded to x's type. Chunks are counted from the start
/// of each document, so that a chunk never holds two.
class ChunkWalk {
 public:
  ChunkWalk(const Arguments& a, const Options& options, const Sequence& s, std::int64_t head, std::int64_t chunk,
            Answer& answer)
      : a_(a),
        options_(options),
        s_(s),
        head_(head),
        group_(head / (a.x.shape[2] / a.B.shape[2])),
        T_(a.x.shape[1]),
        H_(a.x.shape[2]),
        P_(a.x.shape[3]),
        N_(a.B.shape[3]),
        chunk_(chunk),
        answer_(answer),
        narrow_(a.x.dtype),
        state_(N_ * P_, 0.0f) {}

  void walk() {
    if (a_.initial_states) {
      for (std::int64_t p = 0; p < P_; ++p) {
        for (std::int64_t n = 0; n < N_; ++n) {
          state_[n * P_ + p] = static_cast<float>(at(*a_.initial_states, s_.state, head_, p, n));
        }
      }
    }
    const std::vector<int> document = documents(a_, s_);
    for (std::int64_t begin = 0, end = 0; begin < s_.length; begin = end) {
      if (begin > 0 && document[begin] != document[begin - 1]) std::fill(state_.begin(), state_.end(), 0.0f);
      const std::int64_t limit = std::min(begin + chunk_, s_.length);
      for (end = begin + 1; end < limit && document[end] == document[begin];) ++end;
      step(begin, end - begin);
    }
    write(answer_.final_states, s_.state, state_, type_of(a_.final_states));
  }

 private:
  void step(std::int64_t begin, std::int64_t rows) {
    read(begin, rows);
    std::vector<float> state_operand(state_);
    for (float& entry : state_operand) entry = rounded(narrow_, entry);

    std::vector<float> y(P_);
    for (std::int64_t i = 0; i < rows; ++i) {
      // 2^cum_i S_in C_i
      std::fill(y.begin(), y.end(), 0.0f);
      for (std::int64_t n = 0; n < N_; ++n) {
        for (std::int64_t p = 0; p < P_; ++p) y[p] += c_[i * N_ + n] * state_operand[n * P_ + p];
      }
      const float decay = std::exp2(cum_[i]);
      for (float& entry : y) entry *= decay;
      // sum_(j<=i) (C_i.B_j) 2^(cum_i - cum_j) delta_j x_j
      for (std::int64_t j = 0; j <= i; ++j) {
        float score = 0.0f;
        for (std::int64_t n = 0; n < N_; ++n) score += c_[i * N_ + n] * b_[j * N_ + n];
        score = rounded(narrow_, score * std::exp2(cum_[i] - cum_[j]) * delta_[j]);
        for (std::int64_t p = 0; p < P_; ++p) y[p] += score * x_[j * P_ + p];
      }
      finish(begin + i, x_.data() + i * P_, y);
    }

    const std::int64_t every = options_.chunk_states_every;
    for (std::int64_t i = 1; every != 0 && i <= rows; ++i) {
      if ((begin + i) % every != 0) continue;
      write(answer_.chunk_states, s_.first_chunk_state + (begin + i) / every - 1, advanced(i),
            type_of(a_.chunk_states));
    }
    state_ = advanced(rows);
  }

  /// Inputs, delta and the chunk's running sum of base-2 decays.
  void read(std::int64_t begin, std::int64_t rows) {
    x_.resize(rows * P_), b_.resize(rows * N_), c_.resize(rows * N_);
    delta_.resize(rows), log_decay_.resize(rows), cum_.resize(rows);
    const float A = static_cast<float>(at(a_.A, head_)) * std::numbers::log2e_v<float>;
    float cum = 0.0f;
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t t = s_.first + begin + i;
      for (std::int64_t p = 0; p < P_; ++p) x_[i * P_ + p] = static_cast<float>(at(a_.x, s_.row, t, head_, p));
      for (std::int64_t n = 0; n < N_; ++n) {
        b_[i * N_ + n] = static_cast<float>(at(a_.B, s_.row, t, group_, n));
        c_[i * N_ + n] = static_cast<float>(at(a_.C, s_.row, t, group_, n));
      }
      auto delta = static_cast<float>(at(a_.dt, s_.row, t, head_));
      if (a_.dt_bias) delta += static_cast<float>(at(*a_.dt_bias, head_));
      if (options_.dt_softplus && delta <= 20.0f) delta = std::log1p(std::exp(delta));
      delta_[i] = std::clamp(delta, options_.dt_min, options_.dt_max);
      log_decay_[i] = delta_[i] * A;
      cum_[i] = cum += log_decay_[i];
    }
  }

  /// Skip, gate, rounding to y's type.
  void finish(std::int64_t token, const float* x, const std::vector<float>& y) {
    const std::int64_t t = s_.first + token;
    double* const out = answer_.y.data() + ((s_.row * T_ + t) * H_ + head_) * P_;
    for (std::int64_t p = 0; p < P_; ++p) {
      float value = y[p] + static_cast<float>(skip_of(a_, head_, p)) * x[p];
      if (a_.z) {
        const auto z = static_cast<float>(at(*a_.z, s_.row, t, head_, p));
        value *= z / (1.0f + std::exp(-z));
      }
      out[p] = rounded(a_.y.rank == 0 ? narrow_ : a_.y.dtype, value);
    }
  }

  /// The state after `rows` tokens of the chunk: 2^cum S_in + sum_j (2^(decays after j) delta_j x_j) B_j^T.
  [[nodiscard]] std::vector<float> advanced(std::int64_t rows) const {
    std::vector<float> next(state_);
    const float decay = std::exp2(cum_[rows - 1]);
    for (float& entry : next) entry *= decay;
    // The decay after j is a suffix sum, not a difference of two entries of cum: those are large and nearly equal if
    // decay is strong.
    std::vector<float> weight(rows);
    float after = 0.0f;
    for (std::int64_t j = rows - 1; j >= 0; --j) {
      weight[j] = std::exp2(after) * delta_[j];
      after += log_decay_[j];
    }
    std::vector<float> weighted(P_);
    for (std::int64_t j = 0; j < rows; ++j) {
      for (std::int64_t p = 0; p < P_; ++p) weighted[p] = rounded(narrow_, x_[j * P_ + p] * weight[j]);
      for (std::int64_t n = 0; n < N_; ++n) {
        for (std::int64_t p = 0; p < P_; ++p) next[n * P_ + p] += weighted[p] * b_[j * N_ + n];
      }
    }
    return next;
  }

  /// A state's type, float where the caller passed no such tensor.
  static DType type_of(const std::optional<MutableTensor>& states) {
    return states && states->rank != 0 ? states->dtype : DType::f32;
  }

  void write(std::vector<double>& to, std::int64_t index, const std::vector<float>& state, DType dtype) const {
    double* const out = to.data() + (index * H_ + head_) * P_ * N_;
    for (std::int64_t p = 0; p < P_; ++p) {
      for (std::int64_t n = 0; n < N_; ++n) out[p * N_ + n] = rounded(dtype, state[n * P_ + p]);
    }
  }

  const Arguments& a_;
  const Options& options_;
  const Sequence& s_;
  const std::int64_t head_, group_, T_, H_, P_, N_, chunk_;
  Answer& answer_;
  const DType narrow_;
  std::vector<float> state_;  // [n][p], as in the recurrence
  std::vector<float> x_, b_, c_, delta_, log_decay_, cum_;
};

}  // namespace

double load(DType dtype, const void* data, std::int64_t index) {
  const auto* const bytes = static_cast<const std::byte*>(data) + index * static_cast<std::int64_t>(size_of(dtype));
  std::uint32_t word = 0;
  std::uint16_t half = 0;
  switch (dtype) {
    case DType::f32:
      std::memcpy(&word, bytes, sizeof word);
      return std::bit_cast<float>(word);
    case DType::i32:
      std::memcpy(&word, bytes, sizeof word);
      return std::bit_cast<std::int32_t>(word);
    case DType::f16:
      std::memcpy(&half, bytes, sizeof half);
      return from_f16(half);
    case DType::bf16:
      std::memcpy(&half, bytes, sizeof half);
      return from_bf16(half);
  }
  throw std::logic_error("reference: no such dtype");
}

void store(DType dtype, void* data, std::int64_t index, double value) {
  auto* const bytes = static_cast<std::byte*>(data) + index * static_cast<std::int64_t>(size_of(dtype));
  if (dtype == DType::f32) {
    const auto narrow = static_cast<float>(value);
    std::memcpy(bytes, &narrow, sizeof narrow);
  } else if (dtype == DType::i32) {
    const auto whole = static_cast<std::int32_t>(value);
    std::memcpy(bytes, &whole, sizeof whole);
  } else {
    const std::uint16_t half =
        dtype == DType::f16 ? to_f16(static_cast<float>(value)) : to_bf16(static_cast<float>(value));
    std::memcpy(bytes, &half, sizeof half);
  }
}

float rounded(DType dtype, float value) {
  switch (dtype) {
    case DType::f16:
      return from_f16(to_f16(value));
    case DType::bf16:
      return from_bf16(to_bf16(value));
    default:
      return value;
  }
}

std::vector<double> values(const Tensor& tensor) {
  std::int64_t count = 1;
  for (int d = 0; d < tensor.rank; ++d) count *= tensor.shape[d];
  std::vector<double> all(static_cast<std::size_t>(count));
  for (std::int64_t k = 0; k < count; ++k) {
    std::int64_t rest = k, offset = 0;
    for (int d = tensor.rank - 1; d >= 0; --d) {
      offset += rest % tensor.shape[d] * tensor.strides[d];
      rest /= tensor.shape[d];
    }
    all[k] = load(tensor.dtype, tensor.data, offset);
  }
  return all;
}

void parallel_for(std::int64_t count, const std::function<void(std::int64_t)>& body) {
  const std::int64_t threads = std::min<std::int64_t>(count, std::max(1u, std::thread::hardware_concurrency()));
  std::atomic<std::int64_t> next = 0;
  const auto work = [&] {
    for (std::int64_t i = next++; i < count; i = next++) body(i);
  };
  std::vector<std::jthread> others;
  for (std::int64_t i = 1; i < threads; ++i) others.emplace_back(work);
  work();
}

Answer recurrence(const Arguments& arguments, const Options& options) {
  const std::vector<Sequence> all = sequences(arguments, options);
  Answer answer = sized(arguments, options, all);
  const std::int64_t heads = arguments.x.shape[2];
  parallel_for(static_cast<std::int64_t>(all.size()) * heads,
               [&](std::int64_t k) { recur(arguments, options, all[k / heads], k % heads, answer); });
  return answer;
}

Answer chunked(const Arguments& arguments, const Options& options, std::int64_t chunk) {
  const std::vector<Sequence> all = sequences(arguments, options);
  Answer answer = sized(arguments, options, all);
  const std::int64_t heads = arguments.x.shape[2];
  parallel_for(static_cast<std::int64_t>(all.size()) * heads,
               [&](std::int64_t k) { ChunkWalk(arguments, options, all[k / heads], k % heads, chunk, answer).walk(); });
  return answer;
}

}  // namespace tilemamba::reference
