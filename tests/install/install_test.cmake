# One case of the installation tests; see CMakeLists.txt in this folder. Everything happens under WORK, which
# is outside the tree, so that only installed files can be found.

set(prefix ${WORK}/moved/prefix)

# run(OUTPUT COMMAND...): runs the command. If the command fails, the test fails with the command's output.
function(run output)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE text ERROR_VARIABLE text RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\nended with ${status}:\n${text}")
  endif()
  set(${output} "${text}" PARENT_SCOPE)
endfunction()

# expect_failure(PATTERN COMMAND...): the command must fail, and its output, joined to one line, must match.
# Leaves the pattern's first two groups in CMAKE_MATCH_1 and CMAKE_MATCH_2.
function(expect_failure pattern)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE text ERROR_VARIABLE text RESULT_VARIABLE status)
  list(JOIN ARGN " " command)
  if(status EQUAL 0)
    message(FATAL_ERROR "${command}\nshould have failed:\n${text}")
  endif()
  string(REGEX REPLACE "[ \n]+" " " text "${text}")
  if(NOT text MATCHES "${pattern}")
    message(FATAL_ERROR "${command}\nshould print \"${pattern}\":\n${text}")
  endif()
  set(CMAKE_MATCH_1 "${CMAKE_MATCH_1}" PARENT_SCOPE)
  set(CMAKE_MATCH_2 "${CMAKE_MATCH_2}" PARENT_SCOPE)
endfunction()

function(configure_command output source build)
  set(${output} ${CMAKE_COMMAND} -S ${source} -B ${build} -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${CXX_COMPILER}
      -DCMAKE_CXX_COMPILER_LAUNCHER=${CXX_COMPILER_LAUNCHER} -DCMAKE_BUILD_TYPE=${BUILD_TYPE}
      -DCMAKE_CXX_FLAGS=${CXX_FLAGS} -DCMAKE_EXPORT_COMPILE_COMMANDS=ON -DCMAKE_PREFIX_PATH=${prefix} ${ARGN}
      PARENT_SCOPE)
endfunction()

function(configure source build)
  configure_command(command ${source} ${build} ${ARGN})
  run(output ${command})
endfunction()

# Our warning flags must not reach other projects.
function(require_no_warnings_of_ours build source)
  file(READ ${build}/compile_commands.json commands)
  string(JSON last LENGTH "${commands}")
  math(EXPR last "${last} - 1")
  set(found FALSE)
  foreach(index RANGE ${last})
    string(JSON file GET "${commands}" ${index} file)
    if(file STREQUAL source)
      set(found TRUE)
      string(JSON command GET "${commands}" ${index} command)
      if(command MATCHES "-Wshadow|-Werror")
        message(FATAL_ERROR "${source} is compiled with our warnings:\n${command}")
      endif()
    endif()
  endforeach()
  if(NOT found)
    message(FATAL_ERROR "${source} is not compiled in ${build}")
  endif()
endfunction()

