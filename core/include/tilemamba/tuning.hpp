// SPDX-License-Identifier: Apache-2.0
/// @file
/// Measuring which schedule and policy are the fastest on this machine, and where the answers are kept.
///
/// Tuning is an act of its own: nothing is timed inside any other call. What it finds is kept in a file, the tuning
/// cache, which plans then follow: where `Choice` leaves schedule or policy open, the cache's answer for the problem's
/// class comes before the backend's default. A plan depends on the file and not on the clock: the same file gives the
/// same bits in every process that runs on the same kind of device, for any number of threads.
///
/// A process reads the file once, when its first plan is made, and after it has tuned itself; plans that were made
/// before stay as they are. A file that is damaged or of another format is ignored with a word on stderr.
///
/// Problems with `batch_invariant` always take the backend's default: a sequence packed among others is of another
/// class than the same one alone, and they must not differ.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <tilemamba/tilemamba.hpp>

namespace tilemamba {

/// The class of a problem, for which one answer is kept, e.g. "bf16 P64 N128 G1 T257-1024 BH17-64 packed":
///
///     dtype of x; P and N exactly; G1 or G>1;
///     T    tokens of a sequence, the mean if packed:  0-16, 17-64, 65-256, 257-1024, 1025-4096, 4097-16384, 16385-
///     BH   sequences x heads:                         0-4, 5-16, 17-64, 65-256, 257-
///     packed, documents (seq_idx), chunk_states, tf32: if they are used
///
/// Everything else (gates, biases, types of states) costs every candidate about the same.
[[nodiscard]] TILEMAMBA_EXPORT std::string problem_class(const Problem& problem);

/// An answer in the cache. The first five say where it is valid, the next two what is to be taken there.
struct TuningRecord {
  std::string device;   ///< for a CPU its name and its level of instructions
  std::string driver;   ///< empty for a CPU
  std::string library;  ///< version
  std::string backend;  ///< member
  std::string problem;  ///< class
  std::string schedule;
  std::string policy;
  double milliseconds = 0;          ///< of the problem that was measured
  double default_milliseconds = 0;  ///< of what the backend takes by default
  friend bool operator==(const TuningRecord&, const TuningRecord&) = default;
};

/// The file that plans follow: TILEMAMBA_TUNING_CACHE, else ${XDG_CACHE_HOME:-~/.cache}/tilemamba/tuning.json; empty if
/// the environment names none of these. To go without a cache, name a file that is not there.
[[nodiscard]] TILEMAMBA_EXPORT std::string tuning_cache();

/// All answers in a cache, those of other machines and versions included; none if there is no such file.
/// @throws Error io; damaged_file.
[[nodiscard]] TILEMAMBA_EXPORT std::vector<TuningRecord> tuning_records(const std::string& cache);

/// Removes the file, whatever is in it. @returns whether there was one. @throws Error io.
TILEMAMBA_EXPORT bool clear_tuning(const std::string& cache);

struct TuneOptions {
  std::string backend;  ///< as in Choice: what it stands for is tuned
  double budget = 60;   ///< seconds; a class of problems that was begun is ended in a few calls of each candidate
  std::string cache;    ///< the file to keep answers in; empty: tuning_cache()
  std::function<void(const std::string&)> progress;  ///< called with what is done next
};

/// What was measured for a class of problems.
struct Tuned {
  TuningRecord record;            ///< of the winner
  bool is_default = false;        ///< nothing was faster than the default by more than the noise
  std::vector<std::string> lost;  ///< each other candidate: its time, or why it could not win
};

/// Times every schedule and policy on problems of these sizes (the first of each class) and keeps in the cache what is
/// faster than the default; where nothing is, an earlier answer is removed. Candidates that the backend expects to be
/// much slower are left out; a candidate must give the right answer before it is timed. Only the answers that this call
/// is about are changed in the file, however many processes tune at once.
/// @returns what was found, class by class, as far as the budget went.
/// @throws Error as Plan does; invalid_argument for problems with batch_invariant; io or damaged_file if the cache
/// cannot be written or is no tuning cache: nothing has been timed then.
TILEMAMBA_EXPORT std::vector<Tuned> tune(const std::vector<Problem>& problems, const TuneOptions& options = {});

}  // namespace tilemamba
