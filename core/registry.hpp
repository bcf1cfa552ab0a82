// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which backends there are, in the order in which they are tried, and the loading of their modules.
#pragma once

#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "core/backend.hpp"

namespace tilemamba {

/// One line of the backend table.
struct BackendRow {
  std::string member;          ///< "kokkos-openmp"
  std::string family;          ///< "kokkos"
  std::string module;          ///< file name in a folder of modules (registry.cpp says which), or an absolute path
  bool per_cpu_level = false;  ///< there is a module for each level of the CPU: <module>.<level>.so
};

/// The table. Whoever adds a backend adds its line here; the order is the order of preference.
[[nodiscard]] std::vector<BackendRow> backend_table();

/// A backend of the table, loaded if that is possible.
struct Entry {
  BackendRow row;
  const Backend* backend = nullptr;
  std::string load_failure;  ///< why backend is null
  std::string file;          ///< the module
};

/// What the entry's backend finds on this machine. One that nobody has run on a device cannot run unless
/// TILEMAMBA_UNPROVEN says otherwise, and the reason names it.
[[nodiscard]] Probe probe(const Entry& entry);

/// What a backend says of a device, completed: a CPU always has a name.
[[nodiscard]] Identity identity(const Backend& backend, const Device& device);

/// The first of these files that is in a folder of modules.
/// @throws Error saying where it was looked for.
[[nodiscard]] std::string find_in_module_folders(const std::vector<std::string>& names);

class Registry {
 public:
  explicit Registry(std::vector<BackendRow> rows);

  /// Entries whose family or member is `name`, all of them for an empty name; modules are loaded as they are first
  /// asked for.
  /// @throws Error listing the valid names.
  [[nodiscard]] std::vector<const Entry*> named(std::string_view name);

  /// Appends a line, or puts it in the place of that member's, if nobody has asked for it yet; for tests, and for the
  /// proof of a module.
  void add(BackendRow row);

 private:
  struct Slot {
    Entry entry;
    bool loaded = false;
  };
  std::mutex mutex_;
  std::deque<Slot> slots_;  // a deque: entries never move
};

/// The registry of the process, over backend_table().
[[nodiscard]] Registry& registry();

}  // namespace tilemamba
