# SPDX-License-Identifier: Apache-2.0
# GoogleTest for another machine: compiled from its sources, which Debian has in the package googletest.
find_path(GTest_SOURCE_DIR src/gtest-all.cc HINTS /usr/src/googletest/googletest)
mark_as_advanced(GTest_SOURCE_DIR)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(GTest REQUIRED_VARS GTest_SOURCE_DIR)
if(GTest_FOUND AND NOT TARGET GTest::gtest)
  add_library(gtest STATIC "${GTest_SOURCE_DIR}/src/gtest-all.cc")
  target_compile_features(gtest PUBLIC cxx_std_20)
  target_include_directories(gtest SYSTEM PUBLIC "${GTest_SOURCE_DIR}/include" PRIVATE "${GTest_SOURCE_DIR}")
  target_link_libraries(gtest PUBLIC Threads::Threads)
  add_library(GTest::gtest ALIAS gtest)
endif()
