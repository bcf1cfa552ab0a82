// SPDX-License-Identifier: Apache-2.0
#include "core/environment.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <sstream>
#include <string_view>

namespace tilemamba {

namespace {

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// A file of ours in the user's cache folder; as the XDG specification has it, folders that are not absolute do not
/// count.
std::string in_cache_folder(const char* cache, const char* home, const std::string& file) {
  if (cache != nullptr && *cache == '/') return std::string(cache) + "/tilemamba/" + file;
  if (home != nullptr && *home == '/') return std::string(home) + "/.cache/tilemamba/" + file;
  return {};
}

}  // namespace

Environment parse_environment(const std::function<const char*(const char*)>& variable) {
  Environment result;
  if (const char* value = variable("TILEMAMBA_BACKEND")) result.backend = trimmed(value);
  if (const char* value = variable("TILEMAMBA_CPU_ISA")) result.cpu_isa = trimmed(value);
  if (const char* value = variable("TILEMAMBA_TUNING_CACHE")) result.tuning_cache = trimmed(value);
  if (result.tuning_cache.empty()) {
    result.tuning_cache = in_cache_folder(variable("XDG_CACHE_HOME"), variable("HOME"), "tuning.json");
  }
  if (!result.tuning_cache.empty()) {
    result.proofs = result.tuning_cache.substr(0, result.tuning_cache.rfind('/') + 1) + "proofs.json";
  }
  if (const char* value = variable("TILEMAMBA_UNPROVEN")) {
    const std::string word = trimmed(value);
    if (word == "1") result.unproven = Unproven::on_proof;
    if (word == "trusted") result.unproven = Unproven::trusted;
    if (!word.empty() && word != "0" && result.unproven == Unproven::refused)
      result.warnings.push_back("TILEMAMBA_UNPROVEN: '" + word + "' means nothing; valid: 1 trusted");
  }
  if (const char* value = variable("TILEMAMBA_VERBOSE")) {
    std::istringstream words{value};
    for (std::string word; std::getline(words, word, ',');) {
      word = trimmed(word);
      if (word == "dispatch") {
        result.verbose_dispatch = true;
      } else if (!word.empty() && word != "0") {
        result.warnings.push_back("TILEMAMBA_VERBOSE: '" + word + "' means nothing; valid: dispatch");
      }
    }
  }
  return result;
}

Environment environment() {
  Environment result =
      parse_environment([](const char* name) { return std::getenv(name); });  // NOLINT(concurrency-mt-unsafe)
  if (!result.warnings.empty()) {
    static std::once_flag once;
    std::call_once(once, [&] {
      for (const std::string& warning : result.warnings) std::fprintf(stderr, "tilemamba: %s\n", warning.c_str());
    });
  }
  return result;
}

std::vector<std::string> environment_with(const std::string& name, const std::string& value) {
  std::vector<std::string> all = {name + "=" + value};
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with(name + "=")) all.emplace_back(*entry);
  }
  return all;
}

}  // namespace tilemamba
