# NCCL's headers, as the target Nccl::Nccl. It links nothing: programs open NCCL at run time.
find_path(Nccl_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ${vdnn_cuda_wheels}/nccl/include)
find_library(Nccl_LIBRARY NAMES nccl libnccl.so.2 HINTS ${CUDAToolkit_LIBRARY_DIR} ${vdnn_cuda_wheels}/nccl/lib)
mark_as_advanced(Nccl_INCLUDE_DIR Nccl_LIBRARY)

if(Nccl_INCLUDE_DIR)
  file(STRINGS ${Nccl_INCLUDE_DIR}/nccl.h vdnn_lines REGEX "define NCCL_M(AJOR|INOR) ")
  string(REGEX MATCH "MAJOR ([0-9]+).*MINOR ([0-9]+)" vdnn_lines "${vdnn_lines}")
  set(Nccl_VERSION ${CMAKE_MATCH_1}.${CMAKE_MATCH_2})
  unset(vdnn_lines)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Nccl
  REQUIRED_VARS Nccl_INCLUDE_DIR
  VERSION_VAR Nccl_VERSION)

if(Nccl_FOUND AND NOT TARGET Nccl::Nccl)
  add_library(Nccl::Nccl INTERFACE IMPORTED)
  target_include_directories(Nccl::Nccl INTERFACE ${Nccl_INCLUDE_DIR} ${CUDAToolkit_INCLUDE_DIRS})
  target_link_libraries(Nccl::Nccl INTERFACE ${CMAKE_DL_LIBS})
  vdnn_find_at_run_time(Nccl::Nccl "${Nccl_LIBRARY}")
endif()
