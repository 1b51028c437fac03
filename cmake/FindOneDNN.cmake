# oneDNN as the target OneDNN::OneDNN. oneDNN's own CMake package requires OpenCL, which the CPU engine does not use.
# This module is installed beside vdnnConfig.cmake, since projects that link our static libraries must find oneDNN, too.
find_library(OneDNN_LIBRARY dnnl)
find_path(OneDNN_INCLUDE_DIR dnnl.hpp)
mark_as_advanced(OneDNN_LIBRARY OneDNN_INCLUDE_DIR)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OneDNN
  REQUIRED_VARS OneDNN_LIBRARY OneDNN_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "libdnnl and dnnl.hpp are looked for (on Debian, package libdnnl-dev)")

if(OneDNN_FOUND AND NOT TARGET OneDNN::OneDNN)
  add_library(OneDNN::OneDNN UNKNOWN IMPORTED)
  set_target_properties(OneDNN::OneDNN PROPERTIES
    IMPORTED_LOCATION "${OneDNN_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${OneDNN_INCLUDE_DIR}")
endif()
