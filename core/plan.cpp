// SPDX-License-Identifier: Apache-2.0
// Which backend runs a problem, and how; plans, and the one-call form above them.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/environment.hpp"
#include "core/problem.hpp"
#include "core/proof.hpp"
#include "core/registry.hpp"
#include "core/tuning.hpp"

namespace tilemamba {

std::string_view version() noexcept { return TILEMAMBA_VERSION; }

std::string_view name(Schedule schedule) noexcept {
  switch (schedule) {
    case Schedule::automatic:
      return "automatic";
    case Schedule::staged:
      return "staged";
    case Schedule::fused:
      return "fused";
    case Schedule::recurrent:
      return "recurrent";
  }
  return "unknown";
}

Schedule schedule_named(std::string_view text) {
  for (Schedule schedule : {Schedule::automatic, Schedule::staged, Schedule::fused, Schedule::recurrent}) {
    if (text == name(schedule)) return schedule;
  }
  throw Error(ErrorCode::invalid_argument,
              "unknown schedule '" + std::string(text) + "'; valid: automatic staged fused recurrent");
}

std::vector<BackendInfo> backends() {
  const Environment env = environment();
  std::vector<BackendInfo> result;
  for (const Entry* entry : registry().named("")) {
    Probe found = probe(*entry);
    const bool proven = entry->backend == nullptr || entry->backend->proven();
    if (found.can_run && !proven) found.reason += "; " + proof::known_of(*entry, env);
    result.push_back({entry->row.member, entry->row.family, found.can_run, std::move(found.reason),
                      std::move(found.devices), proven});
  }
  return result;
}

namespace {

/// Why a backend cannot take tensors of this device; empty: it can.
std::string refusal(const Entry& entry, const Device& device) {
  Probe found = probe(entry);
  if (!found.can_run) return std::move(found.reason);
  const std::string why = entry.backend->cannot_address(device);
  return why.empty() ? why : "the tensors are on " + to_string(device) + ": " + why;
}

/// The entries that a name stands for, the caller's or else the environment's.
std::vector<const Entry*> entries_named(const std::string& chosen, const std::string& from_environment) {
  if (!chosen.empty()) return registry().named(chosen);
  try {
    return registry().named(from_environment);
  } catch (const Error& error) {
    throw Error(error.code(), std::string("TILEMAMBA_BACKEND: ") + error.what());
  }
}

std::string label(const Entry& entry, const Offer& offer) {
  return entry.row.member + " " + std::string(name(offer.schedule)) + " " + std::string(offer.policy);
}

bool wanted(const Choice& choice, const Offer& offer) {
  return (choice.schedule == Schedule::automatic || choice.schedule == offer.schedule) &&
         (choice.policy.empty() || choice.policy == offer.policy);
}

/// A backend's offers, what the planner would take first: the tuning cache's answer, else the backend's default.
struct Offers {
  std::vector<Offer> list;
  bool tuned = false;  ///< the first is the cache's

