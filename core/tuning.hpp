// SPDX-License-Identifier: Apache-2.0
/// @file
/// The tuning cache: a file (core/cache.hpp) of TuningRecords, read when plans are made and written by `tune` only.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tilemamba/tuning.hpp>

#include "core/backend.hpp"

namespace tilemamba::tuning {

/// The answers in a file's text; entries that are not as this version writes them are passed over.
/// @throws Error damaged_file.
[[nodiscard]] std::vector<TuningRecord> parse(std::string_view text);

/// The text of a file with `record` in the place of one that is valid at the same place; with no policy, that one is
/// just taken out. No text: there is no file yet. @throws Error damaged_file.
[[nodiscard]] std::string merged(const std::optional<std::string>& text, const TuningRecord& record);

/// That `store` will be possible, as far as can be told. @throws Error io; damaged_file.
void require_usable(const std::string& cache);

/// Does that to the file, which other processes may be doing as well: it is there as a whole at any time.
/// @throws Error io; damaged_file.
void store(const std::string& cache, const TuningRecord& record);

/// Where times of this backend and problem are valid: a record without an answer. Nothing if no times are kept for it.
[[nodiscard]] std::optional<TuningRecord> place_of(const Backend& backend, const Problem& problem);

/// The answer in tuning_cache(). A file that cannot be used is ignored; it is said once.
[[nodiscard]] std::optional<TuningRecord> lookup(const std::string& cache, const Backend& backend,
                                                 const Problem& problem) noexcept;

/// The file is read again when the next plan is made.
void forget(const std::string& cache);

}  // namespace tilemamba::tuning
