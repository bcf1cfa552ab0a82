// SPDX-License-Identifier: Apache-2.0
#include "core/registry.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/cpu.hpp"
#include "core/environment.hpp"

namespace tilemamba {

std::vector<BackendRow> backend_table() {
  return {
      // member          family    module
      {"cuda-sm90", "cuda", "tilemamba_backend_cuda.so"},
      {"cuda-sm80", "cuda", "tilemamba_backend_cuda.so"},
      {"kokkos-openmp", "kokkos", "tilemamba_backend_kokkos", true},
      {"kokkos-serial", "kokkos", "tilemamba_backend_kokkos", true},
  };
}

namespace {

/// The file of a module: in the folder `tilemamba` beside the library, wherever that was installed. A program that has
/// the library inside itself stands in bin, beside lib.
std::filesystem::path module_file(const std::string& name) {
  Dl_info info{};
  std::error_code ignored;
  std::filesystem::path folder;
  if (dladdr(reinterpret_cast<const void*>(&backend_table), &info) != 0 && info.dli_fname != nullptr) {
    folder = std::filesystem::canonical(info.dli_fname, ignored).parent_path();
  }
  const std::filesystem::path beside = folder / "tilemamba" / name;  // an absolute name replaces the folder
  const std::filesystem::path in_lib = folder.parent_path() / "lib" / "tilemamba" / name;
  return !std::filesystem::exists(beside, ignored) && std::filesystem::exists(in_lib, ignored) ? in_lib : beside;
}

/// The module for the best level of the CPU, or for the one that TILEMAMBA_CPU_ISA names.
/// @throws Error saying why there is none.
std::filesystem::path module_for_cpu(const std::string& module) {
  const std::string forced = environment().cpu_isa;
  std::string levels;
  std::filesystem::path file;
  for (const CpuLevel& level : cpu_levels()) {
    levels += " " + std::string(level.name);
    if (forced.empty() ? level.only_if_named : forced != level.name) continue;
    if (!level.supported) {
      if (!forced.empty())
        throw Error(ErrorCode::no_backend, "TILEMAMBA_CPU_ISA is " + forced + ", which this CPU does not have");
      continue;
    }
    file = module_file(module + "." + std::string(level.name) + ".so");
    std::error_code ignored;
    if (!forced.empty() || std::filesystem::exists(file, ignored)) return file;
  }
  if (file.empty()) throw Error(ErrorCode::no_backend, "TILEMAMBA_CPU_ISA is '" + forced + "'; valid here:" + levels);
  return file;
}

void load(Entry& entry) {
  std::filesystem::path file;
  try {
    file = entry.row.per_cpu_level ? module_for_cpu(entry.row.module) : module_file(entry.row.module);
  } catch (const Error& error) {
    entry.load_failure = error.what();
    return;
  }
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) {
    entry.load_failure = "not part of this installation: there is no " + file.string();
    return;
  }
  // Never unloaded: plans and threads of the backend may outlive any use that we know of.
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    const char* why = dlerror();
    entry.load_failure = why != nullptr ? why : "cannot load " + file.string();
    return;
  }
  auto* function = reinterpret_cast<ModuleFunction*>(dlsym(handle, module_symbol));
  if (function == nullptr) {
    entry.load_failure = file.string() + " is not a backend module: it has no " + module_symbol;
    return;
  }
  const Module* module = function();
  if (module == nullptr) {
    entry.load_failure = file.string() + " holds no backends";
    return;
  }
  if (module->library_version != version()) {
    entry.load_failure = file.string() + " belongs to version " + module->library_version + " of the library, not to " +
                         std::string(version());
    return;
  }
  for (std::size_t i = 0; i < module->count; ++i) {
    if (module->backends[i]->name() == entry.row.member) entry.backend = module->backends[i];
  }
  if (entry.backend == nullptr) entry.load_failure = file.string() + " was built without " + entry.row.member;
}

}  // namespace

Registry::Registry(std::vector<BackendRow> rows) {
  for (BackendRow& row : rows) add(std::move(row));
}

void Registry::add(BackendRow row) {
  const std::lock_guard lock(mutex_);
  slots_.push_back({{std::move(row), nullptr, {}}, false});
}

std::vector<const Entry*> Registry::named(std::string_view name) {
  const std::lock_guard lock(mutex_);
  std::vector<const Entry*> found;
  for (Slot& slot : slots_) {
    const BackendRow& row = slot.entry.row;
    if (!name.empty() && name != row.member && name != row.family) continue;
    if (!slot.loaded) load(slot.entry);
    slot.loaded = true;
    found.push_back(&slot.entry);
  }
  if (found.empty()) {
    std::vector<std::string> valid;
    for (const Slot& slot : slots_) {
      for (const std::string& word : {slot.entry.row.family, slot.entry.row.member}) {
        if (std::find(valid.begin(), valid.end(), word) == valid.end()) valid.push_back(word);
      }
    }
    std::string message = "unknown backend '" + std::string(name) + "'; valid:";
    for (const std::string& word : valid) message += " " + word;
    throw Error(ErrorCode::no_backend, message);
  }
  return found;
}

Registry& registry() {
  static Registry instance(backend_table());
  return instance;
}

}  // namespace tilemamba
