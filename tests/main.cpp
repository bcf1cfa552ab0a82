// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "core/registry.hpp"

int main(int argc, char** argv) {
  // Before the tests are listed: most are stamped for every backend.
  tilemamba::registry().add({"scalar", "scalar", TILEMAMBA_TEST_MODULES "/tilemamba_backend_scalar.so"});
  for (const char* member : {"stand-in-cdna", "stand-in-rdna"})
    tilemamba::registry().add({member, "stand-in", TILEMAMBA_TEST_MODULES "/tilemamba_backend_hip_stand_in.so"});
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
