// SPDX-License-Identifier: Apache-2.0
// The search behind `tune`: which candidates are right, and which of them is the fastest.
#include "core/tune.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "core/drawing.hpp"
#include "core/mirror.hpp"
#include "core/parallel.hpp"
#include "core/registry.hpp"
#include "core/sample.hpp"
#include "core/tile/scalar.hpp"
#include "core/tile/view.hpp"
#include "core/tuning.hpp"

namespace tilemamba {
namespace tuning {

double median(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::infinity();
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::size_t winner(std::vector<std::vector<double>> seconds) {
  constexpr std::size_t fewest = 3;
  constexpr double least_gain = 0.02;
  for (std::vector<double>& times : seconds) std::sort(times.begin(), times.end());
  const std::vector<double>& of_default = seconds.front();
  if (of_default.size() < fewest) return 0;
  std::size_t best = 0;
  double least = (1 - least_gain) * median(of_default);
  for (std::size_t i = 1; i < seconds.size(); ++i) {
    const std::vector<double>& times = seconds[i];
    if (times.size() < fewest || times.front() >= (1 - least_gain) * of_default.front()) continue;
    // The third quartile below the default's first.
    if (times[times.size() - 1 - (times.size() - 1) / 4] >= of_default[(of_default.size() - 1) / 4]) continue;
    if (const double time = median(times); time < least) {
      least = time;
      best = i;
    }
  }
  return best;
}

namespace {

using Clock = std::chrono::steady_clock;

// -------------------------------------------------------------------------------------------------------- a call's
// tensors

double value_at(const Tensor& tensor, std::int64_t i) { return tile::load(tensor.data, tensor.dtype, i); }

/// Tensors for a problem, dense and in host memory, with the published distribution of values and the same bytes every
/// time. Documents and packed sequences are of equal length: a packed problem is one that `posed` gives.
class Tensors {
 public:
  explicit Tensors(const Problem& problem) {
    const std::int64_t batch = problem.batch, tokens = problem.tokens, heads = problem.heads;
    const std::int64_t head_dim = problem.head_dim, groups = problem.groups, state = problem.state;
    const std::int64_t sequences = problem.sequences();
    const auto silu = [](double normal) { return tile::silu(static_cast<float>(normal)); };
    const auto softplus = [](double normal) { return tile::softplus(static_cast<float>(normal)); };
    const auto as_is = [](double normal) { return static_cast<float>(normal); };
    arguments_.x = drawn(problem.x, {batch, tokens, heads, head_dim}, silu);
    arguments_.dt = problem.options.dt_softplus ? drawn(problem.dt, {batch, tokens, heads}, as_is)
                                                : drawn(problem.dt, {batch, tokens, heads}, softplus);
    arguments_.A = drawn(DType::f32, {heads}, [](double normal) {  // -U(1, 16)
      return static_cast<float>(-1 - 15 * 0.5 * std::erfc(normal * std::sqrt(0.5)));
    });
    arguments_.B = drawn(problem.x, {batch, tokens, groups, state}, silu);
    arguments_.C = drawn(problem.x, {batch, tokens, groups, state}, silu);
    if (problem.D) {
      arguments_.D = problem.skip == SkipForm::per_head ? drawn(*problem.D, {heads}, as_is)
                                                        : drawn(*problem.D, {heads, head_dim}, as_is);
    }
    if (problem.z) arguments_.z = drawn(problem.x, {batch, tokens, heads, head_dim}, as_is);
    if (problem.dt_bias) arguments_.dt_bias = drawn(*problem.dt_bias, {heads}, as_is);
    if (problem.initial_states) {
      arguments_.initial_states = drawn(*problem.initial_states, {sequences, heads, head_dim, state}, as_is);
    }
    if (problem.seq_idx) {
      constexpr std::int64_t documents = 4;
      arguments_.seq_idx =
          counted({batch, tokens}, [&](std::int64_t i) { return i % tokens / (tokens / documents + 1); });
    }
    if (problem.packed_sequences) {
      arguments_.cu_seqlens =
          counted({sequences + 1}, [&](std::int64_t s) { return sequences == 0 ? 0 : tokens * s / sequences; });
    }
    arguments_.y = output(problem.y, {batch, tokens, heads, head_dim});
    if (problem.final_states) {
      arguments_.final_states = output(*problem.final_states, {sequences, heads, head_dim, state});
    }
    if (problem.chunk_states) {
      arguments_.chunk_states =
          problem.packed_chunk_states
              ? output(*problem.chunk_states, {*problem.packed_chunk_states, heads, head_dim, state})
              : output(*problem.chunk_states,
                       {batch, tokens / problem.options.chunk_states_every, heads, head_dim, state});
    }
  }

  [[nodiscard]] const Arguments& arguments() const { return arguments_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] std::vector<Tensor> outputs() const {
    std::vector<Tensor> all = {arguments_.y};
    if (arguments_.final_states) all.push_back(*arguments_.final_states);
    if (arguments_.chunk_states) all.push_back(*arguments_.chunk_states);
    return all;
  }
  /// Fills the outputs with NaN.
  void poison() {
    for (const MutableTensor& tensor : outputs_) {
      std::memset(tensor.data, 0xff, static_cast<std::size_t>(elements(tensor)) * size_of(tensor.dtype));
    }
  }

 private:
  struct Deleter {
    void operator()(std::byte* memory) const { ::operator delete(memory, alignment); }
  };
  static constexpr std::align_val_t alignment{256};

  MutableTensor uninitialised(DType dtype, std::initializer_list<std::int64_t> shape) {
    const Layout layout = dense(dtype, shape);
    const std::size_t bytes = static_cast<std::size_t>(elements(layout)) * size_of(dtype);
    bytes_ += bytes;
    memory_.emplace_back(static_cast<std::byte*>(::operator new(bytes, alignment)));
    return {layout, memory_.back().get()};
  }
  /// `of` values from a normal distribution.
  template <class F>
  Tensor drawn(DType dtype, std::initializer_list<std::int64_t> shape, const F& of) {
    const MutableTensor tensor = uninitialised(dtype, shape);
    fill_drawn(tensor, [&] { return of(normal_(random_)); });
    return tensor;
  }
  template <class F>
  Tensor counted(std::initializer_list<std::int64_t> shape, const F& of) {
    const MutableTensor tensor = uninitialised(DType::i32, shape);
    for (std::int64_t i = 0; i < elements(tensor); ++i) {
      static_cast<std::int32_t*>(tensor.data)[i] = static_cast<std::int32_t>(of(i));
    }
    return tensor;
  }
  MutableTensor output(DType dtype, std::initializer_list<std::int64_t> shape) {
    return outputs_.emplace_back(uninitialised(dtype, shape));
  }

  std::mt19937_64 random_{20240531};
  std::normal_distribution<double> normal_;
  std::deque<std::unique_ptr<std::byte, Deleter>> memory_;
  std::size_t bytes_ = 0;
  std::vector<MutableTensor> outputs_;
  Arguments arguments_;
};

// ---------------------------------------------------------------------------------------------------- is it right?

/// What may separate an answer from the right one, relative to its norm. Wide: the bars of the tests are for how well a
/// kernel rounds, these are for one that is broken on this machine.
double bar_of(const Problem& problem) {
  double bar = problem.options.allow_tf32 ? 5e-3 : 1e-4;
  for (const DType dtype : {problem.x, problem.dt, problem.y, problem.final_states.value_or(problem.x),
                            problem.chunk_states.value_or(problem.x)}) {
    bar = std::max(bar, dtype == DType::bf16 ? 2e-2 : dtype == DType::f16 ? 4e-3 : 0.0);
  }
  return bar;
}

/// Whether all outputs of two calls agree, piece by piece.
bool agree(const Problem& problem, const std::vector<Tensor>& outputs, const std::vector<Tensor>& right) {
  std::atomic<bool> same = true;
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    in_parallel(elements(outputs[k]), 4096, [&](std::int64_t begin, std::int64_t end) {
      Distance distance;
      for (std::int64_t i = begin; i < end; ++i) distance.add(value_at(outputs[k], i), value_at(right[k], i));
      if (!distance.within(2 * bar_of(problem))) same = false;
    });
  }
  return same;
}

// --------------------------------------------------------------------------------------------------------- the search

struct Candidate {
  Offer offer;
  std::string label;         ///< "fused q64"
  std::optional<Plan> plan;  ///< nothing: it cannot win
  std::string why_not;
  std::optional<Timing> timing;
  std::vector<double> seconds;
};

/// The search for one class of problems on one backend.
class Race {
 public:
  Race(const Problem& problem, const Backend& backend) : problem_(problem), backend_(backend) {
    std::vector<Offer> offers = backend.offers(problem);
    std::erase_if(offers, [](const Offer& offer) { return !offer.refusal.empty(); });
    double least = std::numeric_limits<double>::infinity();
    for (const Offer& offer : offers) least = std::min(least, offer.cost);
    for (Offer& offer : offers) {
      Candidate& candidate = candidates_.emplace_back();
      candidate.label = std::string(name(offer.schedule)) + " " + std::string(offer.policy);
      // The default is always in.
      if (&offer != offers.data() && offer.cost > hopeless * least) candidate.why_not = "left out as much slower";
      candidate.offer = std::move(offer);
    }
  }

  Tuned run(Clock::time_point until, const std::function<void(const std::string&)>& progress) {
    check(progress);
    progress("timing");
    prepare_copies();
    rounds(fewest_rounds, Clock::time_point::max());
    double least = std::numeric_limits<double>::infinity();
    for (const Candidate& candidate : candidates_) least = std::min(least, median(candidate.seconds));
    for (std::size_t i = 1; i < candidates_.size(); ++i) {
      if (median(candidates_[i].seconds) > finalist * least) candidates_[i].plan.reset();
    }
    rounds(most_rounds - fewest_rounds, until);
    return result();
  }

 private:
  static constexpr double hopeless = 2;  ///< times the least cost that any backend's model expects
  static constexpr double finalist = 1.1;
  static constexpr int fewest_rounds = 3, most_rounds = 15;

  /// Runs each candidate once and looks at what it gave.
  /// @throws Error if the default fails or is wrong: that is nothing that tuning could mend.
  void check(const std::function<void(const std::string&)>& progress) {
    Tensors tensors(problem_), of_default(problem_);
    progress("computing what is right");
    const Sample sample(problem_, of_default.arguments());
    for (Candidate& candidate : candidates_) {
      if (!candidate.why_not.empty()) continue;
      const bool is_default = &candidate == candidates_.data();
      progress("checking " + candidate.label);
      Tensors& host = is_default ? of_default : tensors;
      try {
        candidate.plan.emplace(problem_, Choice{std::string(backend_.name()), candidate.offer.schedule,
                                                std::string(candidate.offer.policy)});
        host.poison();
        Mirror mirror(*candidate.plan, host.arguments());
        execute(*candidate.plan, mirror);
        mirror.fetch();
        if (!mirror.intact()) throw Error(ErrorCode::backend_failure, "wrote beside its memory");
        if (!sample.within(bar_of(problem_), host.arguments()) ||
            (!is_default && !agree(problem_, host.outputs(), of_default.outputs()))) {
          throw Error(ErrorCode::backend_failure, "gave a wrong answer");
        }
      } catch (const Error& error) {
        if (is_default)
          throw Error(error.code(), std::string(backend_.name()) + " " + candidate.label + ": " + error.what());
        candidate.plan.reset();
        candidate.why_not = error.what();
      }
    }
  }

  void execute(const Plan& plan, const Mirror& mirror) const {
    plan.execute(mirror.arguments(), mirror.workspace(), plan.workspace_bytes());
    mirror.wait();
  }

  /// As many copies of the call, with workspaces for any candidate, as are more than caches hold: calls take turns with
  /// them.
  void prepare_copies() {
    constexpr std::size_t more_than_caches = std::size_t{256} << 20;
    constexpr std::size_t most_copies = 8;
    const Plan* largest = &*candidates_.front().plan;
    for (const Candidate& candidate : candidates_) {
      if (candidate.plan && candidate.plan->workspace_bytes() > largest->workspace_bytes()) largest = &*candidate.plan;
    }
    std::size_t bytes = 0;
    while (mirrors_.empty() || (mirrors_.size() < most_copies && bytes < more_than_caches)) {
      const Tensors& copy = tensors_.emplace_back(problem_);
      mirrors_.emplace_back(*largest, copy.arguments());
      bytes += copy.bytes() + largest->workspace_bytes();
    }
    std::vector<const Mirror*> copies;
    for (const Mirror& mirror : mirrors_) copies.push_back(&mirror);
    for (Candidate& candidate : candidates_) {
      if (candidate.plan) candidate.timing.emplace(*candidate.plan, copies);
    }
  }

  /// The candidates that are left, one after the other, so that a noisy minute strikes all of them.
  void rounds(int count, Clock::time_point until) {
    for (int round = 0; round < count && Clock::now() < until; ++round) {
      for (Candidate& candidate : candidates_) {
        if (candidate.plan) candidate.seconds.push_back(candidate.timing->take().seconds);
      }
    }
  }

  [[nodiscard]] Tuned result() const {
    std::vector<std::vector<double>> seconds;
    for (const Candidate& candidate : candidates_) seconds.push_back(candidate.seconds);
    const std::size_t best = winner(seconds);
    Tuned tuned;
    tuned.record = *place_of(backend_, problem_);
    tuned.record.schedule = name(candidates_[best].offer.schedule);
    tuned.record.policy = candidates_[best].offer.policy;
    tuned.record.milliseconds = 1e3 * median(seconds[best]);
    tuned.record.default_milliseconds = 1e3 * median(seconds.front());
    tuned.is_default = best == 0;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      if (i == best) continue;
      const Candidate& candidate = candidates_[i];
      char time[64];
      std::snprintf(time, sizeof time, "%.4g ms", 1e3 * median(candidate.seconds));
      tuned.lost.push_back(candidate.label + ": " + (candidate.why_not.empty() ? time : candidate.why_not));
    }
    return tuned;
  }

  const Problem& problem_;
  const Backend& backend_;
  std::deque<Tensors> tensors_;
  std::deque<Mirror> mirrors_;
  std::vector<Candidate> candidates_;
};

/// The problem that its tensors pose: of equal packed sequences, there may be another number of chunk states.
Problem posed(Problem problem) {
  if (!problem.packed_chunk_states) return problem;
  const std::int64_t sequences = problem.sequences(), every = problem.options.chunk_states_every;
  problem.packed_chunk_states = 0;
  for (std::int64_t s = 0; s < sequences; ++s) {
    const std::int64_t length = problem.tokens * (s + 1) / sequences - problem.tokens * s / sequences;
    *problem.packed_chunk_states += length / every;
  }
  return problem;
}

const Backend& backend_of(const Plan& plan) {
  for (const Entry* entry : registry().named(plan.backend())) {
    if (entry->backend != nullptr) return *entry->backend;
  }
  throw Error(ErrorCode::no_backend, "backend '" + std::string(plan.backend()) + "' is not loaded");
}

}  // namespace
}  // namespace tuning

