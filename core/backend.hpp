// SPDX-License-Identifier: Apache-2.0
/// @file
/// Where the library ends and a backend begins. A backend is a class in a module, a shared object of its own that is
/// loaded when it is first asked for; it uses headers of core/ and kernels/ only and no symbol of the library, and no
/// exception leaves it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tilemamba/tilemamba.hpp>

namespace tilemamba {

/// Can this backend run here, and on what?
struct Probe {
  bool can_run = false;
  std::string reason;  ///< why not; or a word on what it is
  std::vector<std::string> devices;
};

/// One way in which a backend could run a problem.
struct Offer {
  Schedule schedule = Schedule::automatic;
  std::string_view policy;  ///< the name of its tile configuration; lives as long as the module
  std::string refusal;      ///< empty: can run
  std::size_t workspace_bytes = 0;
  double cost = 0;  ///< time as the backend expects it, in any unit; 0: it does not know
};

/// What measured times and proofs are valid for: the device as it calls itself (of a CPU only what the backend uses of
/// it, its name comes in front) and its driver. Not the number of threads: it must decide no bit, so no policy.
struct Identity {
  std::string device;
  std::string driver;
};

/// How a backend's work ended; `message` is empty when it went well.
struct Outcome {
  ErrorCode code = ErrorCode::backend_failure;
  std::string message;
};

/// A problem made ready to run.
class Executable {
 public:
  Executable() = default;
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;
  virtual ~Executable() = default;
  /// The arguments are those of the problem, the workspace is large enough. Allocates nothing; safe from several
  /// threads.
  [[nodiscard]] virtual Outcome run(const Arguments& arguments, void* workspace, void* stream) const noexcept = 0;
};

/// Starts the i-th of many equal calls on a stream of the device.
using Calls = std::function<Outcome(std::size_t i, void* stream)>;

/// How long a call takes on a device. This one is of the CPU, which has done a call when it returns.
class Stopwatch {
 public:
  explicit Stopwatch(Calls calls) : calls_(std::move(calls)) {}
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  virtual ~Stopwatch() = default;

  /// Seconds of a call: the mean of as many as take a millisecond together. `count` says how many these were.
  [[nodiscard]] virtual Outcome time(double& seconds, std::size_t& count) noexcept {
    using Clock = std::chrono::steady_clock;
    constexpr double shortest = 1e-3;
    const Clock::time_point begin = Clock::now();
    count = 0;
    do {
      if (Outcome outcome = calls_(next_++, nullptr); !outcome.message.empty()) return outcome;
      ++count;
      seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    } while (seconds < shortest);
    seconds /= static_cast<double>(count);
    return {};
  }

 protected:
  Calls calls_;

 private:
  std::size_t next_ = 0;
};

class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  [[nodiscard]] virtual Probe probe() const = 0;
  /// Whether anybody has run it on a device. Else it is only used where TILEMAMBA_UNPROVEN=1 says so and after a proof
  /// on the device, in a process of its own (core/proof.hpp).
  [[nodiscard]] virtual bool proven() const noexcept { return true; }
  /// Empty: its code can read and write that device's memory. Else why not.
  [[nodiscard]] virtual std::string cannot_address(const Device& device) const = 0;
  /// Every schedule and policy, the default first among those that do not refuse.
  [[nodiscard]] virtual std::vector<Offer> offers(const Problem& problem) const = 0;
  /// Makes an offer ready: what a first launch would load or reserve is done here. Null and the outcome if it cannot.
  [[nodiscard]] virtual std::unique_ptr<Executable> prepare(const Problem& problem, const Offer& offer,
                                                            Outcome& outcome) const = 0;
  /// Memory of the device, aligned to 256 bytes; null if there is none left.
  [[nodiscard]] virtual void* allocate(const Device& device, std::size_t bytes) const noexcept = 0;
  virtual void release(const Device& device, void* memory) const noexcept = 0;
  /// The same for what is given to one stream, in its order: nobody waits.
  [[nodiscard]] virtual void* borrow(const Device& device, std::size_t bytes, void*) const noexcept {
    return allocate(device, bytes);
  }
  virtual void give_back(const Device& device, void* memory, void*) const noexcept { release(device, memory); }

  /// No device: neither times nor proofs are kept for it. (A CPU always has a name.)
  [[nodiscard]] virtual Identity identity(const Device&) const { return {}; }

  /// For who measures. Null and the outcome if it cannot be.
  [[nodiscard]] virtual std::unique_ptr<Stopwatch> stopwatch(const Device&, Calls calls, Outcome&) const {
    return std::make_unique<Stopwatch>(std::move(calls));
  }

  // For who brings tensors to a device or reads some back (the command line, tests, `validate`); no call that was
  // planned copies.
  /// Where its tensors live if nobody has a preference.
  [[nodiscard]] virtual Device home() const noexcept { return {}; }
  /// Copy between the host's memory and the device's, after all work that was given to the device before; done when
  /// they return.
  [[nodiscard]] virtual Outcome upload(const Device&, void* to, const void* from, std::size_t bytes) const noexcept {
    std::memcpy(to, from, bytes);
    return {};
  }
  [[nodiscard]] virtual Outcome download(const Device&, void* to, const void* from, std::size_t bytes) const noexcept {
    std::memcpy(to, from, bytes);
    return {};
  }
};

/// What a module shows.
struct Module {
  const char* library_version;  ///< must equal the library's own
  const Backend* const* backends;
  std::size_t count;
};
inline constexpr const char* module_symbol = "tilemamba_backend_module";
using ModuleFunction = const Module*();

}  // namespace tilemamba
