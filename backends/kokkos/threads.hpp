// SPDX-License-Identifier: Apache-2.0
/// @file
/// How many threads a CPU backend should start.
#pragma once

#include <algorithm>
#include <cmath>
#include <fstream>
#include <istream>
#include <optional>
#include <sstream>
#include <string>

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace tilemamba::kokkos {

/// Processors that a control group's cpu.max ("200000 100000", or "max 100000") lets run at a time, rounded up; none:
/// no limit.
inline std::optional<int> processors_of_quota(const std::string& cpu_max) {
  std::istringstream words(cpu_max);
  double quota = 0.0;
  double period = 0.0;
  if (!(words >> quota >> period) || quota <= 0.0 || period <= 0.0) return std::nullopt;
  return static_cast<int>(std::min(std::ceil(quota / period), 65536.0));
}

/// The tightest limit of this process's control group and those above it, under the root of the control group file
/// system.
inline std::optional<int> processors_of_cgroup(std::istream& proc_self_cgroup, const std::string& root) {
  std::string path;
  for (std::string line; std::getline(proc_self_cgroup, line);) {
    if (line.rfind("0::", 0) == 0) path = line.substr(3);
  }
  std::optional<int> least;
  while (true) {
    std::ifstream file(root + (path == "/" ? "" : path) + "/cpu.max");
    std::string text;
    if (std::getline(file, text)) {
      if (const auto limit = processors_of_quota(text)) least = std::min(least.value_or(*limit), *limit);
    }
    const auto slash = path.rfind('/');
    if (slash == std::string::npos || path.size() <= 1) return least;
    path.resize(slash);
    if (path.empty()) path = "/";
  }
}

/// What OpenMP would start (it knows OMP_NUM_THREADS and the affinity mask), but, unless the user asked for a number,
/// no more than the control group lets run.
inline int threads_to_start() {
#if defined(_OPENMP)
  const int asked = omp_get_max_threads();
  if (asked != omp_get_num_procs()) return asked;
  std::ifstream proc("/proc/self/cgroup");
  const auto limit = processors_of_cgroup(proc, "/sys/fs/cgroup");
  return std::max(1, std::min(asked, limit.value_or(asked)));
#else
  return 1;
#endif
}

}  // namespace tilemamba::kokkos
