# Functions that declare the targets of a folder, so that each folder's CMakeLists.txt is only a list.

# "core" means cenote::core; a name with "::" or a plain library is taken as it is.
function(cenote_names_to_targets out)
  set(targets)
  foreach(name IN LISTS ARGN)
    if(name MATCHES "::|^-|^/")
      list(APPEND targets ${name})
    else()
      list(APPEND targets cenote::${name})
    endif()
  endforeach()
  set(${out} ${targets} PARENT_SCOPE)
endfunction()

# Leaves out sources that are not there, with a warning that scripts/build (-Werror=dev) takes for an error.
function(cenote_existing_sources out)
  set(sources)
  foreach(source IN LISTS ARGN)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} OUTPUT_VARIABLE file)
    if(EXISTS ${file})
      list(APPEND sources ${source})
    else()
      message(AUTHOR_WARNING "${file} does not exist")
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    endif()
  endforeach()
  set(${out} ${sources} PARENT_SCOPE)
endfunction()

# A target links only to what was declared before it: the order of add_subdirectory() is the order of the folders.
function(cenote_check_order name)
  foreach(target IN LISTS ARGN)
    if(target MATCHES "^cenote::" AND NOT TARGET ${target})
      message(FATAL_ERROR "cenote_library(${name}) links ${target}, which is declared below it or not at all: "
        "a folder links only to folders above it (see the order in CMakeLists.txt)")
    endif()
  endforeach()
endfunction()

# About CMAKE_UNITY_BUILD_BATCH_SIZE sources a unit, each unit as many as the others: a small last one would read all headers once more.
function(cenote_even_units target count)
  math(EXPR units "(2 * ${count} + ${CMAKE_UNITY_BUILD_BATCH_SIZE}) / (2 * ${CMAKE_UNITY_BUILD_BATCH_SIZE})")
  if(units GREATER 0)
    math(EXPR size "(${count} + ${units} - 1) / ${units}")
    set_target_properties(${target} PROPERTIES UNITY_BUILD_BATCH_SIZE ${size})
  else()
    set_target_properties(${target} PROPERTIES UNITY_BUILD_BATCH_SIZE 0) # all in one
  endif()
endfunction()

# Compiles all sources of a target for size, but the ones named. Those stand alone: neither a unity source nor a
# precompiled header can be compiled in two ways.
function(cenote_compile_for_size target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-Os>)
  set_source_files_properties(${ARGN} PROPERTIES
    COMPILE_OPTIONS $<$<CONFIG:Release>:-O3> SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON)
endfunction()

# cenote_library(NAME SOURCES a.cpp … [DEPENDS core fmt::fmt …] [PRIVATE_DEPENDS …] [PCH <a.hpp> …] [TEMPLATES] [COLD] [HOT a.cpp …])
# makes the static library cenote_NAME, alias cenote::NAME. Without sources it is header only.
# TEMPLATES: most of its compile time is that of templates (anything with CAF in it).
# COLD: its code runs once a start, a command or a page. A release compiles it for size, in two thirds of the time.
# HOT: sources of a COLD library that work on millions of items.
function(cenote_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "COLD;TEMPLATES" "" "SOURCES;DEPENDS;PRIVATE_DEPENDS;PCH;HOT")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "cenote_library(${name}): unknown arguments ${arg_UNPARSED_ARGUMENTS}")
  endif()
  cenote_existing_sources(arg_SOURCES ${arg_SOURCES})
  cenote_names_to_targets(depends ${arg_DEPENDS})
  cenote_names_to_targets(private_depends ${arg_PRIVATE_DEPENDS})
  cenote_check_order(${name} ${depends} ${private_depends})
  set(target cenote_${name})
  if(arg_SOURCES)
    add_library(${target} STATIC ${arg_SOURCES})
    target_link_libraries(${target} PRIVATE cenote::flags ${private_depends} PUBLIC ${depends})
    target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR})
    list(LENGTH arg_SOURCES count)
    list(LENGTH arg_HOT hot)
    math(EXPR count "${count} - ${hot}")
    cenote_even_units(${target} ${count})
    if(arg_PCH)
      target_precompile_headers(${target} PRIVATE ${arg_PCH})
    endif()
    if(arg_TEMPLATES)
      target_compile_options(${target} PRIVATE ${CENOTE_TEMPLATE_OPTIONS})
    endif()
    if(arg_COLD)
      cenote_compile_for_size(${target} ${arg_HOT})
    endif()
  else()
    add_library(${target} INTERFACE)
    target_link_libraries(${target} INTERFACE ${depends} ${private_depends})
    target_include_directories(${target} INTERFACE ${PROJECT_SOURCE_DIR})
  endif()
  add_library(cenote::${name} ALIAS ${target})
