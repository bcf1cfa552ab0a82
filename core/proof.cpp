// SPDX-License-Identifier: Apache-2.0
#include "core/proof.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>

#include "core/cache.hpp"
#include "core/prove.hpp"

namespace tilemamba::proof {

namespace {

constexpr cache::Kind kind = {"tilemamba proofs", 1, "file of proofs", "remove it, and they are made anew"};

auto place(const Record& r) {
  return std::tie(r.device, r.driver, r.library, r.module, r.backend, r.schedule, r.policy, r.x);
}

const cache::Fields<Record>& fields() {
  static const cache::Fields<Record> all = {{{"device", &Record::device},
                                             {"driver", &Record::driver},
                                             {"library", &Record::library},
                                             {"module", &Record::module},
                                             {"backend", &Record::backend},
                                             {"schedule", &Record::schedule},
                                             {"policy", &Record::policy},
                                             {"x", &Record::x},
                                             {"verdict", &Record::verdict},
                                             {"reason", &Record::reason}},
                                            {},
                                            [](const Record& a, const Record& b) { return place(a) == place(b); },
                                            [](const Record&) { return true; }};
  return all;
}

/// FNV-1a of a file's bytes: the time of a file is not that of what was compiled into it.
std::string hash_of(const std::string& file) {
  static std::mutex mutex;
  static std::map<std::string, std::string> known;
  const std::lock_guard lock(mutex);
  std::string& text = known[file];
  if (!text.empty()) return text;
  std::uint64_t hash = 0xcbf29ce484222325u;
  std::ifstream in(file, std::ios::binary);
  std::vector<char> piece(std::size_t{1} << 20);
  do {
    in.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    for (std::streamsize i = 0; i < in.gcount(); ++i) {
      hash = (hash ^ static_cast<unsigned char>(piece[static_cast<std::size_t>(i)])) * 0x100000001b3u;
    }
  } while (in);
  std::array<char, 24> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(hash));
  return text = digits.data();
}

// -------------------------------------------------------------------------------------------------------- the process

/// The last line of what a program said, as far as it can be printed.
std::string last_line(std::string text) {
  constexpr std::size_t most = 500;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  if (const auto end = text.rfind('\n'); end != std::string::npos) text.erase(0, end + 1);
  if (text.size() > most) text.resize(most);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

/// A program under way, and what it says on stderr.
class Process {
 public:
  /// @param words of its command line, the program first.
  Process(const std::vector<std::string>& words, const std::vector<std::string>& variables) {
    std::array<int, 2> ends{-1, -1};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) {
      failure_ = errno;
      return;
    }
    output_ = ends[0];
    const auto pointers = [](const std::vector<std::string>& texts) {
      std::vector<char*> all;
      for (const std::string& text : texts) all.push_back(const_cast<char*>(text.c_str()));  // NOLINT: as POSIX has it
      all.push_back(nullptr);
      return all;
    };
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&files, ends[1], STDERR_FILENO);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);  // whatever the caller blocks or ignores
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    failure_ = posix_spawn(&id_, words.front().c_str(), &files, &attributes, pointers(words).data(),
                           pointers(variables).data());
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    close(ends[1]);
  }
  ~Process() {
    if (output_ >= 0) close(output_);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  /// Why it did not start; 0: it did.
  [[nodiscard]] int failure() const { return failure_; }
  [[nodiscard]] const std::string& said() const { return said_; }
  /// How it ended, as waitpid has it; nothing if it has not by then, or if its end cannot be seen (then `lost`).
  std::optional<int> wait(std::chrono::steady_clock::time_point until) {
    for (;;) {
      int status = 0;
      const pid_t ended = waitpid(id_, &status, WNOHANG);
      lost_ = ended < 0 && errno != EINTR;
      listen();  // after its end, too: to the last word
      if (ended == id_) return status;
      if (lost_ || std::chrono::steady_clock::now() >= until) return std::nullopt;
    }
  }
  [[nodiscard]] bool lost() const { return lost_; }
  void kill() const { ::kill(id_, SIGKILL); }

 private:
  /// Takes what it has said, waiting a moment if it is silent.
  void listen() {
    constexpr int moment = 5;  // milliseconds
    constexpr std::size_t most = 4096;
    std::array<char, 1024> piece{};
    for (int wait = moment; output_ >= 0; wait = 0) {
      pollfd ready{output_, POLLIN, 0};
      if (poll(&ready, 1, wait) <= 0) return;
      const ssize_t got = read(output_, piece.data(), piece.size());
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        close(std::exchange(output_, -1));
        break;
      }
      said_.append(piece.data(), static_cast<std::size_t>(got));
      if (said_.size() > 2 * most) said_.erase(0, said_.size() - most);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(moment));
  }

  pid_t id_ = -1;
  int failure_ = 0;
  int output_ = -1;
  bool lost_ = false;
  std::string said_;
};

