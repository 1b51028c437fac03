# CUDA and its libraries. AUTO (without a sanitizer) uses those that are found, ON requires all, and OFF uses none.
#
# VDNN_WITH_CUDA tells whether the CUDA runtime is built in. Parts that need no toolkit (the `cuda` driver, and its
# tests on a fake runtime) are built in any case. The runtime is linked statically and libcuda is never linked, so that
# programs start on machines without NVIDIA's driver.

# If no toolkit is installed, uses the one that `scripts/setup --cuda` has put beside the project.
file(GLOB vdnn_cuda_wheels ${PROJECT_SOURCE_DIR}/build/python/lib/python3*/site-packages/nvidia)
if(vdnn_cuda_wheels AND NOT CUDAToolkit_ROOT)
  find_program(VDNN_NVCC nvcc HINTS ENV CUDA_PATH ENV CUDAToolkit_ROOT /usr/local/cuda PATH_SUFFIXES bin)
  mark_as_advanced(VDNN_NVCC)
  if(NOT VDNN_NVCC)
    set(CUDAToolkit_ROOT ${vdnn_cuda_wheels}/cu13)
  endif()
endif()

# vdnn_find_at_run_time(target library): lets programs that link the target open the library at run time, by adding its folder
# to their rpath if it is in build/python.
function(vdnn_find_at_run_time target library)
  if(vdnn_cuda_wheels AND library MATCHES "^${vdnn_cuda_wheels}/")
    get_filename_component(folder ${library} DIRECTORY)
    target_link_options(${target} INTERFACE LINKER:-rpath,${folder})
  endif()
endfunction()

set(VDNN_CUDA_TOOLKIT_VERSION 12.0)  # the first with cudaStreamGetId
if(VDNN_CUDA STREQUAL "AUTO")
  set(VDNN_WITH_CUDA FALSE)
  if(NOT VDNN_SANITIZE)
    find_package(CUDAToolkit ${VDNN_CUDA_TOOLKIT_VERSION} QUIET)
    set(VDNN_WITH_CUDA ${CUDAToolkit_FOUND})
  endif()
elseif(VDNN_CUDA STREQUAL "ON")
  find_package(CUDAToolkit ${VDNN_CUDA_TOOLKIT_VERSION} REQUIRED)
  set(VDNN_WITH_CUDA TRUE)
elseif(VDNN_CUDA STREQUAL "OFF")
  set(VDNN_WITH_CUDA FALSE)
else()
  message(FATAL_ERROR "VDNN_CUDA is '${VDNN_CUDA}'; it must be AUTO, ON or OFF")
endif()
if(VDNN_WITH_CUDA)
  # Machine code for each architecture, and PTX of the last one for later GPUs.
  set(VDNN_CUDA_ARCHITECTURES "" CACHE STRING "Architectures to build kernels for, for example 80;90; empty: all from 75 on")
  if(VDNN_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES ${VDNN_CUDA_ARCHITECTURES})
  elseif(CUDAToolkit_VERSION VERSION_LESS 12.8)
    set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 86-real 89-real 90)
  else()
    set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 86-real 89-real 90-real 100-real 120)
  endif()
  if(NOT CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
  endif()
  if(NOT CMAKE_CUDA_HOST_COMPILER)
    set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
  endif()
  enable_language(CUDA)
  # CMake before 3.26 does not know that nvcc supports C++20.
  foreach(dialect STANDARD EXTENSION)
    if(NOT CMAKE_CUDA20_${dialect}_COMPILE_OPTION)
      set(CMAKE_CUDA20_${dialect}_COMPILE_OPTION -std=c++20)
    endif()
  endforeach()
  message(STATUS "CUDA runtime: ${CUDAToolkit_VERSION}")
else()
  message(STATUS "CUDA runtime: none")
endif()

if(VDNN_CUDA STREQUAL "ON")
  find_package(CudnnFrontend 1.23 REQUIRED)
  find_package(Nccl 2.18 REQUIRED)
elseif(VDNN_CUDA STREQUAL "AUTO" AND NOT VDNN_SANITIZE)
  find_package(CudnnFrontend 1.23)
  if(VDNN_WITH_CUDA)
    find_package(Nccl 2.18)
  endif()
endif()
