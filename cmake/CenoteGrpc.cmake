# gRPC and Protocol Buffers, where they are installed: CENOTE_HAS_GRPC, cenote::grpc_runtime and cenote_protocol().
option(CENOTE_GRPC "Build what speaks gRPC, where gRPC and Protocol Buffers are installed" ON)

set(CENOTE_HAS_GRPC OFF)
add_custom_target(cenote_protocols) # all generated sources

if(CENOTE_GRPC)
  find_path(GRPC_INCLUDE_DIR grpcpp/grpcpp.h)
  find_path(PROTOBUF_INCLUDE_DIR google/protobuf/message.h)
  find_library(GRPCXX_LIBRARY grpc++)
  find_library(GRPC_LIBRARY grpc)
  find_library(GPR_LIBRARY gpr)
  find_library(ABSL_SYNCHRONIZATION_LIBRARY absl_synchronization) # gRPC's headers lock with it
  find_library(PROTOBUF_LIBRARY protobuf)
  find_program(PROTOC_PROGRAM protoc)
  find_program(GRPC_CPP_PLUGIN_PROGRAM grpc_cpp_plugin)
  if(GRPC_INCLUDE_DIR AND PROTOBUF_INCLUDE_DIR AND GRPCXX_LIBRARY AND GRPC_LIBRARY AND GPR_LIBRARY AND PROTOBUF_LIBRARY
     AND ABSL_SYNCHRONIZATION_LIBRARY AND PROTOC_PROGRAM AND GRPC_CPP_PLUGIN_PROGRAM)
    set(CENOTE_HAS_GRPC ON)
  else()
    message(STATUS "gRPC is not installed: what speaks it is left out (scripts/setup installs it)")
  endif()
endif()

if(CENOTE_HAS_GRPC)
  add_library(cenote_grpc_runtime INTERFACE)
  add_library(cenote::grpc_runtime ALIAS cenote_grpc_runtime)
  target_include_directories(cenote_grpc_runtime SYSTEM INTERFACE ${GRPC_INCLUDE_DIR} ${PROTOBUF_INCLUDE_DIR})
  target_link_libraries(cenote_grpc_runtime INTERFACE ${GRPCXX_LIBRARY} ${GRPC_LIBRARY} ${GPR_LIBRARY}
    ${ABSL_SYNCHRONIZATION_LIBRARY} ${PROTOBUF_LIBRARY} Threads::Threads)
endif()

# cenote_protocol(NAME file.proto …) makes the library cenote_NAME, alias cenote::NAME, of the messages and services of
# files of the present folder, which may import one another by their paths from the root; a target that links it includes
# "path/of/the/folder/file.grpc.pb.h". Generated code has no warnings, and its headers are the system's.
function(cenote_protocol name)
  set(root ${PROJECT_BINARY_DIR}/protocols)
  set(paths)
  set(files)
  set(sources)
  set(headers)
  foreach(file IN LISTS ARGN)
    file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/${file})
    string(REGEX REPLACE "\\.proto$" "" stem ${path})
    list(APPEND paths ${path})
    list(APPEND files ${CMAKE_CURRENT_SOURCE_DIR}/${file})
    list(APPEND sources ${root}/${stem}.pb.cc ${root}/${stem}.grpc.pb.cc)
    list(APPEND headers ${root}/${stem}.pb.h ${root}/${stem}.grpc.pb.h)
  endforeach()
  file(MAKE_DIRECTORY ${root})
  add_custom_command(OUTPUT ${sources} ${headers}
    COMMAND ${PROTOC_PROGRAM} --proto_path=${PROJECT_SOURCE_DIR} --cpp_out=${root} --grpc_out=${root}
      --plugin=protoc-gen-grpc=${GRPC_CPP_PLUGIN_PROGRAM} ${paths}
    DEPENDS ${files}
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
    COMMENT "Generating C++ of ${name}"
    VERBATIM)
  set(target cenote_${name})
  add_custom_target(${target}_sources DEPENDS ${sources} ${headers})
  add_dependencies(cenote_protocols ${target}_sources)
  add_library(${target} STATIC ${sources})
  add_dependencies(${target} ${target}_sources)
  set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)
  target_compile_options(${target} PRIVATE -w)
  target_include_directories(${target} SYSTEM PUBLIC ${root})
  target_link_libraries(${target} PUBLIC cenote::grpc_runtime)
  add_library(cenote::${name} ALIAS ${target})
endfunction()
