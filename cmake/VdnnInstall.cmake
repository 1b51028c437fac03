# `cmake --install`: libraries, headers, the command, and the package that find_package(vdnn) reads. The prefix
# may be moved afterwards. Libraries are installed where they are defined (VdnnTargets.cmake).

include(CMakePackageConfigHelpers)

set(package_directory ${CMAKE_INSTALL_LIBDIR}/cmake/vdnn)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/vdnnConfig.cmake.in ${PROJECT_BINARY_DIR}/vdnnConfig.cmake
  INSTALL_DESTINATION ${package_directory}
  NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may change the interface for programs that link vdnn.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/vdnnConfigVersion.cmake COMPATIBILITY SameMinorVersion)

install(FILES ${PROJECT_BINARY_DIR}/vdnnConfig.cmake ${PROJECT_BINARY_DIR}/vdnnConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindOneDNN.cmake
        DESTINATION ${package_directory})
install(EXPORT vdnnTargets NAMESPACE vdnn:: DESTINATION ${package_directory})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/vdnn DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h")
install(FILES ${PROJECT_SOURCE_DIR}/CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
if(TARGET vdnn_command)
  vdnn_install_target(vdnn_command)
endif()