  Offers(const Backend& backend, const Problem& problem, const std::string& cache) : list(backend.offers(problem)) {
    const std::optional<TuningRecord> answer = tuning::lookup(cache, backend, problem);
    if (!answer) return;
    const auto found = std::find_if(list.begin(), list.end(), [&](const Offer& offer) {
      return offer.refusal.empty() && name(offer.schedule) == answer->schedule && offer.policy == answer->policy;
    });
    if (found == list.end()) return;
    std::rotate(list.begin(), found, found + 1);
    tuned = true;
  }
};

/// A word to people whose GPU does nothing; once, and only where nobody chose.
void mention_idle_gpu(std::string_view chosen) {
  static std::once_flag once;
  std::call_once(once, [&] {
    for (const char* file : {"/dev/nvidiactl", "/dev/kfd"}) {
      if (access(file, F_OK) != 0) continue;
      std::fprintf(stderr,
                   "tilemamba: this machine has a GPU (%s), but the tensors are in CPU memory and %.*s runs the call; "
                   "TILEMAMBA_VERBOSE=dispatch shows why, TILEMAMBA_BACKEND=%.*s silences this\n",
                   file, static_cast<int>(chosen.size()), chosen.data(), static_cast<int>(chosen.size()),
                   chosen.data());
      return;
    }
  });
}

}  // namespace

std::vector<Candidate> candidates(const Problem& problem) {
  problem.check();
  const std::string cache = tuning_cache();
  std::vector<Candidate> result;
  for (const Entry* entry : registry().named("")) {
    const std::string why = refusal(*entry, problem.device);
    if (!why.empty()) {
      result.push_back({entry->row.member, Schedule::automatic, {}, false, why, 0});
      continue;
    }
    Offers offers(*entry->backend, problem, cache);
    bool have_default = false;
    for (Offer& offer : offers.list) {
      const bool is_default = offer.refusal.empty() && !have_default;
      have_default = have_default || is_default;
      result.push_back({entry->row.member, offer.schedule, std::string(offer.policy), is_default,
                        std::move(offer.refusal), offer.workspace_bytes});
    }
  }
  return result;
}

struct Plan::Impl {
  Problem problem;
  Offer offer;
  const Backend* backend = nullptr;
  std::unique_ptr<Executable> executable;
};

namespace {

/// The first offer, in the registry's order and each backend's own, that is as `choice` wants it and does not refuse.
std::shared_ptr<const Plan::Impl> make_plan(const Problem& problem, const Choice& choice) {
  problem.check();
  const Environment env = environment();
  const std::string& forced = choice.backend.empty() ? env.backend : choice.backend;
  std::string reasons;
  ErrorCode code = ErrorCode::no_backend;
  const auto refuse = [&](const std::string& who, const std::string& why) {
    if (env.verbose_dispatch) std::fprintf(stderr, "tilemamba: dispatch: %s: no: %s\n", who.c_str(), why.c_str());
    reasons += "\n  " + who + ": " + why;
  };
  for (const Entry* entry : entries_named(choice.backend, env.backend)) {
    if (const std::string why = refusal(*entry, problem.device); !why.empty()) {
      refuse(entry->row.member, why);
      continue;
    }
    Offers offers(*entry->backend, problem, env.tuning_cache);
    for (Offer& offer : offers.list) {
      if (!wanted(choice, offer)) continue;
      if (!offer.refusal.empty()) {
        refuse(label(*entry, offer), offer.refusal);
        code = ErrorCode::unsupported;
        continue;
      }
      const bool proven = entry->backend->proven();
      if (!proven && env.unproven == Unproven::on_proof) {
        if (const std::string why = proof::refusal(*entry, problem, offer, env); !why.empty()) {
          refuse(label(*entry, offer), why);
          code = ErrorCode::no_backend;
          break;  // nor is its second choice to be trusted
        }
      }
      Outcome outcome;
      std::unique_ptr<Executable> executable = entry->backend->prepare(problem, offer, outcome);
      if (executable == nullptr) {
        refuse(label(*entry, offer), outcome.message);
        code = outcome.code;
        continue;
      }
      if (env.verbose_dispatch) {
        const bool by_cache = offers.tuned && &offer == offers.list.data();
        const char* const word = proven                               ? ""
                                 : env.unproven == Unproven::on_proof ? ", never run by us, but it proved itself here"
                                                                      : ", never run by us, and trusted";
        std::fprintf(stderr, "tilemamba: dispatch: %s: taken%s%s%s\n", label(*entry, offer).c_str(),
                     by_cache ? ", by the tuning cache " : "", by_cache ? env.tuning_cache.c_str() : "", word);
      }
      if (forced.empty() && problem.device.kind == DeviceKind::cpu) mention_idle_gpu(entry->row.member);
      return std::make_shared<const Plan::Impl>(
          Plan::Impl{problem, std::move(offer), entry->backend, std::move(executable)});
    }
    if (!choice.policy.empty() || choice.schedule != Schedule::automatic) {
      std::string valid;
      for (const Offer& offer : offers.list)
        valid += " " + std::string(name(offer.schedule)) + "/" + std::string(offer.policy);
      refuse(entry->row.member, "schedules and policies that it has:" + valid);
    }
  }
  std::string what =
      forced.empty() ? "no backend can run this problem" : "backend '" + forced + "' cannot run this problem";
  if (choice.backend.empty() && !env.backend.empty()) what += " (forced by TILEMAMBA_BACKEND)";
  if (choice.schedule != Schedule::automatic) what += " with schedule " + std::string(name(choice.schedule));
  if (!choice.policy.empty()) what += " with policy '" + choice.policy + "'";
  throw Error(code, what + ":" + reasons);
}

void check_values(const Problem& problem, const Arguments& arguments) {
  if (arguments.cu_seqlens && problem.device.kind == DeviceKind::cpu) {
    check_cu_seqlens(problem, static_cast<const std::int32_t*>(arguments.cu_seqlens->data));
  }
}

void run(const Plan::Impl& plan, const Arguments& arguments, void* workspace, void* stream) {
  const Outcome outcome = plan.executable->run(arguments, workspace, stream);
  if (!outcome.message.empty()) throw Error(outcome.code, std::string(plan.backend->name()) + ": " + outcome.message);
}

}  // namespace

Plan::Plan(const Problem& problem, const Choice& choice) : impl_(make_plan(problem, choice)) {}

const Problem& Plan::problem() const noexcept { return impl_->problem; }
std::string_view Plan::backend() const noexcept { return impl_->backend->name(); }
Schedule Plan::schedule() const noexcept { return impl_->offer.schedule; }
std::string_view Plan::policy() const noexcept { return impl_->offer.policy; }
std::size_t Plan::workspace_bytes() const noexcept { return impl_->offer.workspace_bytes; }

void Plan::execute(const Arguments& arguments, void* workspace, std::size_t workspace_bytes, void* stream) const {
  const Problem given = Problem::of(arguments, impl_->problem.options);
  if (given != impl_->problem) throw Error(ErrorCode::invalid_argument, difference(impl_->problem, given));
  const std::size_t needed = impl_->offer.workspace_bytes;
  if (workspace_bytes < needed) {
    throw Error(ErrorCode::out_of_memory, "the workspace has " + std::to_string(workspace_bytes) +
                                              " bytes; this plan needs " + std::to_string(needed));
  }
  if (needed > 0 && workspace == nullptr)
    throw Error(ErrorCode::invalid_argument,
                "the workspace is a null pointer; this plan needs " + std::to_string(needed) + " bytes");
  if (needed > 0 && reinterpret_cast<std::uintptr_t>(workspace) % 256 != 0) {
    throw Error(ErrorCode::invalid_argument, "the workspace is not aligned to 256 bytes");
  }
  check_values(given, arguments);
  run(*impl_, arguments, workspace, stream);
}

namespace {

/// @throws Error if there is no backend that can read that device's memory.
void read_back(const Tensor& tensor, void* to, std::size_t bytes) {
  for (const Entry* entry : registry().named("")) {
    if (!refusal(*entry, tensor.device).empty()) continue;
    const Outcome outcome = entry->backend->download(tensor.device, to, tensor.data, bytes);
    if (!outcome.message.empty()) throw Error(outcome.code, entry->row.member + ": " + outcome.message);
    return;
  }
  throw Error(ErrorCode::unsupported,
              "cu_seqlens is on " + to_string(tensor.device) + ", and this build has no backend that can read it back");
}

}  // namespace

void validate(const Arguments& arguments, const Options& options) {
  const Problem problem = Problem::of(arguments, options);
  if (arguments.cu_seqlens && problem.device.kind != DeviceKind::cpu) {
    std::vector<std::int32_t> entries(static_cast<std::size_t>(*problem.packed_sequences + 1));
    read_back(*arguments.cu_seqlens, entries.data(), entries.size() * sizeof(std::int32_t));
    check_cu_seqlens(problem, entries.data());
  }
  check_values(problem, arguments);
}

// -------------------------------------------------------------------------------------------------------- the one-call
// form

namespace {

struct Key {
  Problem problem;
  Choice choice;
  std::string environment;  ///< what a plan depends on: TILEMAMBA_BACKEND, the tuning cache, TILEMAMBA_UNPROVEN
  friend bool operator==(const Key&, const Key&) = default;
};

struct KeyHash {
  std::size_t operator()(const Key& key) const noexcept {
    const Problem& p = key.problem;
    std::size_t hash = std::hash<std::string>{}(key.choice.backend);
    for (std::int64_t value :
         {p.batch, p.tokens, p.heads, p.head_dim, p.groups, p.state, p.sequences(), static_cast<std::int64_t>(p.x)}) {
      hash = hash * 1000003 ^ std::hash<std::int64_t>{}(value);
    }
    return hash;
  }
};

/// Plans made so far. Plans are cheap to keep; should someone pose thousands of different problems, it starts anew.
class PlanCache {
 public:
  std::shared_ptr<const Plan::Impl> get(const Key& key) {
    {
      const std::shared_lock lock(mutex_);
      if (const auto found = plans_.find(key); found != plans_.end()) return found->second;
    }
    std::shared_ptr<const Plan::Impl> plan = make_plan(key.problem, key.choice);
    const std::unique_lock lock(mutex_);
    if (plans_.size() >= most) plans_.clear();
    return plans_.emplace(key, std::move(plan)).first->second;
  }

