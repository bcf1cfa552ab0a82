# SPDX-License-Identifier: Apache-2.0
# Read by ctest, before it runs anything: makes a test of each body of a GoogleTest program (`name`, `program`, `emulator`,
# `targets`, `reports`, `environment` are set by whoever includes this; see tilemamba_add_tests in tests/CMakeLists.txt).
#
# A body is stamped for every target and is one test all the same: its targets are compared with the same answers, which cost
# more than the calls and are worked out once a process. The program's own report, in `reports`, counts each target.

if(NOT EXISTS "${program}")
  add_test(${name}.is_built "${program}")
  return()
endif()
execute_process(COMMAND ${emulator} "${program}" --gtest_list_tests OUTPUT_VARIABLE listing RESULT_VARIABLE code)
if(NOT code STREQUAL "0")
  add_test(${name}.lists_its_tests ${emulator} "${program}" --gtest_list_tests)
  return()
endif()

# "On/Suite." then "  Body/target  # GetParam() = ..."; without parameters "Suite." then "  Body".
string(REGEX REPLACE " *#[^\n]*" "" listing "${listing}")
string(REGEX MATCHALL "[^\n]+" listing "${listing}")
set(bodies "")
set(suite "")
foreach(line IN LISTS listing)
  if(line MATCHES "^([A-Za-z0-9_/]+)\\.$")
    set(suite "${CMAKE_MATCH_1}")
    string(REGEX REPLACE "^[^/]*/" "" suite_name "${suite}")
  elseif(line MATCHES "^  ([A-Za-z0-9_]+)(/.*)?$")
    set(body "${suite_name}.${CMAKE_MATCH_1}")
    set(filter "${suite}.${CMAKE_MATCH_1}")
    if(CMAKE_MATCH_2)
      string(APPEND filter "/${targets}")
    endif()
    if(NOT body MATCHES "DISABLED_")
      list(APPEND bodies "${body}")
      list(APPEND filters_of_${body} "${filter}")
    endif()
  endif()
endforeach()
list(REMOVE_DUPLICATES bodies)
foreach(body IN LISTS bodies)
  list(REMOVE_DUPLICATES filters_of_${body})
  list(JOIN filters_of_${body} ":" filter)
  unset(filters_of_${body})
  add_test(
    ${body} ${emulator} "${program}" "--gtest_filter=${filter}" "--gtest_output=xml:${reports}/${body}.xml" --gtest_brief=1
  )
  set_tests_properties(${body} PROPERTIES TIMEOUT 1800 ENVIRONMENT "${environment}")
endforeach()
