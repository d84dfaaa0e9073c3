# Target check-headers: each header compiles alone (the C ABI header also as C).
file(GLOB_RECURSE cenote_headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
  core/*.hpp device/*.hpp config/*.hpp memory/*.hpp client/*.hpp tiers/*.hpp simulation/*.hpp transport/*.hpp keeper/*.hpp actors/*.hpp worker/*.hpp commands/*.hpp tests/*.hpp client/*.h)
list(REMOVE_ITEM cenote_headers tests/unit/services/manager/registry/registry_world.hpp)  # it includes generated code
if(NOT CENOTE_HAS_GRPC)
  list(REMOVE_ITEM cenote_headers transport/grpc/server_call.hpp)
endif()

set(cenote_header_warnings -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror -DXXH_INLINE_ALL=)
if(CENOTE_SANITIZER STREQUAL "thread")
  list(APPEND cenote_header_warnings -DCENOTE_TSAN=1)
endif()
set(cenote_header_stamps)

function(cenote_check_header header language standard compiler)
  string(REPLACE "/" "_" flat ${header}.${language})
  set(stamp ${PROJECT_BINARY_DIR}/check-headers/${flat}.stamp)
  add_custom_command(OUTPUT ${stamp}
    COMMAND ${compiler} -x ${language} -std=${standard} ${cenote_header_warnings} -I${PROJECT_SOURCE_DIR} -I${XXHASH_INCLUDE_DIR}
      -fsyntax-only -include ${PROJECT_SOURCE_DIR}/${header} -MMD -MF ${stamp}.d -MT ${stamp} /dev/null
    COMMAND ${CMAKE_COMMAND} -E touch ${stamp}
    DEPENDS ${PROJECT_SOURCE_DIR}/${header}
    DEPFILE ${stamp}.d
    COMMENT "Checking ${header} alone (${standard})"
    VERBATIM)
  list(APPEND cenote_header_stamps ${stamp})
  set(cenote_header_stamps ${cenote_header_stamps} PARENT_SCOPE)
endfunction()

file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/check-headers)
foreach(header IN LISTS cenote_headers)
  cenote_check_header(${header} c++ c++23 ${CMAKE_CXX_COMPILER})
  if(header MATCHES "\\.h$")
    cenote_check_header(${header} c c11 ${CMAKE_C_COMPILER})
  endif()
endforeach()
add_custom_target(check-headers DEPENDS ${cenote_header_stamps})
