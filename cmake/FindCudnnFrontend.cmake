# cudnn-frontend's headers with those of cuDNN, cuBLASLt and CUDA, as the target CudnnFrontend::CudnnFrontend. It links
# nothing: programs open cuDNN at run time. The library must be found nevertheless, since no engines could be planned
# without it.
file(GLOB vdnn_site_packages ${PROJECT_SOURCE_DIR}/build/python/lib/python3*/site-packages)
find_path(CudnnFrontend_INCLUDE_DIR cudnn_frontend.h HINTS ${vdnn_site_packages} PATH_SUFFIXES include)
unset(vdnn_site_packages)
set(vdnn_toolkit /usr/local/cuda)
set(vdnn_cu13 ${vdnn_cuda_wheels}/cu13)
find_path(Cudnn_INCLUDE_DIR cudnn_graph.h HINTS ${vdnn_toolkit}/include ${vdnn_cuda_wheels}/cudnn/include)
# The toolkit's headers come first, even before CMAKE_PREFIX_PATH, since Python's packages may have CUDA's headers without
# those in crt/.
set(vdnn_includes PATHS ${CUDAToolkit_INCLUDE_DIRS} ${vdnn_toolkit}/include ${vdnn_cu13}/include NO_DEFAULT_PATH)
find_path(CudaRuntime_INCLUDE_DIR cuda_runtime_api.h ${vdnn_includes})
find_path(CublasLt_INCLUDE_DIR cublasLt.h ${vdnn_includes})
find_path(Nvrtc_INCLUDE_DIR nvrtc.h ${vdnn_includes})
unset(vdnn_includes)
find_path(CudaRuntime_INCLUDE_DIR cuda_runtime_api.h)
find_path(CublasLt_INCLUDE_DIR cublasLt.h)
find_path(Nvrtc_INCLUDE_DIR nvrtc.h)
find_library(Cudnn_LIBRARY NAMES cudnn libcudnn.so.9 HINTS ${vdnn_toolkit}/lib64 ${vdnn_cuda_wheels}/cudnn/lib)
find_library(CublasLt_LIBRARY NAMES cublasLt libcublasLt.so.13 libcublasLt.so.12
             HINTS ${vdnn_toolkit}/lib64 ${vdnn_cu13}/lib)
unset(vdnn_toolkit)
unset(vdnn_cu13)
mark_as_advanced(CudnnFrontend_INCLUDE_DIR Cudnn_INCLUDE_DIR CublasLt_INCLUDE_DIR CudaRuntime_INCLUDE_DIR Nvrtc_INCLUDE_DIR
                 Cudnn_LIBRARY CublasLt_LIBRARY)

if(CudnnFrontend_INCLUDE_DIR)
  file(STRINGS ${CudnnFrontend_INCLUDE_DIR}/cudnn_frontend_version.h vdnn_lines REGEX "define CUDNN_FRONTEND_M.*_VERSION ")
  string(REGEX MATCH "MAJOR_VERSION ([0-9]+).*MINOR_VERSION ([0-9]+)" vdnn_lines "${vdnn_lines}")
  set(CudnnFrontend_VERSION ${CMAKE_MATCH_1}.${CMAKE_MATCH_2})
  unset(vdnn_lines)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CudnnFrontend
  REQUIRED_VARS CudnnFrontend_INCLUDE_DIR Cudnn_INCLUDE_DIR CublasLt_INCLUDE_DIR CudaRuntime_INCLUDE_DIR Nvrtc_INCLUDE_DIR
                Cudnn_LIBRARY
  VERSION_VAR CudnnFrontend_VERSION
  REASON_FAILURE_MESSAGE
    "cudnn-frontend (scripts/setup puts it into build/python), cuDNN 9, cuBLASLt, NVRTC and CUDA's runtime are looked for")

if(CudnnFrontend_FOUND AND NOT TARGET CudnnFrontend::CudnnFrontend)
  add_library(CudnnFrontend::CudnnFrontend INTERFACE IMPORTED)
  target_include_directories(CudnnFrontend::CudnnFrontend INTERFACE
    ${CudaRuntime_INCLUDE_DIR} ${CudnnFrontend_INCLUDE_DIR} ${Cudnn_INCLUDE_DIR} ${CublasLt_INCLUDE_DIR}
    ${Nvrtc_INCLUDE_DIR})
  # The headers put __FILE__ into messages, which would contain paths of the building machine.
  target_compile_options(CudnnFrontend::CudnnFrontend INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fmacro-prefix-map=${CudnnFrontend_INCLUDE_DIR}/=>)
  target_link_libraries(CudnnFrontend::CudnnFrontend INTERFACE ${CMAKE_DL_LIBS})
  vdnn_find_at_run_time(CudnnFrontend::CudnnFrontend ${Cudnn_LIBRARY})
  vdnn_find_at_run_time(CudnnFrontend::CudnnFrontend "${CublasLt_LIBRARY}")
endif()
