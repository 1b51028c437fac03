# `cpack` makes a Debian package of the files that `cmake --install` installs, under /usr; scripts/package calls it.

set(VDNN_PACKAGE_MAINTAINER "vdnn maintainers <maintainers@vdnn.invalid>" CACHE STRING "Name and address in packages")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME vdnn)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT ${VDNN_PACKAGE_MAINTAINER})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Trains convolutional networks that do not fit in device memory")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "While other layers compute, feature maps are copied to page-locked host memory. They return before the
backward pass needs them (vDNN, MICRO 2016). The package has the command vdnn, its man pages and completions, the
libraries with their headers and CMake package, a stream-ordered caching allocator for CUDA programs, and the stash for
saved tensors of PyTorch programs.")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE zstd)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# Programs that link our static libraries need these packages; the command does not.
set(recommended libdnnl-dev libjpeg-dev libpng-dev libssl-dev zlib1g-dev)
if(VDNN_WITH_MPI)
  list(APPEND recommended libopenmpi-dev)
endif()
list(JOIN recommended ", " CPACK_DEBIAN_PACKAGE_RECOMMENDS)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/VdnnPackageForDebian.cmake)
include(CPack)
