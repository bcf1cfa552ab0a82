// SPDX-License-Identifier: Apache-2.0
#include "core/cache.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

namespace tilemamba::cache {

namespace {

constexpr int most_levels = 16;

[[noreturn]] void damaged(const std::string& what) { throw Error(ErrorCode::damaged_file, what); }

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

/// Where the file is, its folder made: a link to it stays a link.
std::string place_to_write(const std::string& name) {
  std::error_code error;
  const std::filesystem::path file = std::filesystem::weakly_canonical(name, error);
  if (!error) std::filesystem::create_directories(file.parent_path(), error);
  if (error) throw Error(ErrorCode::io, "the folder of " + quoted(name) + " cannot be made: " + error.message());
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

}  // namespace

std::string quoted(const std::string& text) { return json(text).dump(-1, ' ', true, json::error_handler_t::replace); }

json document(const Kind& kind, std::string_view text) {
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
  if (!whole.is_object() || whole.value("format", json()) != kind.format) {
    damaged(std::string("it does not say \"format\": \"") + kind.format + "\"");
  }
  if (whole.value("version", json()) != kind.version) {
    damaged("it is of another version of the format; this library has version " + std::to_string(kind.version));
  }
  if (!whole.value("entries", json()).is_array()) damaged("it has no list \"entries\"");
  return whole;
}

std::optional<std::string> text_of(const std::string& name) {
  const File file(name, O_RDONLY | O_NONBLOCK, "read");  // a pipe must not keep anybody waiting
  if (!file.exists()) return std::nullopt;
  return file.read();
}

void rewrite(const Kind& kind, const std::string& name,
             const std::function<std::optional<std::string>(const std::optional<std::string>& text)>& change) {
  const std::string file = place_to_write(name);
  const Lock lock(file);
  std::optional<std::string> before;
  const std::optional<std::string> after = naming(kind, file, [&] {
    before = text_of(file);
    return change(before);
  });
  if (!after || after == before) return;
  if (after->size() > most_bytes) {
    throw Error(ErrorCode::io,
                quoted(file) + " is full: it may have " + std::to_string(most_bytes) + " bytes (" + kind.remedy + ")");
  }
  replace(file, *after);
}

bool remove(const std::string& name) {
  const std::string file = place_to_write(name);
  const Lock lock(file);
  const bool removed = unlink(file.c_str()) == 0;
  if (!removed && errno != ENOENT) io_error(file, "removed");
  return removed;
}

}  // namespace tilemamba::cache
