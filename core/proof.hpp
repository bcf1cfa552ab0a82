// SPDX-License-Identifier: Apache-2.0
/// @file
/// Backends that nobody has run on a device prove themselves before they are used: at plan time, on small problems, in
/// a process of its own (core/prove.cpp), since a fault on a device can take everything along that the process has
/// there.
///
/// The verdict is kept in a file (core/cache.hpp) and holds for one device and driver, one module and one version of
/// the library, for one schedule and policy and the dtype of x.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/environment.hpp"
#include "core/registry.hpp"

namespace tilemamba::proof {

/// A verdict and, before it, where it holds.
struct Record {
  std::string device, driver, library;
  std::string module;  ///< a hash of its file
  std::string backend, schedule, policy;
  std::string x;        ///< dtype
  std::string verdict;  ///< "right" or "wrong"
  std::string reason;
  friend bool operator==(const Record&, const Record&) = default;
};

/// The verdicts in a file's text; entries that are not as this version writes them are passed over.
/// @throws Error damaged_file.
[[nodiscard]] std::vector<Record> parse(std::string_view text);
/// The text of a file with `record` in the place of one that holds at the same place. No text: there is no file yet.
/// @throws Error damaged_file.
[[nodiscard]] std::string merged(const std::optional<std::string>& text, const Record& record);
/// Does that to the file. @throws Error io; damaged_file.
void store(const std::string& file, const Record& record);

/// Where a verdict holds: a record without one.
[[nodiscard]] Record place_of(const Entry& entry, const Device& device, const Offer& offer, DType x);

/// How a proof ended.
struct Verdict {
  bool right = false;
  bool lasting = false;  ///< it would end so again: it was run, and neither was something missing nor did others end it
  std::string reason;    ///< why it is not right
};

/// The program that tries a module, beside the modules.
inline constexpr const char* helper = "tilemamba_prove";
/// Loading a module, a driver's compiler and some twenty small calls take seconds.
inline constexpr std::chrono::milliseconds limit{60'000};

/// Has a backend tried by the program `prover` and waits for that; longer than `patience` is a verdict, too.
[[nodiscard]] Verdict prove(const Entry& entry, const Device& device, const Offer& offer, DType x,
                            const std::string& prover, std::chrono::milliseconds patience);

/// Why an offer may not be used; empty: it has proved itself, now or earlier.
[[nodiscard]] std::string refusal(const Entry& entry, const Problem& problem, const Offer& offer,
                                  const Environment& environment);

/// What is known of a backend that nobody has run, in words; nothing is tried.
[[nodiscard]] std::string known_of(const Entry& entry, const Environment& environment);

/// The file is read again, and what was found in this process is forgotten; for tests.
void forget(const std::string& file);

}  // namespace tilemamba::proof
