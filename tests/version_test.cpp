// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <tilemamba/tilemamba.hpp>

TEST(Version, IsTheProjects) { EXPECT_EQ(tilemamba::version(), TILEMAMBA_VERSION); }