# Installs, moves the prefix, and searches files that CMake will read for paths of this machine.
function(case_install_setup)
  file(REMOVE_RECURSE ${WORK})
  file(MAKE_DIRECTORY ${WORK}/moved)
  run(output ${CMAKE_COMMAND} --install ${BUILD_DIRECTORY} --prefix ${WORK}/first)
  file(RENAME ${WORK}/first ${prefix})
  file(COPY ${SOURCE_DIRECTORY}/examples ${SOURCE_DIRECTORY}/tests/install/outside
            ${SOURCE_DIRECTORY}/tests/install/optional ${SOURCE_DIRECTORY}/tests/install/subproject
            ${SOURCE_DIRECTORY}/tests/install/components ${SOURCE_DIRECTORY}/tests/install/http_library
            ${SOURCE_DIRECTORY}/tests/install/plain_c
       DESTINATION ${WORK})
  file(COPY ${SOURCE_DIRECTORY}/tests/install/outside/main.cpp DESTINATION ${WORK}/subproject)
  file(GLOB_RECURSE package ${prefix}/*.cmake ${prefix}/*.pc)
  if(NOT package)
    message(FATAL_ERROR "no package was installed")
  endif()
  file(GLOB_RECURSE stash ${prefix}/libvdnn_stash.so)
  if(NOT stash)
    message(FATAL_ERROR "the stash's library was not installed")
  endif()
  foreach(file IN LISTS package)
    file(READ ${file} text)
    if(text MATCHES "[\" ;:=]/[A-Za-z][^\"\n]*")
      message(FATAL_ERROR "${file} names a path of this machine: ${CMAKE_MATCH_0}")
    endif()
  endforeach()
endfunction()

# A program outside the tree trains twice with the same bits, which are also those of the program in the tree.
# The installed command runs.
function(case_install_test)
  configure(${WORK}/outside ${WORK}/build-outside)
  require_no_warnings_of_ours(${WORK}/build-outside ${WORK}/outside/main.cpp)
  run(output ${CMAKE_COMMAND} --build ${WORK}/build-outside)
  run(output ${WORK}/build-outside/outside)
  set(number "0x[0-9a-f.]+p[-+][0-9]+")
  set(line "(( ${number})( ${number})( ${number})( ${number})( ${number}) [0-9a-f]+)\n")
  if(NOT output MATCHES "^first:${line}second:")
    message(FATAL_ERROR "five losses and a hash are expected:\n${output}")
  endif()
  set(first "${CMAKE_MATCH_1}")
  if(NOT output STREQUAL "first:${first}\nsecond:${first}\n")
    message(FATAL_ERROR "the second training differs:\n${output}")
  endif()
  run(inside ${INSIDE})
  if(NOT output STREQUAL inside)
    message(FATAL_ERROR "in the tree, the same program prints\n${inside}\nand outside\n${output}")
  endif()
  run(output ${prefix}/bin/vdnn plan --model lenet --batch 8 --device cpu)
  foreach(file bash-completion/completions/vdnn zsh/site-functions/_vdnn fish/vendor_completions.d/vdnn.fish
          man/man1/vdnn.1 man/man1/vdnn-train.1)
    file(SIZE ${prefix}/share/${file} bytes)
    if(bytes EQUAL 0)
      message(FATAL_ERROR "${file} is empty")
    endif()
  endforeach()
endfunction()

# The examples are a project of their own. With CUDA, this builds also those that use the C interface and its
# headers for C++.
function(case_install_examples_test)
  set(programs own_loop)
  if(WITH_CUDA)
    list(APPEND programs pool_in_c memory_resource)
  endif()
  configure(${WORK}/examples ${WORK}/build-examples)
  run(output ${CMAKE_COMMAND} --build ${WORK}/build-examples --target ${programs})
  run(output ${WORK}/build-examples/own_loop)
  if(NOT output MATCHES "stopped after [0-9]+ steps")
    message(FATAL_ERROR "own_loop did not stop by its own rule:\n${output}")
  endif()
endfunction()

# Compiles and links a program in C with the flags of pkg-config, wherever the prefix is, and runs it with the
# installed library.
function(require_package_for_c package source expected)
  file(GLOB_RECURSE file ${prefix}/${package}.pc)
  get_filename_component(folder ${file} DIRECTORY)
  set(ENV{PKG_CONFIG_PATH} ${folder})
  run(version ${PKG_CONFIG} --modversion ${package})
  run(arguments ${PKG_CONFIG} --cflags --libs ${package})
  separate_arguments(arguments UNIX_COMMAND "${arguments}")
  set(program ${WORK}/plain_c/${package})
  run(output ${C_COMPILER} -std=c11 -Wall -Werror ${WORK}/plain_c/${source} -o ${program} ${arguments})
  run(libraries ${PKG_CONFIG} --variable=libdir ${package})
  string(STRIP "${libraries}" libraries)
  file(REAL_PATH ${libraries} libraries)
  set(ENV{LD_LIBRARY_PATH} ${libraries})
  run(output ${program})
  if(NOT output MATCHES "${expected}")
    message(FATAL_ERROR "the program should print \"${expected}\":\n${output}")
  endif()
  run(loaded ldd ${program})
  if(NOT loaded MATCHES "lib${package}\\.so\\.1 => ${libraries}/")
    message(FATAL_ERROR "the library is not the installed one:\n${loaded}")
  endif()
endfunction()

# If libraries are deeper in the prefix, pkg-config must still find the prefix.
function(require_prefix_from_deep_libraries package folder)
  file(COPY ${WORK}/build-deep/${folder}/${package}.pc DESTINATION ${WORK}/deep/lib/deep/pkgconfig)
  set(ENV{PKG_CONFIG_PATH} ${WORK}/deep/lib/deep/pkgconfig)
  run(found ${PKG_CONFIG} --variable=prefix ${package})
  string(STRIP "${found}" found)
  file(REAL_PATH ${found} found)
  file(REAL_PATH ${WORK}/deep expected)
  if(NOT found STREQUAL expected)
    message(FATAL_ERROR "with libraries in lib/deep, the prefix of ${package} is ${found} and should be ${expected}")
  endif()
endfunction()

function(case_install_pkg_config_test)
  require_package_for_c(vdnn_allocator pool.c "^invalid argument: version 0 is not known")
  require_package_for_c(vdnn_stash stash.c "^left and came back\n")
  configure(${SOURCE_DIRECTORY} ${WORK}/build-deep -DCMAKE_INSTALL_LIBDIR=lib/deep -DVDNN_CUDA=${CUDA} -DVDNN_BUILD_COMMAND=OFF
            -DVDNN_BUILD_EXAMPLES=OFF -DVDNN_BUILD_TESTS=OFF -DVDNN_BUILD_BENCHMARKS=OFF)
  file(MAKE_DIRECTORY ${WORK}/deep/lib/deep/pkgconfig)
  require_prefix_from_deep_libraries(vdnn_allocator allocator/dropin/shared)
  require_prefix_from_deep_libraries(vdnn_stash src/stash/shared)
endfunction()

# If a dependency of the libraries is missing, find_package names it.
function(case_install_missing_dependency_test)
  configure_command(command ${WORK}/outside ${WORK}/build-missing -DOneDNN_LIBRARY=)
  expect_failure("oneDNN is missing.*libdnnl-dev" ${command})
  # If vdnn is optional for a project, the project gets the message, too. Regression: our directory remained in front in
  # CMAKE_MODULE_PATH.
  configure(${WORK}/optional ${WORK}/build-optional -DOneDNN_LIBRARY=)
endfunction()

# MPI and the CUDA toolkit are missing. A program that names the components that it needs still builds, trains with the
# same bits, and links neither. A program that names no component, or one that is missing or unknown, gets an error that
# reports this.
function(case_install_components_test)
  set(neither -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON)
  configure(${WORK}/outside ${WORK}/build-components ${neither} "-DVDNN_COMPONENTS=cpu\;OPTIONAL_COMPONENTS\;cuda\;mpi")
  run(output ${CMAKE_COMMAND} --build ${WORK}/build-components)
  run(output ${WORK}/build-components/outside)
  run(inside ${INSIDE})
  if(NOT output STREQUAL inside)
    message(FATAL_ERROR "in the tree, the same program prints\n${inside}\nand with the component cpu\n${output}")
  endif()
  run(loaded ldd ${WORK}/build-components/outside)
  if(loaded MATCHES "libmpi|libcuda")
    message(FATAL_ERROR "with the component cpu, the program links MPI or CUDA:\n${loaded}")
  endif()
  if(WITH_CUDA)
    configure_command(command ${WORK}/outside ${WORK}/build-no-cuda ${neither} -DVDNN_COMPONENTS=cuda)
    expect_failure("component cuda: CUDAToolkit is missing" ${command})
    configure_command(command ${WORK}/outside ${WORK}/build-no-cuda -DVDNN_COMPONENTS=
                      -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON)
    expect_failure("CUDAToolkit is missing.*COMPONENTS cpu" ${command})
  else()
    configure_command(command ${WORK}/outside ${WORK}/build-no-cuda -DVDNN_COMPONENTS=cuda)
    expect_failure("component cuda: vdnn was built without it" ${command})
  endif()
  configure_command(command ${WORK}/outside ${WORK}/build-unknown -DVDNN_COMPONENTS=tpu)
  expect_failure("no component tpu: cpu, sim, cuda and mpi are known" ${command})
  configure(${WORK}/components ${WORK}/build-several)
endfunction()

# The macros of a compiled cpp-httplib come from its pkg-config file. Without this file they are unknown, and
# the library does not count as found.
function(case_install_http_library_test)
  file(WRITE ${WORK}/http/include/httplib.h "#define CPPHTTPLIB_VERSION \"0.12.0\"\n")
  file(WRITE ${WORK}/http/lib/libcpp-httplib.so "")
  configure_command(command ${WORK}/http_library ${WORK}/build-http -DCMAKE_PREFIX_PATH=${WORK}/http
                    -DVDNN_MODULES=${SOURCE_DIRECTORY}/cmake)
  expect_failure("Could NOT find CppHttplib.*CppHttplib_PKG_CONFIG_FILE" ${command})
  file(WRITE ${WORK}/http/lib/pkgconfig/cpp-httplib.pc "Cflags: -I\${includedir} -DCPPHTTPLIB_ONE -DCPPHTTPLIB_TWO=2\n")
  run(output ${command})
  file(READ ${WORK}/build-http/macros macros)
  if(NOT macros STREQUAL "CPPHTTPLIB_ONE;CPPHTTPLIB_TWO=2")
    message(FATAL_ERROR "a program that uses cpp-httplib is compiled with '${macros}'")
  endif()
endfunction()

# Installing a build with only one library built installs nothing, not even that library.
function(case_install_incomplete_build_test)
  configure(${SOURCE_DIRECTORY} ${WORK}/build-partial -DVDNN_CUDA=OFF -DVDNN_MPI=OFF -DVDNN_BUILD_COMMAND=OFF
            -DVDNN_BUILD_EXAMPLES=OFF -DVDNN_BUILD_TESTS=OFF -DVDNN_BUILD_BENCHMARKS=OFF)
  run(output ${CMAKE_COMMAND} --build ${WORK}/build-partial --target vdnn_base)
  expect_failure("build is not complete: ([0-9]+) of ([0-9]+) files.*Nothing was installed.*cmake --build"
                 ${CMAKE_COMMAND} --install ${WORK}/build-partial --prefix ${WORK}/nothing)
  math(EXPR built "${CMAKE_MATCH_2} - ${CMAKE_MATCH_1}")
  if(NOT built EQUAL 1)
    message(FATAL_ERROR "one library was built, and ${built} files count as built")
  endif()
  if(EXISTS ${WORK}/nothing)
    message(FATAL_ERROR "something was installed in ${WORK}/nothing")
  endif()
endfunction()

# As a subproject, vdnn adds only its libraries, under the same names. Building one of them shows that more
# than the configuration works.
function(case_install_subproject_test)
  configure(${WORK}/subproject ${WORK}/build-subproject -DFETCHCONTENT_SOURCE_DIR_VDNN=${SOURCE_DIRECTORY}
            -DVDNN_CUDA=${CUDA})
  require_no_warnings_of_ours(${WORK}/build-subproject ${WORK}/subproject/main.cpp)
  run(output ${CMAKE_COMMAND} --build ${WORK}/build-subproject --target vdnn_tape)
endfunction()

function(case_install_cleanup)
  file(REMOVE_RECURSE ${WORK})
endfunction()

cmake_language(CALL case_${CASE})
