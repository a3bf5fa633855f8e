# How weir's own library and its components are made: each compiled once, for a static and a shared one.

# weir_set_up_objects(TARGET): what all of our objects are compiled with.
function(weir_set_up_objects objects)
    target_include_directories(${objects} PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(${objects} PRIVATE weir_flags)
    set_target_properties(${objects} PROPERTIES POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden)
    if(WEIR_LTO)
        # Exported functions cannot be replaced at run time, so that calls of them can be inlined, too.
        target_compile_options(${objects} PRIVATE -flto=auto -fno-semantic-interposition)
    endif()
endfunction()

# weir_add_static(PREFIX): PREFIX_static of PREFIX_objects. Optimised across files it is one object of plain machine
# code, which any compiler links, and which is optimised once and not by each program that links it.
function(weir_add_static prefix)
    if(NOT WEIR_LTO)
        add_library(${prefix}_static STATIC $<TARGET_OBJECTS:${prefix}_objects>)
        return()
    endif()
    set(optimised ${CMAKE_CURRENT_BINARY_DIR}/${prefix}.o)
    string(TOUPPER "CMAKE_C_FLAGS_${CMAKE_BUILD_TYPE}" flags_of_type)
    separate_arguments(flags UNIX_COMMAND "${CMAKE_C_FLAGS} ${${flags_of_type}}")
    # In one partition statics stay static: otherwise they become global, and may collide with a user's. Each function has
    # a section, so that a program which links with --gc-sections has only those that it needs.
    add_custom_command(OUTPUT ${optimised}
        COMMAND ${CMAKE_C_COMPILER} ${flags} -fPIC -ffunction-sections -fdata-sections -r -nostdlib
                -flto=auto -flto-partition=one -flinker-output=nolto-rel -o ${optimised} $<TARGET_OBJECTS:${prefix}_objects>
        DEPENDS ${prefix}_objects $<TARGET_OBJECTS:${prefix}_objects>
        COMMENT "Optimising ${prefix} across files"
        COMMAND_EXPAND_LISTS VERBATIM)
    add_library(${prefix}_static STATIC ${optimised})
    set_source_files_properties(${optimised} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
    set_target_properties(${prefix}_static PROPERTIES LINKER_LANGUAGE C)
endfunction()

# weir_add_libraries(PREFIX OUTPUT_NAME EXPORT_PREFIX MAP): PREFIX_static and PREFIX_shared of PREFIX_objects. MAP
# is the version script.
function(weir_add_libraries prefix output_name export_prefix map)
    weir_add_static(${prefix})
    add_library(${prefix}_shared SHARED $<TARGET_OBJECTS:${prefix}_objects>)
    set(both ${prefix}_static ${prefix}_shared)
    if(NOT PROJECT_IS_TOP_LEVEL AND NOT WEIR_INSTALL)
        # A project that fetches weir builds what it links.
        set_target_properties(${both} PROPERTIES EXCLUDE_FROM_ALL ON)
    endif()
    # While the major version is 0 a minor one may break the binary interface.
    set_target_properties(${prefix}_shared PROPERTIES
        VERSION ${PROJECT_VERSION}
        SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
        LINK_DEPENDS ${map})
    target_link_options(${prefix}_shared PRIVATE -Wl,--version-script=${map} $<$<BOOL:${WEIR_LTO}>:-flto=auto>)
    if(WEIR_SANITIZE)
        target_link_options(${prefix}_shared PRIVATE -fsanitize=${WEIR_SANITIZE})
    elseif(PROJECT_IS_TOP_LEVEL)
        # Elsewhere the parent's flags may bring in a runtime that only programs link.
        target_link_options(${prefix}_shared PRIVATE -Wl,--no-undefined)
    endif()
    foreach(kind static shared)
        set_target_properties(${prefix}_${kind} PROPERTIES OUTPUT_NAME ${output_name} EXPORT_NAME ${export_prefix}${kind})
        target_include_directories(${prefix}_${kind} PUBLIC
            $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
            $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
        add_library(weir::${export_prefix}${kind} ALIAS ${prefix}_${kind})
    endforeach()
endfunction()

# weir_alias(ALIAS PREFIX): whichever library the user's project asks for.
function(weir_alias alias prefix)
    if(BUILD_SHARED_LIBS)
        add_library(${alias} ALIAS ${prefix}_shared)
    else()
        add_library(${alias} ALIAS ${prefix}_static)
    endif()
endfunction()

# weir_add_component(NAME HEADERS x.h... SOURCES x.c... [MODULES X...] [LIBRARIES m...] [DEFINITIONS X...]): a library
# of its own, libweir-NAME, beside weir. It sees weir's public headers; what else it needs are the pkg-config modules
# that were found as X, and further libraries by name. Its version script is NAME.map, in its folder.
function(weir_add_component name)
    cmake_parse_arguments(arg "" "" "HEADERS;SOURCES;MODULES;LIBRARIES;DEFINITIONS" ${ARGN})
    set(prefix weir_${name})
    add_library(${prefix}_objects OBJECT ${arg_SOURCES})
    weir_set_up_objects(${prefix}_objects)
    target_compile_definitions(${prefix}_objects PRIVATE ${arg_DEFINITIONS})
    set(needed)
    set(directories)
    foreach(module ${arg_MODULES})
        target_include_directories(${prefix}_objects SYSTEM PRIVATE ${${module}_INCLUDE_DIRS})
        list(APPEND needed ${${module}_STATIC_LIBRARIES})
        list(APPEND directories ${${module}_LIBRARY_DIRS})
    endforeach()
    list(APPEND needed ${arg_LIBRARIES})
    # Each once, behind all that need it.
    list(REVERSE needed)
    list(REMOVE_DUPLICATES needed)
    list(REVERSE needed)
    weir_add_libraries(${prefix} weir-${name} ${name}_ ${CMAKE_CURRENT_SOURCE_DIR}/${name}.map)
    foreach(kind static shared)
        target_link_directories(${prefix}_${kind} PRIVATE ${directories})
        target_link_libraries(${prefix}_${kind} PUBLIC weir_${kind} PRIVATE ${needed})
    endforeach()
    weir_alias(weir::${name} ${prefix})
    set_property(GLOBAL APPEND PROPERTY WEIR_COMPONENTS ${name})
    set_property(GLOBAL PROPERTY WEIR_COMPONENT_HEADERS_${name} ${arg_HEADERS})
    set_property(GLOBAL PROPERTY WEIR_COMPONENT_NEEDS_${name} ${needed})
endfunction()
