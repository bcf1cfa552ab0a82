// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the environment variables mean.
#include "core/environment.hpp"

#include <algorithm>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "tests/backend_test.hpp"

namespace tilemamba {
namespace {

Environment parsed(const std::map<std::string, std::string>& variables) {
  return parse_environment([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(Environment, NothingIsSet) {
  const Environment e = parsed({});
  EXPECT_EQ(e.backend, "");
  EXPECT_FALSE(e.verbose_dispatch);
  EXPECT_TRUE(e.warnings.empty());
}

TEST(Environment, EmptyIsNotSet) {
  const Environment e = parsed({{"TILEMAMBA_BACKEND", ""}, {"TILEMAMBA_VERBOSE", ""}});
  EXPECT_EQ(e.backend, "");
  EXPECT_FALSE(e.verbose_dispatch);
  EXPECT_TRUE(e.warnings.empty());
}

TEST(Environment, Backend) {
  EXPECT_EQ(parsed({{"TILEMAMBA_BACKEND", "kokkos-serial"}}).backend, "kokkos-serial");
  EXPECT_EQ(parsed({{"TILEMAMBA_BACKEND", "  kokkos\t"}}).backend, "kokkos");
  EXPECT_EQ(parsed({{"TILEMAMBA_BACKEND", " \t "}}).backend, "");
}

TEST(Environment, CpuLevel) {
  EXPECT_EQ(parsed({}).cpu_isa, "");
  EXPECT_EQ(parsed({{"TILEMAMBA_CPU_ISA", " x86-64-v3 "}}).cpu_isa, "x86-64-v3");
  EXPECT_TRUE(parsed({{"TILEMAMBA_CPU_ISA", "x86-64-v3"}}).warnings.empty());
}

TEST(Environment, TuningCache) {
  EXPECT_EQ(parsed({}).tuning_cache, "");
  EXPECT_EQ(parsed({{"HOME", "/home/a"}}).tuning_cache, "/home/a/.cache/tilemamba/tuning.json");
  EXPECT_EQ(parsed({{"HOME", "/home/a"}, {"XDG_CACHE_HOME", "/c"}}).tuning_cache, "/c/tilemamba/tuning.json");
  EXPECT_EQ(parsed({{"HOME", "/home/a"}, {"XDG_CACHE_HOME", "c"}}).tuning_cache,
            "/home/a/.cache/tilemamba/tuning.json");
  EXPECT_EQ(parsed({{"HOME", "home"}, {"XDG_CACHE_HOME", ""}}).tuning_cache, "");
  EXPECT_EQ(parsed({{"TILEMAMBA_TUNING_CACHE", " t.json "}, {"XDG_CACHE_HOME", "/c"}}).tuning_cache, "t.json");
  EXPECT_EQ(parsed({{"TILEMAMBA_TUNING_CACHE", " "}, {"XDG_CACHE_HOME", "/c"}}).tuning_cache,
            "/c/tilemamba/tuning.json");
}

TEST(Environment, ProofsLieBesideTheTuningCache) {
  EXPECT_EQ(parsed({{"HOME", "/h"}}).proofs, "/h/.cache/tilemamba/proofs.json");
  EXPECT_EQ(parsed({{"TILEMAMBA_TUNING_CACHE", "/d/mine"}}).proofs, "/d/proofs.json");
  EXPECT_EQ(parsed({{"TILEMAMBA_TUNING_CACHE", "mine"}}).proofs, "proofs.json");
  EXPECT_EQ(parsed({}).proofs, "");
}

/// For a process that is started: everything that is set here, one variable changed or added.
TEST(Environment, OfAnotherProcess) {
  const test::Variable set("TILEMAMBA_TEST_ENVIRONMENT", "here");
  const auto has = [](const std::vector<std::string>& all, const std::string& entry) {
    return std::count(all.begin(), all.end(), entry);
  };
  const auto added = environment_with("TILEMAMBA_TEST_OTHER", "x=y");
  EXPECT_EQ(has(added, "TILEMAMBA_TEST_OTHER=x=y"), 1);
  EXPECT_EQ(has(added, "TILEMAMBA_TEST_ENVIRONMENT=here"), 1);
  const auto changed = environment_with("TILEMAMBA_TEST_ENVIRONMENT", "there");
  EXPECT_EQ(has(changed, "TILEMAMBA_TEST_ENVIRONMENT=there"), 1);
  EXPECT_EQ(has(changed, "TILEMAMBA_TEST_ENVIRONMENT=here"), 0);
  EXPECT_EQ(changed.size(), added.size() - 1);
}

TEST(Environment, Unproven) {
  EXPECT_EQ(parsed({}).unproven, Unproven::refused);
  EXPECT_EQ(parsed({{"TILEMAMBA_UNPROVEN", "0"}}).unproven, Unproven::refused);
  EXPECT_EQ(parsed({{"TILEMAMBA_UNPROVEN", " 1 "}}).unproven, Unproven::on_proof);
  EXPECT_EQ(parsed({{"TILEMAMBA_UNPROVEN", "trusted"}}).unproven, Unproven::trusted);
  EXPECT_TRUE(parsed({{"TILEMAMBA_UNPROVEN", "1"}}).warnings.empty());
  const Environment e = parsed({{"TILEMAMBA_UNPROVEN", "yes"}});
  EXPECT_EQ(e.unproven, Unproven::refused);
  ASSERT_EQ(e.warnings.size(), 1u);
  EXPECT_NE(e.warnings[0].find("'yes'"), std::string::npos);
}

TEST(Environment, Verbose) {
  EXPECT_TRUE(parsed({{"TILEMAMBA_VERBOSE", "dispatch"}}).verbose_dispatch);
  EXPECT_TRUE(parsed({{"TILEMAMBA_VERBOSE", " dispatch , "}}).verbose_dispatch);
  EXPECT_FALSE(parsed({{"TILEMAMBA_VERBOSE", "0"}}).verbose_dispatch);
  EXPECT_TRUE(parsed({{"TILEMAMBA_VERBOSE", "0"}}).warnings.empty());
}

/// A word that means nothing is no error, but it is not passed over in silence: the warning has it and what is valid.
TEST(Environment, UnknownWords) {
  const Environment e = parsed({{"TILEMAMBA_VERBOSE", "dispatch,everything"}});
  EXPECT_TRUE(e.verbose_dispatch);
  ASSERT_EQ(e.warnings.size(), 1u);
  for (const char* word : {"TILEMAMBA_VERBOSE", "everything", "dispatch"}) {
    EXPECT_NE(e.warnings[0].find(word), std::string::npos) << e.warnings[0];
  }
  EXPECT_EQ(parsed({{"TILEMAMBA_VERBOSE", "1"}}).warnings.size(), 1u);
}

}  // namespace
}  // namespace tilemamba
