# SPDX-License-Identifier: Apache-2.0
# Backends: families of the table in backends/CMakeLists.txt, and the loadable modules that a family consists of.

# tilemamba_backend(FAMILY WHAT): one line of the table. Adds the option TILEMAMBA_<FAMILY> and, unless that is OFF, the folder
# backends/<family>. A family without a folder does not exist yet: ON is then an error and AUTO leaves it out.
function(tilemamba_backend family what)
  string(TOUPPER "${family}" upper)
  set(option TILEMAMBA_${upper})
  tilemamba_tristate(${option} "Build the ${family} backend (${what})")
  set(TILEMAMBA_BACKEND_FAMILY "${family}")
  set(TILEMAMBA_BACKEND_WANTED "${${option}}")
  if(NOT ${option})
    tilemamba_leave_out("${option} is OFF" EXPECTED)
  elseif(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/${family}/CMakeLists.txt")
    add_subdirectory(${family})
  else()
    tilemamba_leave_out("this version of tilemamba has no ${family} backend" EXPECTED)
  endif()
endfunction()

# tilemamba_leave_out(REASON [EXPECTED]): for a backend that cannot be built. An error if it was asked for with ON. With AUTO a
# warning, or a mere status line if nobody could expect the backend here.
function(tilemamba_leave_out reason)
  string(TOUPPER "${TILEMAMBA_BACKEND_FAMILY}" upper)
  if(TILEMAMBA_BACKEND_WANTED STREQUAL "ON")
    message(FATAL_ERROR "TILEMAMBA_${upper} is ON, but ${reason}")
  endif()
  if("${ARGN}" STREQUAL "EXPECTED")
    message(STATUS "${upper} is left out: ${reason}")
  else()
    message(WARNING "${upper} is left out: ${reason}")
  endif()
  tilemamba_summary("backend ${TILEMAMBA_BACKEND_FAMILY}" "left out: ${reason}")
endfunction()

# tilemamba_add_module(NAME MEMBERS name... SOURCES file... [LINK library...] [OPTIONS flag...] [CPU_LEVEL level]
#                      [FOR_TESTS folder])
#
# One backend module: the target tilemamba_backend_<name> and the file tilemamba_backend_<name>.so, which the library loads from
# <folder of libtilemamba>/tilemamba. It shows a single symbol, tilemamba_backend_module, and does not link to libtilemamba:
# of this project it uses headers only. FOR_TESTS puts it into a folder under build/tests instead and does not install it.
# MEMBERS are the backends in it that the machine that builds can also run: the tests insist on each of them.
#
# A module is built for the target's baseline instruction set. With CPU_LEVEL it is one of several for the same backend, each built
# for a level of the CPU with the flags in OPTIONS: target and file carry the level's name.
function(tilemamba_add_module name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "FOR_TESTS;CPU_LEVEL" "MEMBERS;SOURCES;LINK;OPTIONS")
  set(target tilemamba_backend_${name})
  if(arg_CPU_LEVEL)
    string(APPEND target ".${arg_CPU_LEVEL}")
  endif()
  add_library(${target} MODULE ${arg_SOURCES})
  tilemamba_target(${target})
  target_compile_definitions(${target} PRIVATE TILEMAMBA_CPU_LEVEL="${arg_CPU_LEVEL}")
  set_target_properties(${target} PROPERTIES PREFIX "" SUFFIX ".so")

  # Not -ffast-math: what becomes of a NaN or an infinity is part of the operation's definition. Allowed is what changes no
  # value: nobody reads errno or the floating-point exception flags, and not having to keep them lets selects become vector code.
  # Contraction (a*b + c rounded once) is what the products live on. It cannot make bits depend on the company a sequence keeps:
  # every loop over a tile runs over whole vectors, so an element takes the same instructions wherever it stands.
  target_compile_options(${target} PRIVATE -fno-math-errno -fno-trapping-math -ffp-contract=fast)
  if(NOT TILEMAMBA_SANITIZE)
    target_compile_options(${target} PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O3>)
    # Whatever is undefined in a module must be known when it is linked, not when a user loads it. (A sanitizer's run time is
    # only there in the executable.)
    target_link_options(${target} PRIVATE -Wl,-z,defs)
  endif()
  # A unique symbol would be shared with every other copy of the same inline code in the process, in spite of all hiding.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fno-gnu-unique>)
  target_compile_options(${target} PRIVATE ${arg_OPTIONS})
  target_link_libraries(${target} PRIVATE ${arg_LINK})
  set(symbols "${PROJECT_SOURCE_DIR}/cmake/module_symbols.map")
  target_link_options(${target} PRIVATE -Wl,--exclude-libs,ALL "-Wl,--version-script=${symbols}")
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS "${symbols}")

  set_property(GLOBAL APPEND PROPERTY TILEMAMBA_ALL_MODULES ${target})
  get_property(members GLOBAL PROPERTY TILEMAMBA_ALL_MEMBERS)
  list(APPEND members ${arg_MEMBERS})
  list(REMOVE_DUPLICATES members)
  set_property(GLOBAL PROPERTY TILEMAMBA_ALL_MEMBERS ${members})
  if(arg_FOR_TESTS)
    set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/${arg_FOR_TESTS}")
  else()
    set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib/tilemamba")
    set_property(GLOBAL APPEND PROPERTY TILEMAMBA_MODULES ${target})
    # Nothing links to a module, so nothing else would build it for a project that only asks for the library.
    add_dependencies(tilemamba ${target})
  endif()
endfunction()
