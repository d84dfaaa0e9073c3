# Language, warnings, sanitizers and ccache for every target: cenote::flags.
set(CMAKE_CXX_STANDARD 23)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

add_library(cenote_flags INTERFACE)
add_library(cenote::flags ALIAS cenote_flags)
target_include_directories(cenote_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(cenote_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror
  # With optimisation g++ 12 reports these inside libstdc++ and fmt where nothing is wrong (GCC bugs 105651, 105329);
  # the address sanitizer watches for the real ones.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread>)

# xxhash is used as a header only, wherever it is included.
target_compile_definitions(cenote_flags INTERFACE XXH_INLINE_ALL=)

# No path of this machine in what is built, so that a build in another folder has the same bytes.
# Sanitizers keep their paths: their reports are read where they were built.
if(NOT CENOTE_SANITIZER)
  add_compile_options(-ffile-prefix-map=${PROJECT_SOURCE_DIR}=.)
endif()

set(CMAKE_UNITY_BUILD ${CENOTE_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 12)
if(CENOTE_UNITY) # a class of one source may have members of its unnamed namespace; here the compiler takes it for a header's
  target_compile_options(cenote_flags INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
  # A unit fills the compiler's heap again and again: collecting its garbage only beyond 512 MiB saves a tenth of the time.
  target_compile_options(cenote_flags INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=524288>)
endif()

if(CENOTE_SANITIZER STREQUAL "address")
  # vptr: checks of dynamic types take a fifth of the compile time of actors, whose types are never cast.
  add_compile_options(-fsanitize=address,undefined -fno-sanitize=null,vptr -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
  # These three take 30 % of the compile time of templates. Whoever reads raw bytes keeps them; actors and tests, which
  # send and compare values, are watched for all else.
  set(CENOTE_TEMPLATE_OPTIONS -fno-sanitize=alignment,object-size,pointer-overflow)
elseif(CENOTE_SANITIZER STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
  add_compile_definitions(CENOTE_TSAN=1)
elseif(CENOTE_SANITIZER)
  message(FATAL_ERROR "CENOTE_SANITIZER is '${CENOTE_SANITIZER}'; it can be empty, address or thread")
endif()
if(CENOTE_SANITIZER)
  # Instrumented code makes g++ 12 see paths that do not exist.
  target_compile_options(cenote_flags INTERFACE -Wno-maybe-uninitialized)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Precompiled headers need these two, or nothing is ever found in the cache.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE_PROGRAM})
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
  endif()
endif()
