# The HTTP library of the vdnn command: cpp-httplib, either compiled, as in Debian's libcpp-httplib-dev, or as one header,
# as its project distributes it. Defines CppHttplib::CppHttplib.
#
# The classes of the header depend on macros. A compiled library requires the macros with which it was compiled, and
# only its pkg-config file lists these. This module reads that file itself, because a machine may lack pkg-config, and
# the library may have been moved.
find_path(CppHttplib_INCLUDE_DIR httplib.h)
find_library(CppHttplib_LIBRARY cpp-httplib)
set(vdnn_needed CppHttplib_INCLUDE_DIR)
if(CppHttplib_LIBRARY)
  get_filename_component(vdnn_folder ${CppHttplib_LIBRARY} DIRECTORY)
  find_file(CppHttplib_PKG_CONFIG_FILE cpp-httplib.pc HINTS ${vdnn_folder}/pkgconfig NO_DEFAULT_PATH)
  unset(vdnn_folder)
  list(APPEND vdnn_needed CppHttplib_PKG_CONFIG_FILE)
endif()
mark_as_advanced(CppHttplib_INCLUDE_DIR CppHttplib_LIBRARY CppHttplib_PKG_CONFIG_FILE)
if(CppHttplib_INCLUDE_DIR)
  file(STRINGS ${CppHttplib_INCLUDE_DIR}/httplib.h vdnn_line REGEX "define CPPHTTPLIB_VERSION ")
  string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" CppHttplib_VERSION "${vdnn_line}")
  unset(vdnn_line)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CppHttplib
  REQUIRED_VARS ${vdnn_needed} VERSION_VAR CppHttplib_VERSION)
unset(vdnn_needed)
if(CppHttplib_FOUND AND NOT TARGET CppHttplib::CppHttplib)
  add_library(CppHttplib::CppHttplib INTERFACE IMPORTED)
  target_include_directories(CppHttplib::CppHttplib INTERFACE ${CppHttplib_INCLUDE_DIR})
  target_link_libraries(CppHttplib::CppHttplib INTERFACE Threads::Threads)
  if(CppHttplib_LIBRARY)
    target_link_libraries(CppHttplib::CppHttplib INTERFACE ${CppHttplib_LIBRARY})
    file(STRINGS ${CppHttplib_PKG_CONFIG_FILE} vdnn_line REGEX "^Cflags:")
    string(REGEX MATCHALL "-D[^ ]+" vdnn_macros "${vdnn_line}")
    target_compile_definitions(CppHttplib::CppHttplib INTERFACE ${vdnn_macros})
    unset(vdnn_line)
    unset(vdnn_macros)
  endif()
endif()