std::string with_last_line(const std::string& what, const std::string& said) {
  const std::string line = last_line(said);
  return line.empty() ? what : what + "; its last words: " + line;
}

Verdict verdict_of(int status, const std::string& said) {
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    // Not what a fault of its own would send.
    const bool by_others = signal == SIGKILL || signal == SIGTERM || signal == SIGINT || signal == SIGHUP;
    return {false, !by_others,
            with_last_line("it was ended by signal " + std::to_string(signal) + " (" + strsignal(signal) + ")", said)};
  }
  switch (WEXITSTATUS(status)) {
    case static_cast<int>(End::right):
      return {true, true, ""};
    case static_cast<int>(End::wrong):
      return {false, true, last_line(said)};
    case static_cast<int>(End::not_run):
      return {false, false, last_line(said)};
    default:
      return {false, true, with_last_line("it ended with exit status " + std::to_string(WEXITSTATUS(status)), said)};
  }
}

// ------------------------------------------------------------------------------------------------------ what is known

/// Found in this process, which knows a device that has no name by its number.
struct Found {
  Record place;
  Device device;
  Verdict verdict;
};
struct Known {
  std::mutex mutex;
  std::map<std::string, std::vector<Found>> found;  ///< by the file
  std::set<std::string> warned;                     ///< of the file
};

Known& known() {
  static Known instance;
  return instance;
}

void warn(Known& state, const std::string& file, const char* what, const std::exception& fault) {
  if (!state.warned.insert(file + what).second) return;
  std::fprintf(stderr, "tilemamba: warning: %s: %s\n", what, fault.what());
}

/// With a word if it cannot be used.
std::vector<Record> read(Known& state, const std::string& file) {
  if (file.empty()) return {};
  try {
    return cache::records(kind, fields(), file);
  } catch (const std::exception& fault) {
    warn(state, file, "earlier proofs are ignored", fault);
    return {};
  }
}

void keep(Known& state, const std::string& file, Record record, const Verdict& verdict) {
  if (file.empty() || record.device.empty() || !verdict.lasting) return;
  record.verdict = verdict.right ? "right" : "wrong";
  record.reason = verdict.reason;
  try {
    store(file, record);
  } catch (const std::exception& fault) {
    warn(state, file, "the proof is not kept", fault);
  }
}

std::optional<Verdict> verdict_in(const std::vector<Record>& records, const Record& wanted) {
  for (const Record& record : records) {
    if (place(record) != place(wanted)) continue;
    if (record.verdict == "right") return Verdict{true, true, ""};
    if (record.verdict == "wrong") return Verdict{false, true, record.reason};
  }
  return std::nullopt;
}

Verdict prove_by_helper(const Entry& entry, const Device& device, const Offer& offer, DType x) {
  std::string prover;
  try {
    prover = find_in_module_folders({helper});
  } catch (const Error& error) {
    return {false, false, std::string("it cannot be tried: ") + error.what()};
  }
  return prove(entry, device, offer, x, prover, limit);
}

}  // namespace

std::vector<Record> parse(std::string_view text) { return cache::parse(kind, fields(), text); }

std::string merged(const std::optional<std::string>& text, const Record& record) {
  return cache::merged(kind, fields(), text, record);
}

void store(const std::string& file, const Record& record) { cache::store(kind, fields(), file, record); }

