# cmake --install: the binary, the library with its header, the Python package, the systemd unit.
set(CENOTE_PYTHON_DIR lib/python3/dist-packages CACHE STRING "Where the Python package is installed, under the prefix")
set(CENOTE_SYSTEMD_DIR lib/systemd/system CACHE STRING "Where the systemd unit is installed, under the prefix")

if(TARGET cenote)
  install(TARGETS cenote RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(TARGET libcenote)
  install(TARGETS libcenote LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  # The package finds its own copy without any environment variable.
  install(FILES $<TARGET_FILE:libcenote> DESTINATION ${CENOTE_PYTHON_DIR}/cenote RENAME libcenote.so)
endif()
install(FILES client/cenote.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} OPTIONAL)
install(DIRECTORY python/cenote DESTINATION ${CENOTE_PYTHON_DIR} OPTIONAL
  FILES_MATCHING PATTERN "*.py" PATTERN "*.pyi" PATTERN "py.typed" PATTERN "__pycache__" EXCLUDE)

file(READ ${PROJECT_SOURCE_DIR}/scripts/cenote.service cenote_unit)
string(REPLACE "/usr/bin/cenote" "${CMAKE_INSTALL_FULL_BINDIR}/cenote" cenote_unit "${cenote_unit}")
file(WRITE ${PROJECT_BINARY_DIR}/cenote.service "${cenote_unit}")
install(FILES ${PROJECT_BINARY_DIR}/cenote.service DESTINATION ${CENOTE_SYSTEMD_DIR})
install(FILES scripts/cenote.sysusers DESTINATION lib/sysusers.d RENAME cenote.conf)
