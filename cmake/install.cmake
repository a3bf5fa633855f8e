# Headers, both libraries, weir.pc and the CMake package; and the same for each component that is built.
include(CMakePackageConfigHelpers)
set(component_headers "compression|tls|tls_context|tls_select") # which come with their component alone

install(TARGETS weir_static weir_shared EXPORT weir-targets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/weir DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h"
        REGEX "/(${component_headers})\\.h$" EXCLUDE)

# The prefix is where weir.pc is found, so that it may be chosen at install time and moved later.
file(RELATIVE_PATH pc_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
set(pc_private)
if(WEIR_HAS_URING)
    string(APPEND pc_private " -luring")
endif()
if(WEIR_HAS_CARES)
    string(APPEND pc_private " -lcares")
endif()
configure_file(cmake/weir.pc.in weir.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/weir.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/weir)
install(EXPORT weir-targets NAMESPACE weir:: DESTINATION ${package_dir})
configure_package_config_file(cmake/weir-config.cmake.in weir-config.cmake
                              INSTALL_DESTINATION ${package_dir})

get_property(components GLOBAL PROPERTY WEIR_COMPONENTS)
foreach(component ${components})
    install(TARGETS weir_${component}_static weir_${component}_shared EXPORT weir-${component}-targets
            ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
            LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(EXPORT weir-${component}-targets NAMESPACE weir:: DESTINATION ${package_dir})
    get_property(headers GLOBAL PROPERTY WEIR_COMPONENT_HEADERS_${component})
    list(TRANSFORM headers PREPEND include/weir/)
    install(FILES ${headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/weir)
    get_property(pc_libraries GLOBAL PROPERTY WEIR_COMPONENT_NEEDS_${component})
    list(TRANSFORM pc_libraries PREPEND -l)
    list(JOIN pc_libraries " " pc_libraries)
    configure_file(cmake/weir-component.pc.in weir-${component}.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/weir-${component}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()

write_basic_package_version_file(weir-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/weir-config.cmake ${PROJECT_BINARY_DIR}/weir-config-version.cmake
        DESTINATION ${package_dir})
