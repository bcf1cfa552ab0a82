// SPDX-License-Identifier: Apache-2.0
#include "core/tuning.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <mutex>
#include <system_error>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/cpu.hpp"
#include "core/environment.hpp"

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

using nlohmann::json;

constexpr std::size_t most_bytes = std::size_t{1} << 20;
constexpr int most_levels = 16;
constexpr const char* format = "tilemamba tuning";
constexpr int format_version = 1;

[[noreturn]] void damaged(const std::string& what) { throw Error(ErrorCode::damaged_file, what); }

/// In quotes, and in ASCII whatever bytes it has.
std::string quoted(const std::string& text) { return json(text).dump(-1, ' ', true, json::error_handler_t::replace); }

/// The file's content, if it is a tuning cache of this format.
json document(std::string_view text) {
  if (text.size() > most_bytes) damaged("it has more than " + std::to_string(most_bytes) + " bytes");
  json whole;
  try {
    whole = json::parse(text, [](int depth, json::parse_event_t, json&) {
      if (depth > most_levels) damaged("it is nested more than " + std::to_string(most_levels) + " levels deep");
      return true;
    });
  } catch (const json::parse_error& error) {
    damaged("it is no JSON at byte " + std::to_string(error.byte));
  } catch (const json::exception&) {
    damaged("it has a number that is out of range");
  }
  if (!whole.is_object() || whole.value("format", json()) != format) {
    damaged(std::string("it does not say \"format\": \"") + format + "\"");
  }
  if (whole.value("version", json()) != format_version) {
    damaged("it is of another version of the format; this library has version " + std::to_string(format_version));
  }
  if (!whole.value("entries", json()).is_array()) damaged("it has no list \"entries\"");
  return whole;
}

constexpr std::pair<const char*, std::string TuningRecord::*> texts[] = {
    {"device", &TuningRecord::device},   {"driver", &TuningRecord::driver},   {"library", &TuningRecord::library},
    {"backend", &TuningRecord::backend}, {"problem", &TuningRecord::problem}, {"schedule", &TuningRecord::schedule},
    {"policy", &TuningRecord::policy},
};
constexpr std::pair<const char*, double TuningRecord::*> numbers[] = {
    {"milliseconds", &TuningRecord::milliseconds},
    {"default_milliseconds", &TuningRecord::default_milliseconds},
};

std::optional<TuningRecord> record_of(const json& entry) {
  if (!entry.is_object()) return std::nullopt;
  TuningRecord record;
  for (const auto& [field, member] : texts) {
    const auto found = entry.find(field);
    if (found == entry.end() || !found->is_string()) return std::nullopt;
    record.*member = found->get<std::string>();
  }
  for (const auto& [field, member] : numbers) {
    const auto found = entry.find(field);
    if (found == entry.end() || !found->is_number()) return std::nullopt;
    record.*member = found->get<double>();
  }
  return record;
}

json entry_of(const TuningRecord& record) {
  json entry;
  for (const auto& [field, member] : texts) entry[field] = record.*member;
  for (const auto& [field, member] : numbers) entry[field] = record.*member;
  return entry;
}

bool same_place(const TuningRecord& a, const TuningRecord& b) {
  const auto place = [](const TuningRecord& r) {
    return std::tie(r.device, r.driver, r.library, r.backend, r.problem);
  };
  return place(a) == place(b);
}

// --------------------------------------------------------------------------------------------------------------- files

[[noreturn]] void io_error(const std::string& file, const std::string& doing) {
  const int code = errno;
  throw Error(ErrorCode::io, quoted(file) + " cannot be " + doing + ": " + std::generic_category().message(code));
}

/// An open file.
class File {
 public:
  /// @throws Error io, unless there is no such file and none is to be made.
  File(const std::string& name, int flags, const char* doing) : name_(name), doing_(doing) {
    do {
      descriptor_ = open(name.c_str(), flags | O_CLOEXEC, 0666);
    } while (descriptor_ < 0 && errno == EINTR);
    if (descriptor_ < 0 && (errno != ENOENT || (flags & O_CREAT) != 0)) io_error(name_, doing_);
  }
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  [[nodiscard]] bool exists() const { return descriptor_ >= 0; }
  /// Waits until no other process holds the lock; until this object ends.
  void lock() const {
    while (flock(descriptor_, LOCK_EX) != 0) {
      if (errno != EINTR) io_error(name_, "locked");
    }
  }
  /// At most a byte more than a cache may have.
  [[nodiscard]] std::string read() const {
    struct stat about {};
    if (fstat(descriptor_, &about) != 0) io_error(name_, doing_);
    if (!S_ISREG(about.st_mode)) damaged("it is no regular file");
    std::string text(most_bytes + 1, '\0');
    std::size_t size = 0;
    while (size < text.size()) {
      const ssize_t got = ::read(descriptor_, text.data() + size, text.size() - size);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) io_error(name_, doing_);
      if (got == 0) break;
      size += static_cast<std::size_t>(got);
    }
    text.resize(size);
    return text;
  }
  void write(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t put = ::write(descriptor_, text.data(), text.size());
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) io_error(name_, doing_);
      text.remove_prefix(static_cast<std::size_t>(put));
    }
    sync();
  }
  void sync() const {
    if (fsync(descriptor_) != 0) io_error(name_, doing_);
  }

 private:
  std::string name_;
  const char* doing_;
  int descriptor_ = -1;
};

