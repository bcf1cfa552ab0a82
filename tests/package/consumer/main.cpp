// SPDX-License-Identifier: Apache-2.0
// Lists the backends that the library finds, and has each one that is named in the arguments answer a call of two
// tokens; exit code 1 if one of them cannot, or answers wrongly.
#include <cmath>
#include <cstdio>

#include <tilemamba/tilemamba.hpp>

using namespace tilemamba;

/// One head, one channel, one element of state, everything 1 but A: h_1 = 1, h_2 = exp(A) + 1, y = h.
static bool answers(const char* backend) {
  const float ones[2] = {1, 1};
  const float A = -1;
  float y[2] = {};
  Arguments arguments;
  arguments.x = {dense(DType::f32, {1, 2, 1, 1}), ones};
  arguments.dt = {dense(DType::f32, {1, 2, 1}), ones};
  arguments.A = {dense(DType::f32, {1}), &A};
  arguments.B = arguments.C = {dense(DType::f32, {1, 2, 1, 1}), ones};
  arguments.y = {dense(DType::f32, {1, 2, 1, 1}), y};
  try {
    scan(arguments, {}, {.backend = backend, .policy = {}});
  } catch (const Error& error) {
    std::printf("%s: %s\n", backend, error.what());
    return false;
  }
  std::printf("%s: y = %g, %g\n", backend, static_cast<double>(y[0]), static_cast<double>(y[1]));
  return std::abs(y[0] - 1.0f) < 1e-5f && std::abs(y[1] - (std::exp(A) + 1.0f)) < 1e-5f;
}

int main(int argc, char** argv) {
  for (const BackendInfo& backend : backends()) {
    std::printf("%s: %s, %s\n", backend.name.c_str(), backend.can_run ? "can run" : "cannot run",
                backend.reason.c_str());
  }
  bool right = true;
  for (int i = 1; i < argc; ++i) right = answers(argv[i]) && right;
  return right ? 0 : 1;
}