 private:
  static constexpr std::size_t most = 4096;
  std::shared_mutex mutex_;
  std::unordered_map<Key, std::shared_ptr<const Plan::Impl>, KeyHash> plans_;
};

std::shared_ptr<const Plan::Impl> cached_plan(const Problem& problem, const Choice& choice) {
  static PlanCache cache;
  const Environment env = environment();
  return cache.get(
      {problem, choice, env.backend + '\n' + env.tuning_cache + '\n' + std::to_string(static_cast<int>(env.unproven))});
}

/// Memory for one call on a stream. CPU memory that was given back is kept for the next call that it suits; a device's
/// is its backend's to keep, since the work that uses it may still be under way.
class Workspace {
 public:
  Workspace(const Backend& backend, const Device& device, std::size_t bytes, void* stream)
      : now_{&backend, device, nullptr, bytes}, stream_(stream) {
    if (bytes == 0) return;
    {
      const std::lock_guard lock(mutex());
      Block& kept = spare();
      if (kept.memory != nullptr && kept.backend == &backend && kept.device == device && kept.bytes >= bytes) {
        now_ = std::exchange(kept, {});
        return;
      }
    }
    now_.memory = backend.borrow(device, bytes, stream);
    if (now_.memory == nullptr) {
      throw Error(ErrorCode::out_of_memory,
                  "a workspace of " + std::to_string(bytes) + " bytes could not be had on " + to_string(device));
    }
  }
  ~Workspace() {
    if (now_.memory == nullptr) return;
    {
      const std::lock_guard lock(mutex());
      if (now_.device.kind == DeviceKind::cpu && now_.bytes > spare().bytes) std::swap(now_, spare());
    }
    if (now_.memory != nullptr) now_.backend->give_back(now_.device, now_.memory, stream_);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  [[nodiscard]] void* memory() const { return now_.memory; }

 private:
  struct Block {
    const Backend* backend = nullptr;
    Device device{};
    void* memory = nullptr;
    std::size_t bytes = 0;
  };
  static std::mutex& mutex() {
    static std::mutex instance;
    return instance;
  }
  static Block& spare() {
    static Block instance;
    return instance;
  }
  Block now_;
  void* stream_;
};

}  // namespace

Plan Plan::cached(const Problem& problem, const Choice& choice) { return Plan(cached_plan(problem, choice)); }

void scan(const Arguments& arguments, const Options& options, const Choice& choice, void* stream) {
  const Problem problem = Problem::of(arguments, options);
  check_values(problem, arguments);
  const auto plan = cached_plan(problem, choice);
  const Workspace workspace(*plan->backend, problem.device, plan->offer.workspace_bytes, stream);
  run(*plan, arguments, workspace.memory(), stream);
}

}  // namespace tilemamba
