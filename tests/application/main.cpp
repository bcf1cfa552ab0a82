// SPDX-License-Identifier: Apache-2.0
/// @file
/// An application that has a Kokkos of its own, with every symbol of it in view, and also uses tilemamba. It does, in
/// the order of the letters of its first argument:
///
///     I  initialise its own Kokkos     K  work with it     F  finalise it     S  scan with tilemamba on the backend of
///     argument 2
///
/// and checks after each that its own Kokkos, its OpenMP settings and the scan's answer are what they should be.
/// tests/CMakeLists.txt has the orders.
#include <omp.h>

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <tilemamba/tilemamba.hpp>

#include "core/reference.hpp"
#include "tests/problems.hpp"

namespace {

int failures = 0;
void expect(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "FAILED: %s\n", what);
  ++failures;
}

/// What an application could notice of a change.
struct Surroundings {
  bool initialized = Kokkos::is_initialized();
  bool finalized = Kokkos::is_finalized();
  int omp_threads = omp_get_max_threads();
  int omp_dynamic = omp_get_dynamic();
  int omp_levels = omp_get_max_active_levels();
  bool operator==(const Surroundings&) const = default;
};

using Numbers = Kokkos::View<double*, Kokkos::HostSpace>;
std::unique_ptr<Numbers> numbers;  // lives from I to F, across everything between

void initialize() {
  Kokkos::initialize(Kokkos::InitializationSettings().set_num_threads(1).set_disable_warnings(true));
  expect(Kokkos::is_initialized(), "own Kokkos is initialised");
  numbers = std::make_unique<Numbers>("application::numbers", 1000);
}

void work() {
  const Numbers all = *numbers;
  Kokkos::parallel_for(
      "application::fill", all.extent(0), KOKKOS_LAMBDA(std::size_t i) { all(i) = double(i); });
  double sum = 0;
  Kokkos::parallel_reduce(
      "application::sum", all.extent(0), KOKKOS_LAMBDA(std::size_t i, double& part) { part += all(i); }, sum);
  expect(sum == 499500.0, "own Kokkos adds up its numbers");
  expect(Kokkos::DefaultExecutionSpace().concurrency() == 1, "own Kokkos keeps its single thread");
  expect(all.label() == "application::numbers", "own Kokkos keeps its label");
}

void finalize() {
  numbers.reset();
  Kokkos::finalize();
  expect(Kokkos::is_finalized(), "own Kokkos is finalised");
}

void scan(const std::string& backend) {
  tilemamba::test::Spec spec;
  spec.tokens = 150;
  spec.heads = 4;
  spec.head_dim = 32;
  spec.decay = tilemamba::test::Decay::slow;
  tilemamba::test::Call call(spec);
  const Surroundings before;
  tilemamba::Choice choice;
  choice.backend = backend;
  tilemamba::scan(call.arguments, call.options, choice);
  expect(before == Surroundings(), "a scan leaves the application's Kokkos and OpenMP settings alone");

  const std::vector<double> right = tilemamba::reference::recurrence(call.arguments, call.options).y;
  const std::vector<double> found = tilemamba::reference::values(call.arguments.y);
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < right.size(); ++i) {
    error += (found[i] - right[i]) * (found[i] - right[i]);
    norm += right[i] * right[i];
  }
  // Generous for float: here it only matters whether the scan worked at all.
  expect(std::sqrt(error) <= 1e-4 * std::sqrt(norm), "the scan is right");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s ORDER BACKEND\n", argv[0]);
    return 2;
  }
  try {
    for (const char step : std::string(argv[1])) {
      if (step == 'I') initialize();
      if (step == 'K') work();
      if (step == 'F') finalize();
      if (step == 'S') scan(argv[2]);
    }
  } catch (const std::exception& error) {
    expect(false, error.what());
  }
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
