// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "core/registry.hpp"

int main(int argc, char** argv) {
  // Before the tests are listed: most are stamped for every backend.
  tilemamba::registry().add({"scalar", "scalar", TILEMAMBA_TEST_MODULES "/tilemamba_backend_scalar.so"});
  for (const char* member : {"lanes-cdna", "lanes-rdna"})
    tilemamba::registry().add({member, "lanes", TILEMAMBA_TEST_MODULES "/tilemamba_backend_hip_lanes.so"});
  for (const char* member : {"lanes-sm100", "lanes-sm90"})
    tilemamba::registry().add({member, "lanes", TILEMAMBA_TEST_MODULES "/tilemamba_backend_cuda_lanes.so"});
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
