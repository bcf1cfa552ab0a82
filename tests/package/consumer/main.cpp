// SPDX-License-Identifier: Apache-2.0
// Lists the backends that the installed library finds; exit code 1 if one named in the arguments cannot run.
#include <algorithm>
#include <cstdio>
#include <string>

#include <tilemamba/tilemamba.hpp>

int main(int argc, char** argv) {
  const auto all = tilemamba::backends();
  for (const auto& backend : all) {
    std::printf("%s: %s, %s\n", backend.name.c_str(), backend.can_run ? "can run" : "cannot run",
                backend.reason.c_str());
  }
  return std::all_of(argv + 1, argv + argc,
                     [&](const std::string& name) {
                       return std::any_of(all.begin(), all.end(),
                                          [&](const auto& backend) { return backend.name == name && backend.can_run; });
                     })
             ? 0
             : 1;
}
