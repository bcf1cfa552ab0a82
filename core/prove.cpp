// SPDX-License-Identifier: Apache-2.0
/// @file
/// tilemamba_prove MODULE MEMBER DEVICE SCHEDULE POLICY DTYPE
///
/// Tries a backend on small problems, each output against the recurrence in double, within the bars of every test
/// (core/calls.hpp). It is started by the library (core/proof.hpp), for a backend that nobody has run on a device: what
/// becomes of this process does not matter.
#include "core/prove.hpp"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/calls.hpp"
#include "core/mirror.hpp"
#include "core/registry.hpp"

namespace tilemamba::proof {
namespace {

using calls::Call;
using calls::Decay;
using calls::Memory;
using calls::Spec;

/// It lives no longer than who waits for it, keeps none of their files open, and leaves no core.
void be_on_our_own() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  std::vector<int> inherited;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
    const std::string text = entry.path().filename().string();
    int descriptor = 0;
    std::from_chars(text.data(), text.data() + text.size(), descriptor);
    if (descriptor > STDERR_FILENO) inherited.push_back(descriptor);
  }
  for (const int descriptor : inherited) close(descriptor);
}

struct Trial {
  const char* name;
  Spec spec;
};

/// Problems that between them have every input and output, sizes that divide nothing, and decay so slow that a state
/// lost between chunks shows, or so fast that a difference of the wrong sign overflows.
std::vector<Trial> trials(DType x, std::int64_t state) {
  Spec plain;
  plain.type(x);
  plain.batch = 2, plain.tokens = 200, plain.heads = 4, plain.groups = 2, plain.head_dim = 64, plain.state = state;
  plain.skip = SkipForm::per_head;
  Spec slow = plain;
  slow.decay = Decay::slow;

  Spec ragged = slow;
  ragged.tokens = 131, ragged.heads = 3, ragged.groups = 1, ragged.head_dim = 80, ragged.state = state - 8;
  ragged.skip = SkipForm::per_channel, ragged.z = true, ragged.dt = DType::f32, ragged.dt_bias = DType::f32;
  ragged.initial_states = DType::f32, ragged.options.dt_softplus = true, ragged.memory = Memory::one_buffer;
  Spec odd = ragged;  // which not every policy takes
  odd.head_dim = 77, odd.state = state - 5;
  Spec packed = slow;
  packed.pack({1, 0, 65, 150});
  packed.initial_states = DType::f32;
  Spec documents = slow;
  documents.tokens = 260, documents.new_document = 0.03, documents.initial_states = x;
  documents.options.dt_min = 0.001F, documents.options.dt_max = 3;
  Spec both = slow;
  both.pack({70, 0, 129});
  both.new_document = 0.05, both.y = DType::f32, both.final_states = x, both.memory = Memory::scattered;
  both.options.batch_invariant = true;
  Spec states = slow;
  states.tokens = 300, states.options.chunk_states_every = 48;
  states.chunk_states = states.final_states = x == DType::f32 ? DType::f16 : x;
  states.initial_states = DType::bf16;
  Spec longer = slow;
  longer.batch = 1, longer.tokens = 1500, longer.heads = 2, longer.groups = 1;
  Spec strong = plain;
  strong.tokens = 150, strong.decay = Decay::strong;
  Spec token = plain;
  token.batch = 3, token.tokens = 1;
  std::vector<Trial> all = {{"a batch", plain},       {"ragged sizes, slow decay", ragged},
                            {"odd sizes", odd},       {"packed", packed},
                            {"documents", documents}, {"packed with documents", both},
                            {"chunk states", states}, {"many chunks", longer},
                            {"strong decay", strong}, {"one token", token}};
  if (x == DType::f32) {
    Spec tf32 = slow;
    tf32.options.allow_tf32 = true;
    all.push_back({"tf32", tf32});
  }
  return all;
}

/// What is to be tried.
class Candidate {
 public:
  Candidate(const Entry& entry, const Device& device, Choice choice)
      : entry_(entry), device_(device), choice_(std::move(choice)) {}

  [[nodiscard]] bool takes(const Call& call) const {
    for (const Offer& offer : entry_.backend->offers(problem_of(call))) {
      if (offer.schedule == choice_.schedule && offer.policy == choice_.policy) return offer.refusal.empty();
    }
    return false;
  }

