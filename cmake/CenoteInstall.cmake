# cmake --install: the binary, the libraries with their headers, what CMake and pkg-config need to find it, the Python package,
# the systemd units, and manual pages.
include(CMakePackageConfigHelpers)

set(CENOTE_PYTHON_DIR lib/python3/dist-packages CACHE STRING "Where the Python package is installed, under the prefix")
set(CENOTE_SYSTEMD_DIR lib/systemd/system CACHE STRING "Where the systemd unit is installed, under the prefix")
set(CENOTE_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/cenote)

if(TARGET cenote)
  install(TARGETS cenote RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(TARGETS cenote-services cenote-bench RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} OPTIONAL)
endif()

# find_package(cenote) gives cenote::cenote and cenote::indexer: each a library, and the folder of its header.
if(TARGET libcenote)
  set_target_properties(libcenote PROPERTIES EXPORT_NAME cenote)
  set_target_properties(libcenote_indexer PROPERTIES EXPORT_NAME indexer)
  foreach(library libcenote libcenote_indexer)
    target_include_directories(${library} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  endforeach()
  install(TARGETS libcenote libcenote_indexer EXPORT cenote LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT cenote NAMESPACE cenote:: FILE cenoteConfig.cmake DESTINATION ${CENOTE_CMAKE_DIR})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/cenoteConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/cenoteConfigVersion.cmake DESTINATION ${CENOTE_CMAKE_DIR})

  # Relative to the file itself, so that `cmake --install --prefix` may choose another place than the configuration did.
  file(RELATIVE_PATH cenote_pc_prefix /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
  foreach(name cenote cenote_indexer)
    configure_file(${PROJECT_SOURCE_DIR}/cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  endforeach()

  # The Python package finds its own copies without any environment variable.
  install(FILES $<TARGET_FILE:libcenote> DESTINATION ${CENOTE_PYTHON_DIR}/cenote RENAME libcenote.so)
  install(FILES $<TARGET_FILE:libcenote_indexer> DESTINATION ${CENOTE_PYTHON_DIR}/cenote RENAME libcenote_indexer.so)
endif()
install(FILES client/cenote.h services/indexer/library/cenote_indexer.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} OPTIONAL)
install(FILES python/cenote_program.py DESTINATION ${CENOTE_PYTHON_DIR} OPTIONAL)
install(DIRECTORY python/cenote DESTINATION ${CENOTE_PYTHON_DIR} OPTIONAL
  FILES_MATCHING PATTERN "*.py" PATTERN "*.pyi" PATTERN "py.typed" PATTERN "__pycache__" EXCLUDE)

# With the program's path below the prefix of `cmake --install`, which may be another than the configuration's.
foreach(name cenote cenote-manager)
  install(CODE "
    file(READ \"${PROJECT_SOURCE_DIR}/scripts/${name}.service\" unit)
    string(REPLACE /usr/bin/cenote \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}/cenote\" unit \"\${unit}\")
    file(WRITE \"${PROJECT_BINARY_DIR}/${name}.service\" \"\${unit}\")")
  install(FILES ${PROJECT_BINARY_DIR}/${name}.service DESTINATION ${CENOTE_SYSTEMD_DIR})
endforeach()
install(DIRECTORY packaging/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man8)
install(FILES packaging/completion/cenote DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES scripts/cenote.sysusers DESTINATION lib/sysusers.d RENAME cenote.conf)