std::vector<Tuned> tune(const std::vector<Problem>& problems, const TuneOptions& options) try {
  const std::string cache = options.cache.empty() ? tuning_cache() : options.cache;
  if (cache.empty()) {
    throw Error(ErrorCode::io,
                "there is no place for the tuning cache: neither HOME nor XDG_CACHE_HOME is set; "
                "TILEMAMBA_TUNING_CACHE names a file");
  }
  std::vector<Problem> of_classes;
  std::set<std::string> classes;
  for (const Problem& problem : problems) {
    problem.check();
    if (problem.options.batch_invariant) {
      throw Error(ErrorCode::invalid_argument,
                  "batch_invariant problems are not tuned: they take the default, so that a sequence's class, which "
                  "changes with what it is packed with, decides no bit");
    }
    if (classes.insert(problem_class(problem)).second) of_classes.push_back(tuning::posed(problem));
  }
  tuning::require_usable(cache);

  const auto end = tuning::Clock::now() + std::chrono::duration<double>(options.budget);
  std::vector<Tuned> found;
  for (std::size_t i = 0; i < of_classes.size(); ++i) {
    const auto now = tuning::Clock::now();
    if (now >= end) break;
    const Problem& problem = of_classes[i];
    const Backend& backend = tuning::backend_of(Plan(problem, {options.backend, Schedule::automatic, {}}));
    if (!tuning::place_of(backend, problem)) {
      throw Error(ErrorCode::unsupported, std::string(backend.name()) +
                                              " does not say what its device is, so no times "
                                              "can be kept for it");
    }
    const std::string head = std::to_string(i + 1) + "/" + std::to_string(of_classes.size()) + " " +
                             problem_class(problem) + " on " + std::string(backend.name()) + ": ";
    const auto share = std::chrono::duration_cast<tuning::Clock::duration>((end - now) / (of_classes.size() - i));
    Tuned tuned = tuning::Race(problem, backend).run(now + share, [&](const std::string& what) {
      if (options.progress) options.progress(head + what);
    });
    TuningRecord record = tuned.record;
    if (tuned.is_default) record.policy.clear();
    tuning::store(cache, record);
    found.push_back(std::move(tuned));
  }
  tuning::forget(cache);
  return found;
} catch (const std::bad_alloc&) {
  throw Error(ErrorCode::out_of_memory, "there is not enough memory for the tensors of these problems");
}

}  // namespace tilemamba