  /// Empty: it is right, and the same twice. Else how it is wrong.
  [[nodiscard]] std::string fault_in(Call& call) const {
    calls::Expected expected = calls::expected_of(call.arguments, call.options);
    if (call.options.allow_tf32) {  // one such product is what was asked for: its operands have 11 bits
      constexpr double least = 1e-3;
      for (double* bar : {&expected.bars.out, &expected.bars.block, &expected.bars.state}) *bar = std::max(*bar, least);
    }
    const Plan plan(problem_of(call), choice_);
    std::vector<std::vector<std::byte>> before;
    for (int time = 0; time < 2; ++time) {
      call.prepare();
      Mirror mirror(plan, call.arguments);
      plan.execute(mirror.arguments(), mirror.workspace(), plan.workspace_bytes());
      mirror.fetch();
      if (const std::string damage = call.damage(); !damage.empty()) return damage;
      if (!mirror.intact()) return "it wrote beside its memory or into an input";
      const golden::Shares shares = calls::shares_of(call.arguments, call.options, expected);
      if (!shares.pass()) return in_words(shares);
      std::vector<std::vector<std::byte>> now = {calls::bits(call.arguments.y)};
      if (call.arguments.final_states) now.push_back(calls::bits(*call.arguments.final_states));
      if (call.arguments.chunk_states) now.push_back(calls::bits(*call.arguments.chunk_states));
      if (time > 0 && now != before) return "the same call gave other bits";
      before = std::move(now);
    }
    return "";
  }

 private:
  [[nodiscard]] Problem problem_of(const Call& call) const {
    return Problem::of(placed_on(device_, call.arguments), call.options);
  }
  static std::string in_words(const golden::Shares& shares) {
    std::string text;
    const auto add = [&](const char* what, const golden::Worst& worst) {
      if (worst.value <= 1) return;
      char share[32];
      std::snprintf(share, sizeof share, "%.3g", worst.value);
      text += (text.empty() ? "" : "; ") + std::string(what) + " " + share + " of its bar (" + worst.place + ")";
    };
    add("y", shares.out);
    add("a block of y", shares.block);
    add("a row of y", shares.row);
    if (shares.state) add("a state", *shares.state);
    if (shares.chunk_state) add("a chunk state", *shares.chunk_state);
    return text;
  }

  const Entry& entry_;
  Device device_;
  Choice choice_;
};

/// Each problem of those that it takes. @returns empty, or how it is wrong.
std::string fault_of(const Candidate& candidate, DType x) {
  std::optional<std::int64_t> most;
  for (const std::int64_t state : {16, 64, 128, 256, 512}) {
    if (candidate.takes(Call(trials(x, state).front().spec))) most = state;
  }
  if (!most) return "it takes none of the problems that would prove it";
  for (const auto& [name, spec] : trials(x, *most)) {
    Call call(spec);
    if (!candidate.takes(call)) continue;  // nor will it take a user's
    std::string fault;
    try {
      fault = candidate.fault_in(call);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::out_of_memory) throw;
      fault = error.what();
      std::replace(fault.begin(), fault.end(), '\n', ' ');
    }
    if (!fault.empty()) return std::string(name) + ": " + fault;
  }
  return "";
}

Device device_of(std::string_view text) {
  if (text == "cpu") return {};
  const auto colon = text.find(':');
  const DeviceKind kind = text.substr(0, colon) == "hip" ? DeviceKind::hip : DeviceKind::cuda;
  int index = 0;
  if (colon != std::string_view::npos) std::from_chars(text.data() + colon + 1, text.data() + text.size(), index);
  return {kind, index};
}

DType dtype_of(std::string_view text) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    if (text == name(dtype)) return dtype;
  }
  return DType::f32;
}

End ended(End end, const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  return end;
}

End prove(const std::vector<std::string>& words) {
  if (words.size() != 6) return ended(End::not_run, "the words are MODULE MEMBER DEVICE SCHEDULE POLICY DTYPE");
  const std::string& member = words[1];
  registry().add({member, member, words[0]});
  const Entry& entry = *registry().named(member).front();
  const Device device = device_of(words[2]);
  const Probe found = probe(entry);
  if (!found.can_run) return ended(End::not_run, found.reason);
  if (const std::string why = entry.backend->cannot_address(device); !why.empty()) return ended(End::not_run, why);
  const Candidate candidate(entry, device, {member, schedule_named(words[3]), words[4]});
  const std::string fault = fault_of(candidate, dtype_of(words[5]));
  return fault.empty() ? End::right : ended(End::wrong, fault);
}

}  // namespace
}  // namespace tilemamba::proof

int main(int count, char** words) {
  using namespace tilemamba::proof;
  be_on_our_own();
  End end = End::not_run;
  try {
    end = prove({words + 1, words + std::max(count, 1)});
  } catch (const std::exception& error) {
    end = ended(End::not_run, error.what());
  }
  // Without taking anything down: what a driver does then says nothing of the answers.
  _exit(static_cast<int>(end));
}
