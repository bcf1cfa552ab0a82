// SPDX-License-Identifier: Apache-2.0
#include "core/tuning.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <initializer_list>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "core/cache.hpp"
#include "core/environment.hpp"
#include "core/registry.hpp"

namespace tilemamba {

namespace {

/// "T17-64": the bucket that holds a value, by the largest values of the buckets.
std::string bucket(const char* name, std::int64_t value, std::initializer_list<std::int64_t> largest) {
  std::int64_t from = 0;
  for (const std::int64_t to : largest) {
    if (value <= to) return name + std::to_string(from) + "-" + std::to_string(to);
    from = to + 1;
  }
  return name + std::to_string(from) + "-";
}

}  // namespace

std::string problem_class(const Problem& problem) {
  const std::int64_t sequences = std::max<std::int64_t>(problem.sequences(), 1);
  const std::int64_t length = (problem.batch * problem.tokens + sequences - 1) / sequences;
  std::string text(name(problem.x));
  text += " P" + std::to_string(problem.head_dim) + " N" + std::to_string(problem.state);
  text += problem.groups > 1 ? " G>1" : " G1";
  text += bucket(" T", length, {16, 64, 256, 1024, 4096, 16384});
  text += bucket(" BH", sequences * problem.heads, {4, 16, 64, 256});
  if (problem.packed_sequences) text += " packed";
  if (problem.seq_idx) text += " documents";
  if (problem.chunk_states) text += " chunk_states";
  if (problem.options.allow_tf32) text += " tf32";
  return text;
}

std::string tuning_cache() { return environment().tuning_cache; }

namespace tuning {

namespace {

constexpr cache::Kind kind = {"tilemamba tuning", 1, "tuning cache", "`tilemamba tune --clear` removes it"};

bool same_place(const TuningRecord& a, const TuningRecord& b) {
  const auto place = [](const TuningRecord& r) {
    return std::tie(r.device, r.driver, r.library, r.backend, r.problem);
  };
  return place(a) == place(b);
}

const cache::Fields<TuningRecord>& fields() {
  static const cache::Fields<TuningRecord> all = {
      {{"device", &TuningRecord::device},
       {"driver", &TuningRecord::driver},
       {"library", &TuningRecord::library},
       {"backend", &TuningRecord::backend},
       {"problem", &TuningRecord::problem},
       {"schedule", &TuningRecord::schedule},
       {"policy", &TuningRecord::policy}},
      {{"milliseconds", &TuningRecord::milliseconds}, {"default_milliseconds", &TuningRecord::default_milliseconds}},
      same_place,
      [](const TuningRecord& record) { return !record.policy.empty(); }};
  return all;
}

// ----------------------------------------------------------------------------------------------- what plans look up

/// The files that this process has read.
struct Known {
  std::mutex mutex;
  std::map<std::string, std::vector<TuningRecord>> files;
};

Known& known() {
  static Known instance;
  return instance;
}

std::vector<TuningRecord> read_or_warn(const std::string& file) noexcept {
  try {
    return tuning_records(file);
  } catch (const std::exception& fault) {
    std::fprintf(stderr, "tilemamba: warning: the tuning cache is ignored: %s\n", fault.what());
    return {};
  }
}

}  // namespace

std::vector<TuningRecord> parse(std::string_view text) { return cache::parse(kind, fields(), text); }

std::string merged(const std::optional<std::string>& text, const TuningRecord& record) {
  return cache::merged(kind, fields(), text, record);
}

void require_usable(const std::string& file) {
  cache::rewrite(kind, file, [](const std::optional<std::string>& text) {
    if (text) static_cast<void>(parse(*text));
    return text;
  });
}

void store(const std::string& file, const TuningRecord& record) { cache::store(kind, fields(), file, record); }

std::optional<TuningRecord> place_of(const Backend& backend, const Problem& problem) {
  if (problem.options.batch_invariant) return std::nullopt;
  Identity identity = tilemamba::identity(backend, problem.device);
  if (identity.device.empty()) return std::nullopt;
  TuningRecord place;
  place.device = std::move(identity.device);
  place.driver = std::move(identity.driver);
  place.library = version();
  place.backend = backend.name();
  place.problem = problem_class(problem);
  return place;
}

std::optional<TuningRecord> lookup(const std::string& cache, const Backend& backend, const Problem& problem) noexcept
    try {
  if (cache.empty()) return std::nullopt;
  const std::lock_guard lock(known().mutex);
  auto found = known().files.find(cache);
  if (found == known().files.end()) found = known().files.emplace(cache, read_or_warn(cache)).first;
  if (found->second.empty()) return std::nullopt;
  const std::optional<TuningRecord> place = place_of(backend, problem);
  if (!place) return std::nullopt;
  for (const TuningRecord& record : found->second) {
    if (same_place(record, *place)) return record;
  }
  return std::nullopt;
} catch (const std::exception&) {
  return std::nullopt;  // no memory: the default will do
}

void forget(const std::string& cache) {
  const std::lock_guard lock(known().mutex);
  known().files.erase(cache);
}

}  // namespace tuning

std::vector<TuningRecord> tuning_records(const std::string& file) {
  return cache::records(tuning::kind, tuning::fields(), file);
}

bool clear_tuning(const std::string& file) {
  const bool removed = cache::remove(file);
  tuning::forget(file);
  return removed;
}

}  // namespace tilemamba
