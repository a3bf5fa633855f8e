# Headers, both libraries, weir.pc and the CMake package.
include(CMakePackageConfigHelpers)

install(TARGETS weir_static weir_shared EXPORT weir-targets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/weir DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")

# The prefix is where weir.pc is found, so that it may be chosen at install time and moved later.
file(RELATIVE_PATH pc_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
set(pc_uring)
if(WEIR_HAS_URING)
    set(pc_uring " -luring")
endif()
configure_file(cmake/weir.pc.in weir.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/weir.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/weir)
install(EXPORT weir-targets NAMESPACE weir:: DESTINATION ${package_dir})
configure_package_config_file(cmake/weir-config.cmake.in weir-config.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(weir-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/weir-config.cmake ${PROJECT_BINARY_DIR}/weir-config-version.cmake
        DESTINATION ${package_dir})