Record place_of(const Entry& entry, const Device& device, const Offer& offer, DType x) {
  Identity its = identity(*entry.backend, device);
  Record record;
  record.device = std::move(its.device);
  record.driver = std::move(its.driver);
  record.library = version();
  record.module = hash_of(entry.file);
  record.backend = entry.row.member;
  record.schedule = name(offer.schedule);
  record.policy = offer.policy;
  record.x = name(x);
  return record;
}

Verdict prove(const Entry& entry, const Device& device, const Offer& offer, DType x, const std::string& prover,
              std::chrono::milliseconds patience) {
  Process process({prover, entry.file, entry.row.member, to_string(device), std::string(name(offer.schedule)),
                   std::string(offer.policy), std::string(name(x))},
                  environment_with("TILEMAMBA_UNPROVEN", "trusted"));
  if (process.failure() != 0) {
    return {
        false, false,
        "it cannot be tried: " + prover + " cannot be started: " + std::generic_category().message(process.failure())};
  }
  const auto now = [] { return std::chrono::steady_clock::now(); };
  std::optional<int> status = process.wait(now() + patience);
  if (status) return verdict_of(*status, process.said());
  if (process.lost()) {
    return {false, false,
            "it was tried, but somebody else in this process waits for all children and saw how it ended"};
  }
  process.kill();
  constexpr std::chrono::seconds moment{5};  // a driver may keep it longer: then nobody waits for it
  (void)process.wait(now() + moment);
  std::array<char, 64> time{};
  std::snprintf(time.data(), time.size(), "it was not done after %.3g s", 1e-3 * static_cast<double>(patience.count()));
  return {false, true, with_last_line(time.data(), process.said())};
}

std::string refusal(const Entry& entry, const Problem& problem, const Offer& offer, const Environment& environment) {
  const std::string& file = environment.proofs;
  const Record wanted = place_of(entry, problem.device, offer, problem.x);
  Known& state = known();
  // While it is tried, others that want to know wait for the verdict.
  const std::lock_guard lock(state.mutex);
  auto& found = state.found[file];
  const auto at = std::find_if(found.begin(), found.end(), [&](const Found& each) {
    return each.place == wanted && each.device == problem.device;
  });
  std::optional<Verdict> verdict;
  if (at != found.end()) verdict = at->verdict;
  if (!verdict) {
    if (!wanted.device.empty()) verdict = verdict_in(read(state, file), wanted);
    if (!verdict) {
      if (environment.verbose_dispatch) {
        std::fprintf(stderr, "tilemamba: dispatch: %s %s %s: never run by us, tried on small problems in x of %s\n",
                     wanted.backend.c_str(), wanted.schedule.c_str(), wanted.policy.c_str(), wanted.x.c_str());
      }
      verdict = prove_by_helper(entry, problem.device, offer, problem.x);
      keep(state, file, wanted, *verdict);
    }
    found.push_back({wanted, problem.device, *verdict});
  }
  if (verdict->right) return "";
  if (!verdict->lasting) return "it was never run by us, and " + verdict->reason;
  return "it was never run by us, and failed on small problems in x of " + wanted.x + " on " + wanted.device + ": " +
         verdict->reason + (file.empty() ? "" : " (" + file + " keeps that)");
}

std::string known_of(const Entry& entry, const Environment& environment) {
  Known& state = known();
  const std::lock_guard lock(state.mutex);
  std::string text;
  for (const Record& record : read(state, environment.proofs)) {
    if (record.library != version() || record.backend != entry.row.member || record.module != hash_of(entry.file))
      continue;
    text += "; " + record.verdict + " on " + record.device + " with driver " + record.driver + ": " + record.schedule +
            " " + record.policy + " " + record.x + (record.reason.empty() ? "" : ", " + record.reason);
  }
  return "never run by us" + (text.empty() ? ": it proves itself when it is first planned" : text);
}

void forget(const std::string& file) {
  const std::lock_guard lock(known().mutex);
  known().found.erase(file);
  known().warned.clear();
}

}  // namespace tilemamba::proof
