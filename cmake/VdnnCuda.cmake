# CUDA and its libraries, each where it is found (VDNN_CUDA=AUTO without a sanitizer), all (ON) or none (OFF).
#
# Whether the CUDA runtime is built in: VDNN_WITH_CUDA. What needs no toolkit (the driver, and its tests on a fake runtime)
# is built in any case. libcuda is never linked, the runtime statically: what is built starts where no driver is.

set(VDNN_CUDA_TOOLKIT_VERSION 12.5)  # has cudaGetDriverEntryPointByVersion
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
  message(FATAL_ERROR "VDNN_CUDA is '${VDNN_CUDA}': AUTO, ON or OFF")
endif()
if(VDNN_WITH_CUDA)
  message(STATUS "CUDA runtime: ${CUDAToolkit_VERSION}")
else()
  message(STATUS "CUDA runtime: none")
endif()

if(VDNN_CUDA STREQUAL "ON")
  find_package(CudnnFrontend 1.23 REQUIRED)
elseif(VDNN_CUDA STREQUAL "AUTO" AND NOT VDNN_SANITIZE)
  find_package(CudnnFrontend 1.23)
endif()
