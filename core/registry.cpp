// SPDX-License-Identifier: Apache-2.0
#include "core/registry.hpp"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <new>
#include <utility>

#include "core/cpu.hpp"
#include "core/environment.hpp"

namespace tilemamba {

std::vector<BackendRow> backend_table() {
  return {
      // member          family    module
      {"cuda-sm100", "cuda", "tilemamba_backend_cuda.so"},
      {"cuda-sm90", "cuda", "tilemamba_backend_cuda.so"},
      {"cuda-sm80", "cuda", "tilemamba_backend_cuda.so"},
      {"hip-cdna", "hip", "tilemamba_backend_hip.so"},
      {"hip-rdna", "hip", "tilemamba_backend_hip.so"},
      {"kokkos-openmp", "kokkos", "tilemamba_backend_kokkos", true},
      {"kokkos-serial", "kokkos", "tilemamba_backend_kokkos", true},
      {"kokkos-cuda", "kokkos", "tilemamba_backend_kokkos_cuda.so"},
      {"kokkos-hip", "kokkos", "tilemamba_backend_kokkos_hip.so"},
  };
}

namespace {

using Path = std::filesystem::path;

/// The object that this code is in: the library, or what the static library was linked into.
struct Holder {
  Path file;
  bool is_program = true;
};

Holder holder() {
  Dl_info info{};
  std::error_code ignored;
#if defined(__GLIBC__)
  // The program itself has no name here. (In `info` it has that by which it was started, which need not say where it
  // is.)
  link_map* object = nullptr;
  if (dladdr1(reinterpret_cast<const void*>(&backend_table), &info, reinterpret_cast<void**>(&object),
              RTLD_DL_LINKMAP) == 0)
    return {};
  if (object->l_name[0] != '\0') return {std::filesystem::canonical(object->l_name, ignored), false};
  return {std::filesystem::canonical("/proc/self/exe", ignored)};
#else
  if (dladdr(reinterpret_cast<const void*>(&backend_table), &info) == 0 || info.dli_fname == nullptr) return {};
  return {std::filesystem::canonical(info.dli_fname, ignored)};
#endif
}

#if defined(TILEMAMBA_STATIC) && defined(__GLIBC__)
/// Where the loader looks for libraries of an object: its RPATH or RUNPATH, LD_LIBRARY_PATH, the system's folders.
std::vector<Path> loader_folders(const Holder& object) {
  void* handle = dlopen(object.is_program ? nullptr : object.file.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  Dl_serinfo size{};
  if (handle == nullptr || dlinfo(handle, RTLD_DI_SERINFOSIZE, &size) != 0) return {};
  const auto memory = std::make_unique<std::byte[]>(size.dls_size);
  auto* list = new (memory.get()) Dl_serinfo(size);
  if (dlinfo(handle, RTLD_DI_SERINFO, list) != 0) return {};
  std::vector<Path> folders;
  for (unsigned i = 0; i < list->dls_cnt; ++i) folders.emplace_back(list->dls_serpath[i].dls_name);
  return folders;
}
#endif

/// Where modules may be, in order: in `tilemamba` beside the library, wherever that was installed. A program that has
/// the library inside itself stands in bin, beside lib; or its loader would find a shared library of ours there.
std::vector<Path> module_folders() {
  const Holder object = holder();
  std::vector<Path> folders;
  if (!object.file.empty()) {
    const Path beside = object.file.parent_path();
    folders.push_back(beside);
    if (object.is_program) folders.push_back(beside.parent_path() / "lib");
  }
#if defined(TILEMAMBA_STATIC) && defined(__GLIBC__)
  for (Path& folder : loader_folders(object)) folders.push_back(std::move(folder));
#endif
  for (Path& folder : folders) folder /= "tilemamba";
  return folders;
}

/// The file names of a row's module, the best for this CPU first; or that of the level which TILEMAMBA_CPU_ISA names.
/// @throws Error saying why there is none.
std::vector<std::string> module_names(const BackendRow& row) {
  if (!row.per_cpu_level) return {row.module};
  const std::string forced = environment().cpu_isa;
  std::string levels;
  std::vector<std::string> names;
  for (const CpuLevel& level : cpu_levels()) {
    levels += " " + std::string(level.name);
    if (!forced.empty() && forced != level.name) continue;
    if (level.supported) {
      names.push_back(row.module + "." + std::string(level.name) + ".so");
    } else if (!forced.empty()) {
      throw Error(ErrorCode::no_backend, "TILEMAMBA_CPU_ISA is " + forced + ", which this CPU does not have");
    }
  }
  if (names.empty()) throw Error(ErrorCode::no_backend, "TILEMAMBA_CPU_ISA is '" + forced + "'; valid here:" + levels);
  return names;
}

}  // namespace

std::string find_in_module_folders(const std::vector<std::string>& names) {
  static const std::vector<Path> folders = module_folders();
  std::error_code ignored;
  for (const Path& folder : folders) {
    for (const std::string& name : names) {
      const Path file = folder / name;  // an absolute name replaces the folder
      if (std::filesystem::exists(file, ignored)) return file.string();
    }
  }
  std::string message = "not part of this installation: there is no " + names.back();
  for (const Path& folder : folders) message += (&folder == folders.data() ? " in " : ", ") + folder.string();
  throw Error(ErrorCode::no_backend, message);
}

namespace {

void load(Entry& entry) {
  std::string& file = entry.file;
  try {
    file = find_in_module_folders(module_names(entry.row));
  } catch (const Error& error) {
    entry.load_failure = error.what();
    return;
  }
  // Never unloaded: plans and threads of the backend may outlive any use that we know of.
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    const char* why = dlerror();
    entry.load_failure = why != nullptr ? why : "cannot load " + file;
    return;
  }
  auto* function = reinterpret_cast<ModuleFunction*>(dlsym(handle, module_symbol));
  if (function == nullptr) {
    entry.load_failure = file + " is not a backend module: it has no " + module_symbol;
    return;
  }
  const Module* module = function();
  if (module == nullptr) {
    entry.load_failure = file + " holds no backends";
    return;
  }
  if (module->library_version != version()) {
    entry.load_failure =
        file + " belongs to version " + module->library_version + " of the library, not to " + std::string(version());
    return;
  }
  for (std::size_t i = 0; i < module->count; ++i) {
    if (module->backends[i]->name() == entry.row.member) entry.backend = module->backends[i];
  }
  if (entry.backend == nullptr) entry.load_failure = file + " was built without " + entry.row.member;
}

}  // namespace

Probe probe(const Entry& entry) {
  if (entry.backend == nullptr) return {false, entry.load_failure, {}};
  Probe found = entry.backend->probe();
  if (found.can_run && !entry.backend->proven() && environment().unproven == Unproven::refused) {
    found.can_run = false;
    found.reason = entry.row.member + " was never run by us: with TILEMAMBA_UNPROVEN=1 it may prove itself";
  }
  return found;
}

Identity identity(const Backend& backend, const Device& device) {
  Identity its = backend.identity(device);
  if (device.kind == DeviceKind::cpu) {
    static const std::string processor = processor_name();
    its.device = processor + (its.device.empty() ? "" : ", ") + its.device;
  }
  return its;
}

Registry::Registry(std::vector<BackendRow> rows) {
  for (BackendRow& row : rows) add(std::move(row));
}

void Registry::add(BackendRow row) {
  const std::lock_guard lock(mutex_);
  const auto same = [&](const Slot& slot) { return slot.entry.row.member == row.member && !slot.loaded; };
  const auto found = std::find_if(slots_.begin(), slots_.end(), same);
  Slot& slot = found != slots_.end() ? *found : slots_.emplace_back();
  slot.entry.row = std::move(row);
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