endfunction()

# cenote_test(NAME SOURCES a_test.cpp … [DEPENDS memory …] [COMPUTES] [NO_ASAN] [TSAN] [TSAN_SUPPRESS] [TIMEOUT s]
# [PCH <a.hpp> …])
# makes one Boost.Test program and registers it. Its cases are written to test-results/NAME.xml in the build folder.
# COMPUTES: the time is in the tests' own code, which is optimised as the product is; others are compiled in half the time
# without. (The product that they link is optimised in either case.)
# NO_ASAN: plain decisions without memory or input of their own; the address sanitizer sees it with --full only.
# TSAN: also run under the thread sanitizer (label tsan); TSAN_SUPPRESS: with scripts/tsan.supp (anything with CAF in it).
function(cenote_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "TSAN;TSAN_SUPPRESS;COMPUTES;NO_ASAN" "TIMEOUT" "SOURCES;DEPENDS;PCH")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "cenote_test(${name}): unknown arguments ${arg_UNPARSED_ARGUMENTS}")
  endif()
  cenote_existing_sources(arg_SOURCES ${arg_SOURCES})
  if(NOT arg_SOURCES)
    return()
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 600)
  endif()
  if(CMAKE_CROSSCOMPILING)  # an emulator runs it
    math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 10")
  endif()
  cenote_names_to_targets(depends ${arg_DEPENDS})
  add_executable(${name} ${arg_SOURCES})
  list(LENGTH arg_SOURCES count)
  cenote_even_units(${name} ${count})
  target_link_libraries(${name} PRIVATE cenote::flags cenote::test_main ${depends})
  target_compile_options(${name} PRIVATE ${CENOTE_TEST_CHECKS})
  if(NOT arg_COMPUTES)
    target_compile_options(${name} PRIVATE ${CENOTE_TEST_OPTIONS})
  endif()
  if(arg_PCH OR arg_COMPUTES)
    target_precompile_headers(${name} PRIVATE <boost/test/unit_test.hpp> ${arg_PCH})
  else()
    target_precompile_headers(${name} REUSE_FROM cenote_test_headers)
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/bin)
  add_dependencies(cenote_tests ${name})

  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/test-results)
  add_test(NAME ${name}
    COMMAND ${name} --logger=HRF,error,stdout:JUNIT,error,${PROJECT_BINARY_DIR}/test-results/${name}.xml --report_level=no --color_output=no)
  set(labels unit)
  set(tsan_options "second_deadlock_stack=1 exitcode=66 die_after_fork=0")  # children of tests make threads
  if(NOT arg_NO_ASAN)
    list(APPEND labels asan)
    add_dependencies(cenote_asan_tests ${name})
  endif()
  if(arg_TSAN OR arg_TSAN_SUPPRESS)
    list(APPEND labels tsan)
    add_dependencies(cenote_tsan_tests ${name})
  endif()
  if(arg_TSAN_SUPPRESS)
    string(APPEND tsan_options " suppressions=${PROJECT_SOURCE_DIR}/scripts/tsan.supp")
  endif()
  set_tests_properties(${name} PROPERTIES
    LABELS "${labels}" TIMEOUT ${arg_TIMEOUT}
    ENVIRONMENT "TSAN_OPTIONS=${tsan_options};UBSAN_OPTIONS=print_stacktrace=1;ASAN_OPTIONS=detect_stack_use_after_return=0")
  if(CMAKE_CROSSCOMPILING)  # see tests/support/native_kernel.hpp
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT CENOTE_EMULATED=1)
  endif()
endfunction()
