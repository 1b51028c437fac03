# `cmake --install`: libraries, headers, the command, and the package that find_package(vdnn) reads. The prefix
# may be moved afterwards. Libraries are installed where they are defined (VdnnTargets.cmake).

include(CMakePackageConfigHelpers)

set(package_directory ${CMAKE_INSTALL_LIBDIR}/cmake/vdnn)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/vdnnConfig.cmake.in ${PROJECT_BINARY_DIR}/vdnnConfig.cmake
  INSTALL_DESTINATION ${package_directory}
  NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may change what a program that links us sees.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/vdnnConfigVersion.cmake COMPATIBILITY SameMinorVersion)

install(FILES ${PROJECT_BINARY_DIR}/vdnnConfig.cmake ${PROJECT_BINARY_DIR}/vdnnConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindOneDNN.cmake
        DESTINATION ${package_directory})
install(EXPORT vdnnTargets NAMESPACE vdnn:: DESTINATION ${package_directory})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/vdnn DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h")
if(TARGET vdnn_command)
  install(TARGETS vdnn_command)
endif()
