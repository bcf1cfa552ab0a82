// SPDX-License-Identifier: Apache-2.0
/// @file
/// Files of answers that hold beyond a process, in JSON, changed by many processes at once:
///
///     {"format": "tilemamba tuning", "version": 1, "entries": [{"device": ..., "driver": ..., ...}, ...]}
///
/// An entry has the fields of a record. Entries and fields of others are kept as they are. A file is there as a whole
/// at any time, and one that is damaged is not written over.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <tilemamba/tilemamba.hpp>

namespace tilemamba::cache {

using nlohmann::json;

inline constexpr std::size_t most_bytes = std::size_t{1} << 20;

/// What a file says it is, and what people are told of it.
struct Kind {
  const char* format;  ///< "tilemamba tuning"
  int version;
  const char* what;    ///< "tuning cache"
  const char* remedy;  ///< "`tilemamba tune --clear` removes it"
};

/// In quotes, and in ASCII whatever bytes it has.
[[nodiscard]] std::string quoted(const std::string& text);

/// A text's content, if it is a file of this kind. @throws Error damaged_file.
[[nodiscard]] json document(const Kind& kind, std::string_view text);

/// A file's text; nothing if there is none. @throws Error io; damaged_file if it is no regular file.
[[nodiscard]] std::optional<std::string> text_of(const std::string& file);

/// `f()`, with the file's name in what it says is damaged.
template <class F>
auto naming(const Kind& kind, const std::string& file, const F& f) {
  try {
    return f();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::damaged_file) throw;
    throw Error(error.code(),
                quoted(file) + " is no " + kind.what + " that can be used: " + error.what() + " (" + kind.remedy + ")");
  }
}

/// Puts in a file's place what `change` makes of its text (nothing: there is no file); no other process does so
/// meanwhile. A link to the file stays one. @throws Error io; what `change` throws.
void rewrite(const Kind& kind, const std::string& file,
             const std::function<std::optional<std::string>(const std::optional<std::string>& text)>& change);

/// Removes a file, whatever is in it. @returns whether there was one. @throws Error io.
bool remove(const std::string& file);

/// How a record and an entry become one another.
template <class Record>
struct Fields {
  std::vector<std::pair<const char*, std::string Record::*>> texts;
  std::vector<std::pair<const char*, double Record::*>> numbers;
  bool (*same_place)(const Record&, const Record&);  ///< one answers what the other does
  bool (*is_answer)(const Record&);                  ///< else the place is left empty

  [[nodiscard]] std::optional<Record> record_of(const json& entry) const {
    if (!entry.is_object()) return std::nullopt;
    Record record;
    for (const auto& [field, member] : texts) {
      const auto found = entry.find(field);
      if (found == entry.end() || !found->is_string()) return std::nullopt;
      record.*member = found->template get<std::string>();
    }
    for (const auto& [field, member] : numbers) {
      const auto found = entry.find(field);
      if (found == entry.end() || !found->is_number()) return std::nullopt;
      record.*member = found->template get<double>();
    }
    return record;
  }
  [[nodiscard]] json entry_of(const Record& record) const {
    json entry;
    for (const auto& [field, member] : texts) entry[field] = record.*member;
    for (const auto& [field, member] : numbers) entry[field] = record.*member;
    return entry;
  }
};

/// The records in a file's text; entries that are not as this version writes them are passed over.
/// @throws Error damaged_file.
template <class Record>
[[nodiscard]] std::vector<Record> parse(const Kind& kind, const Fields<Record>& fields, std::string_view text) {
  std::vector<Record> records;
  const json whole = document(kind, text);
  for (const json& entry : whole["entries"]) {
    if (auto record = fields.record_of(entry)) records.push_back(std::move(*record));
  }
  return records;
}

/// The text of a file with `record` in the place of one that answers the same; if it is no answer, that one is just
/// taken out. No text: there is no file yet. @throws Error damaged_file.
template <class Record>
[[nodiscard]] std::string merged(const Kind& kind, const Fields<Record>& fields, const std::optional<std::string>& text,
                                 const Record& record) {
  json whole = text ? document(kind, *text)
                    : json{{"format", kind.format}, {"version", kind.version}, {"entries", json::array()}};
  json kept = json::array();
  for (json& entry : whole["entries"]) {
    const auto other = fields.record_of(entry);
    if (!other || !fields.same_place(*other, record)) kept.push_back(std::move(entry));
  }
  if (fields.is_answer(record)) kept.push_back(fields.entry_of(record));
  whole["entries"] = std::move(kept);
  return whole.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

/// All records of a file; none if there is no such file. @throws Error io; damaged_file.
template <class Record>
[[nodiscard]] std::vector<Record> records(const Kind& kind, const Fields<Record>& fields, const std::string& file) {
  return naming(kind, file, [&]() -> std::vector<Record> {
    const std::optional<std::string> text = text_of(file);
    return text ? parse(kind, fields, *text) : std::vector<Record>();
  });
}

/// Does to the file what `merged` does to its text. @throws Error io; damaged_file.
template <class Record>
void store(const Kind& kind, const Fields<Record>& fields, const std::string& file, const Record& record) {
  rewrite(kind, file, [&](const std::optional<std::string>& before) -> std::optional<std::string> {
    if (!before && !fields.is_answer(record)) return std::nullopt;
    return merged(kind, fields, before, record);
  });
}

}  // namespace tilemamba::cache