/// Nothing if there is no file.
std::optional<std::string> text_of(const std::string& cache) {
  const File file(cache, O_RDONLY | O_NONBLOCK, "read");  // a pipe must not keep anybody waiting
  if (!file.exists()) return std::nullopt;
  return file.read();
}

/// `f()`, with the file's name in what it says is damaged.
template <class F>
auto naming(const std::string& cache, const F& f) {
  try {
    return f();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::damaged_file) throw;
    throw Error(error.code(), quoted(cache) + " is no tuning cache that can be used: " + error.what() +
                                  " (`tilemamba tune --clear` removes it)");
  }
}

/// Where the file is, its folder made: a link to it stays a link.
std::string place_to_write(const std::string& cache) {
  std::error_code error;
  const std::filesystem::path file = std::filesystem::weakly_canonical(cache, error);
  if (!error) std::filesystem::create_directories(file.parent_path(), error);
  if (error) throw Error(ErrorCode::io, "the folder of " + quoted(cache) + " cannot be made: " + error.message());
  return file.string();
}

/// Held while a file is changed. It is a file beside it, for the file itself is replaced.
class Lock {
 public:
  explicit Lock(const std::string& file) : file_(file + ".lock", O_RDWR | O_CREAT, "written") { file_.lock(); }

 private:
  File file_;
};

void replace(const std::string& file, const std::string& text) {
  const std::string fresh = file + ".new";  // of who has the lock
  File(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, "written").write(text);
  if (std::rename(fresh.c_str(), file.c_str()) != 0) io_error(file, "written");
  File(std::filesystem::path(file).parent_path().string(), O_RDONLY | O_DIRECTORY, "written").sync();
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

std::vector<TuningRecord> read_or_warn(const std::string& cache) noexcept {
  try {
    return tuning_records(cache);
  } catch (const std::exception& fault) {
    std::fprintf(stderr, "tilemamba: warning: the tuning cache is ignored: %s\n", fault.what());
    return {};
  }
}

}  // namespace

std::vector<TuningRecord> parse(std::string_view text) {
  std::vector<TuningRecord> records;
  const json whole = document(text);
  for (const json& entry : whole["entries"]) {
    if (auto record = record_of(entry)) records.push_back(std::move(*record));
  }
  return records;
}

std::string merged(const std::optional<std::string>& text, const TuningRecord& record) {
  json whole =
      text ? document(*text) : json{{"format", format}, {"version", format_version}, {"entries", json::array()}};
  json kept = json::array();
  for (json& entry : whole["entries"]) {
    const auto other = record_of(entry);
    if (!other || !same_place(*other, record)) kept.push_back(std::move(entry));
  }
  if (!record.policy.empty()) kept.push_back(entry_of(record));
  whole["entries"] = std::move(kept);
  return whole.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

void require_usable(const std::string& cache) {
  const std::string file = place_to_write(cache);
  const Lock lock(file);
  static_cast<void>(tuning_records(file));
}

void store(const std::string& cache, const TuningRecord& record) {
  const std::string file = place_to_write(cache);
  const Lock lock(file);
  std::optional<std::string> before;
  const std::string after = naming(file, [&] {
    before = text_of(file);
    return merged(before, record);
  });
  if (!before && record.policy.empty()) return;
  if (after.size() > most_bytes) {
    throw Error(ErrorCode::io, quoted(file) + " is full: it may have " + std::to_string(most_bytes) +
                                   " bytes (`tilemamba tune --clear` removes it)");
  }
  if (after != before) replace(file, after);
}

std::optional<TuningRecord> place_of(const Backend& backend, const Problem& problem) {
  if (problem.options.batch_invariant) return std::nullopt;
  Identity identity = backend.identity(problem.device);
  if (problem.device.kind == DeviceKind::cpu) {
    static const std::string processor = processor_name();
    identity.device = processor + (identity.device.empty() ? "" : ", ") + identity.device;
  }
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

std::vector<TuningRecord> tuning_records(const std::string& cache) {
  return tuning::naming(cache, [&]() -> std::vector<TuningRecord> {
    const std::optional<std::string> text = tuning::text_of(cache);
    return text ? tuning::parse(*text) : std::vector<TuningRecord>();
  });
}

bool clear_tuning(const std::string& cache) {
  const std::string file = tuning::place_to_write(cache);
  const tuning::Lock lock(file);
  const bool removed = unlink(file.c_str()) == 0;
  if (!removed && errno != ENOENT) tuning::io_error(file, "removed");
  tuning::forget(cache);
  return removed;
}

}  // namespace tilemamba
