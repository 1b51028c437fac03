# Rules for building every target of this project.

include(CheckLinkerFlag)
include(GNUInstallDirs)

add_library(vdnn_flags INTERFACE)
set(warnings -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wimplicit-fallthrough
    # Designated initialisers name only fields that differ from the defaults.
    -Wno-missing-field-initializers
    # g++ 12 sees overlaps in inlined std::string (GCC bug 105651).
    $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
# g++ starts to collect garbage once its heap reaches 128 MiB, which happens for most sources here. Starting at 512 MiB
# saves 15 % of the compile time.
set(less_collection $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:--param=ggc-min-heapsize=524288>)
set(warnings_of_c -Wall -Wextra -Wpedantic -Wstrict-prototypes)
if(VDNN_WARNINGS_AS_ERRORS)
  list(APPEND warnings -Werror)
  list(APPEND warnings_of_c -Werror)
  target_compile_options(vdnn_flags INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
endif()
target_compile_options(vdnn_flags INTERFACE
  ${less_collection}
  $<$<COMPILE_LANGUAGE:CXX>:${warnings}>
  $<$<COMPILE_LANGUAGE:C>:${warnings_of_c}>
  # The code that nvcc passes to the host's compiler violates some of these warnings.
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers>)
if(VDNN_SANITIZE)
  target_compile_options(vdnn_flags INTERFACE -fsanitize=${VDNN_SANITIZE} -fno-omit-frame-pointer
                                              -fno-sanitize-recover=all
                                              # With instrumentation g++ reports even the standard library as uninitialised.
                                              $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>
                                              # Instrumented loops are not vectorised, even if they request it.
                                              $<$<CXX_COMPILER_ID:Clang>:-Wno-pass-failed>)
  target_link_options(vdnn_flags INTERFACE -fsanitize=${VDNN_SANITIZE})
  if(VDNN_SANITIZE STREQUAL "address,undefined")
    # AddressSanitizer reports accesses through bad pointers. Checks of each pointer, which would take a third of the compile
    # time, are off. So null references that nobody reads, and pointer arithmetic that wraps, are not reported. The fuzzer has
    # all checks.
    target_compile_options(vdnn_flags INTERFACE -fno-sanitize=null,object-size,pointer-overflow)
  endif()
endif()

# With VDNN_UNITY, each batch of eight sources of a target is compiled as one, so headers and templates are compiled once
# per batch. Two sources of a batch cannot define the same name in the same namespace, named or not. Tests of one program
# that would do so have namespaces of their own, named after their files.
function(vdnn_compile_in_batches name)
  set_target_properties(${name} PROPERTIES UNITY_BUILD ${VDNN_UNITY} UNITY_BUILD_BATCH_SIZE 8)
  if(VDNN_UNITY)
    # g++ treats the sources that a batch includes as headers.
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

# vdnn_library(name SOURCES a.cpp ... DEPENDS other_target ... PRIVATE_DEPENDS ... [SHAREABLE]): one room, part of
# vdnn::vdnn. Other targets link, for example, vdnn_tape as vdnn::tape, in the tree and installed. Dependencies that
# users of vdnn do not need (vdnn_flags, header-only libraries) are $<BUILD_INTERFACE:...>; vdnnConfig.cmake.in finds
# all others. SHAREABLE: the room's code may also become part of a shared library.
function(vdnn_library name)
  vdnn_static_library(${name} ${ARGN})
  set_property(GLOBAL APPEND PROPERTY VDNN_ROOMS ${name})
endfunction()

# vdnn_choose(room PART library): `room` calls functions that have two implementations. One uses a library that not
# every machine has; the other reports its absence. In this build `library` implements them. Programs that link the
# installed libraries get the implementation that vdnnConfig.cmake.in chooses for PART, which is `cuda` or `mpi`.
function(vdnn_choose room part library)
  target_link_libraries(${room} PRIVATE $<BUILD_INTERFACE:${library}> $<INSTALL_INTERFACE:vdnn::chosen_${part}>)
endfunction()

# vdnn_static_library(name ...), with the arguments of vdnn_library(): a library that is linked only by rooms that name
# it.
function(vdnn_static_library name)
  cmake_parse_arguments(arg "SHAREABLE" "" "SOURCES;DEPENDS;PRIVATE_DEPENDS" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                     PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_features(${name} PUBLIC cxx_std_20)
  target_link_libraries(${name} PUBLIC ${arg_DEPENDS} PRIVATE ${arg_PRIVATE_DEPENDS} $<BUILD_INTERFACE:vdnn_flags>)
  if(arg_SHAREABLE)
    vdnn_shareable(${name})
  endif()
  # Usually one object per source of a shareable room, so that a shared library takes from the archive only the objects
  # that it uses. Under sanitizers the size of shared libraries does not matter, and VDNN_UNITY batches these sources, too.
  if(VDNN_SANITIZE OR NOT arg_SHAREABLE)
    vdnn_compile_in_batches(${name})
  endif()
  vdnn_export(${name})
endfunction()

# No program replaces the library's own functions, so calls of them stay direct and can be inlined.
function(vdnn_shareable name)
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${name} PRIVATE -fno-semantic-interposition)
endfunction()

# Others link vdnn_NAME as vdnn::NAME.
function(vdnn_export name)
  string(REGEX REPLACE "^vdnn_" "" exported ${name})
  add_library(vdnn::${exported} ALIAS ${name})
  set_target_properties(${name} PROPERTIES EXPORT_NAME ${exported})
  vdnn_install_target(${name} EXPORT vdnnTargets INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endfunction()

# `cmake --install` of an incomplete build fails before it writes anything: this target lists the files that are built
# and installed, and the first rule of installation (CMakeLists.txt) requires all of them.
add_custom_target(vdnn_installation)

# vdnn_installs(file ...): registers files that the build makes and `cmake --install` installs. They may be generator
# expressions.
function(vdnn_installs)
  set_property(TARGET vdnn_installation APPEND PROPERTY VDNN_BUILT_FILES ${ARGN})
endfunction()

function(vdnn_require_complete_build)
  set(files $<TARGET_GENEX_EVAL:vdnn_installation,$<TARGET_PROPERTY:vdnn_installation,VDNN_BUILT_FILES>>)
  install(CODE "set(vdnn_built_files \"${files}\")")
  install(SCRIPT ${PROJECT_SOURCE_DIR}/cmake/VdnnRequireFiles.cmake)
endfunction()

# vdnn_install_target(target ...): install(TARGETS target ...) if VDNN_INSTALL is on.
function(vdnn_install_target target)
  if(NOT VDNN_INSTALL)
    return()
  endif()
  install(TARGETS ${target} ${ARGN})
  get_target_property(type ${target} TYPE)
  if(NOT type STREQUAL "INTERFACE_LIBRARY")
    vdnn_installs($<TARGET_FILE:${target}>)
  endif()
endfunction()

# vdnn_install_shared(target description): installs a shared library with a pkg-config file, which finds library and
# headers even if the prefix is moved.
function(vdnn_install_shared target description)
  if(NOT VDNN_INSTALL)
    return()
  endif()
  get_target_property(package ${target} OUTPUT_NAME)
  get_target_property(soversion ${target} SOVERSION)
  file(RELATIVE_PATH prefix_from_pkgconfig /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/vdnn_shared.pc.in ${CMAKE_CURRENT_BINARY_DIR}/${package}.pc @ONLY)
  vdnn_install_target(${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${package}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()

# vdnn::vdnn, which programs link: all rooms defined so far.
function(vdnn_all_rooms)
  get_property(rooms GLOBAL PROPERTY VDNN_ROOMS)
  add_library(vdnn_vdnn INTERFACE)
  target_link_libraries(vdnn_vdnn INTERFACE ${rooms})
  vdnn_export(vdnn_vdnn)
endfunction()

# All programs that the sanitizers' presets run. These presets build no other test programs.
add_custom_target(asan_tests)
add_custom_target(tsan_tests)
# Tests that need a GPU: scripts/gpu-check builds only these.
add_custom_target(gpu_tests)

# Extra flags of tests.
add_library(vdnn_test_flags INTERFACE)
target_include_directories(vdnn_test_flags INTERFACE ${PROJECT_SOURCE_DIR})
# GoogleTest's targets define this macro; a precompiled header needs the same definition everywhere.
target_compile_definitions(vdnn_test_flags INTERFACE GTEST_HAS_PTHREAD=1)
target_compile_options(vdnn_test_flags INTERFACE
  # g++ 12 reports members of temporary options as uninitialised.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
target_link_libraries(vdnn_test_flags INTERFACE vdnn_flags)
# GNU's linker takes three times as long as lld. With the debug information of sanitizers, that is seconds per program.
if((VDNN_BUILD_TESTS OR VDNN_SANITIZE) AND NOT CMAKE_INTERPROCEDURAL_OPTIMIZATION)
  check_linker_flag(CXX -fuse-ld=lld VDNN_LINKS_WITH_LLD)
endif()
if(VDNN_LINKS_WITH_LLD)
  if(VDNN_SANITIZE)
    target_link_options(vdnn_flags INTERFACE -fuse-ld=lld)
  else()
    target_link_options(vdnn_test_flags INTERFACE -fuse-ld=lld)
  endif()
endif()
if(VDNN_SANITIZE STREQUAL "address,undefined")
  # In test programs, checks of alignment and dynamic types would take a quarter of the compile time. The libraries under test
  # have them, except in inline functions of headers, whose copy may come from the test. A separate target puts these flags
  # after those of vdnn_flags.
  add_library(vdnn_fewer_checks INTERFACE)
  target_compile_options(vdnn_fewer_checks INTERFACE -fno-sanitize=alignment,vptr)
  target_link_libraries(vdnn_test_flags INTERFACE vdnn_fewer_checks)
endif()
if(VDNN_SANITIZE STREQUAL "thread")
  add_library(vdnn_thread_sanitizer OBJECT ${PROJECT_SOURCE_DIR}/tests/thread_sanitizer.cpp)
endif()

# Test programs, the largest part of a build, use -Og, which compiles in two thirds of the time of -O1, instrumented or
# not. They spend their run time in the libraries under test, and in code of tests that is OPTIMISED. Benchmarks link
# no object of a test, because the linker might use its unoptimised copy of a template or inline function.
set(optimization_of_tests $<$<NOT:$<CONFIG:Debug>>:-Og>)

# Headers of other projects that most tests include are precompiled once for all. Our own headers are not among them, since
# a change of one would recompile every test. Sources still include what they use; VDNN_PRECOMPILE=OFF builds the same
# programs.
if(VDNN_BUILD_TESTS AND VDNN_PRECOMPILE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_library(vdnn_test_headers OBJECT ${PROJECT_SOURCE_DIR}/tests/precompiled.cpp)
  target_link_libraries(vdnn_test_headers PRIVATE vdnn_test_flags GTest::gmock nlohmann_json::nlohmann_json)
  target_compile_features(vdnn_test_headers PRIVATE cxx_std_20)
  target_compile_options(vdnn_test_headers PRIVATE ${optimization_of_tests})
  target_precompile_headers(vdnn_test_headers PRIVATE ${PROJECT_SOURCE_DIR}/tests/precompiled.h)
endif()

# vdnn_compile_cases(target): sets the flags of test programs, and of objects that several of them share. g++ uses a
# precompiled header only with the flags that made it.
function(vdnn_compile_cases name)
  target_link_libraries(${name} PRIVATE vdnn_test_flags)
  target_compile_options(${name} PRIVATE ${optimization_of_tests})
  vdnn_compile_in_batches(${name})
  if(TARGET vdnn_test_headers)
    target_precompile_headers(${name} REUSE_FROM vdnn_test_headers)
  endif()
endfunction()

# vdnn_test_library(name SOURCES a.cpp ... DEPENDS target ... [OPTIMISED]): code that several test programs share. It is
# compiled like these, or in a release build with -O2 if it is OPTIMISED, because tests spend much of their run time in it.
function(vdnn_test_library name)
  cmake_parse_arguments(arg "OPTIMISED" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  target_compile_features(${name} PUBLIC cxx_std_20)
  target_link_libraries(${name} PUBLIC ${arg_DEPENDS})
  if(arg_OPTIMISED)
    target_link_libraries(${name} PRIVATE vdnn_test_flags)
    target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O2>)
    vdnn_compile_in_batches(${name})
  else()
    vdnn_compile_cases(${name})
  endif()
endfunction()

# vdnn_test(name SOURCES a_test.cpp ... DEPENDS target ... [LABELS tsan ...] [SHARDS n] [THOROUGH pattern ...] [LONG] [ALONE]):
# one test program. Each case is a ctest, or each of n shards if starting a process per case would take longer than the
# cases. Cases that match a pattern of THOROUGH (GoogleTest's syntax) have the label `thorough`: `scripts/test` leaves
# them out, and `scripts/test --all` and `--long` run them. They take long, because they test more networks, types, seeds
# or headers than `scripts/test` does, or sweep over budgets. Under sanitizers, all cases of a program run.
# The label `thorough` has the same meaning for a whole program. `asan` marks programs that the preset `asan` runs,
# `tsan` those that `tsan` runs, and `heavy` those that not even `asan-all` runs. `gpu` marks programs that
# scripts/gpu-check runs on a GPU, and `long` those that only `scripts/test --long` runs. LONG: `scripts/test --long`
# runs the program a second time, to a larger extent (tests/extent.h). ALONE: no other test runs at the same time, for
# example because it measures a GPU's free memory.
function(vdnn_test name)
  cmake_parse_arguments(arg "LONG;ALONE" "SHARDS" "SOURCES;DEPENDS;LABELS;THOROUGH" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_DEPENDS} vdnn_base GTest::gtest_main $<TARGET_NAME_IF_EXISTS:vdnn_thread_sanitizer>)
  vdnn_compile_cases(${name})
  if(arg_SHARDS AND arg_THOROUGH)
    message(FATAL_ERROR "${name}: shards cannot leave out thorough cases")
  endif()
  if("gpu" IN_LIST arg_LABELS)
    add_dependencies(gpu_tests ${name})
  endif()
  foreach(sanitizer asan tsan)
    if(sanitizer IN_LIST arg_LABELS)
      add_dependencies(${sanitizer}_tests ${name})
    endif()
  endforeach()
  if(VDNN_SANITIZE AND "heavy" IN_LIST arg_LABELS)
    set(not_run TRUE)
  endif()
  if(not_run OR (VDNN_SANITIZE AND "long" IN_LIST arg_LABELS))
    # The sanitizers' presets do not run this program, so they do not build it.
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL TRUE)
    return()
  endif()
  if(VDNN_SANITIZE AND NOT arg_SHARDS)
    set(arg_SHARDS 4)  # an instrumented program takes a tenth of a second to start
  endif()
  set(properties TIMEOUT 900)
  if("long" IN_LIST arg_LABELS)
    set(properties TIMEOUT 3600)
  endif()
  if(arg_ALONE)
    list(APPEND properties RUN_SERIAL TRUE)
  endif()
  # All names form one label, since gtest_discover_tests() would read a second label as a property; ctest matches parts
  # of labels.
  set(label ${arg_LABELS} thorough)
  list(JOIN label "," label)
  set(thorough_properties ${properties} LABELS ${label})
  if(arg_LABELS)
    list(JOIN arg_LABELS "," label)
    list(APPEND properties LABELS ${label})
  endif()
  if(arg_SHARDS)
    math(EXPR last "${arg_SHARDS} - 1")
    if("gpu" IN_LIST arg_LABELS)
      list(APPEND properties SKIP_REGULAR_EXPRESSION "no GPU to run on")
    endif()
    foreach(shard RANGE ${last})
      add_test(NAME ${name}.shard_${shard} COMMAND ${name})
      set_tests_properties(${name}.shard_${shard} PROPERTIES ${properties}
                           ENVIRONMENT "GTEST_TOTAL_SHARDS=${arg_SHARDS};GTEST_SHARD_INDEX=${shard}")
    endforeach()
  elseif(arg_THOROUGH)
    list(JOIN arg_THOROUGH ":" thorough)
    gtest_discover_tests(${name} TEST_FILTER "*-${thorough}" DISCOVERY_TIMEOUT 120 PROPERTIES ${properties})
    gtest_discover_tests(${name} TEST_FILTER "${thorough}" TEST_LIST ${name}_THOROUGH DISCOVERY_TIMEOUT 120
                         PROPERTIES ${thorough_properties})
  else()
    gtest_discover_tests(${name} DISCOVERY_TIMEOUT 120 PROPERTIES ${properties})
  endif()
  if(arg_LONG AND NOT VDNN_SANITIZE)
    gtest_discover_tests(${name} TEST_PREFIX long. TEST_LIST ${name}_LONG DISCOVERY_TIMEOUT 120
                         PROPERTIES TIMEOUT 3600 LABELS long ENVIRONMENT VDNN_LONG_RUN=1)
  endif()
endfunction()

# vdnn_benchmark(name SOURCES a_bench.cpp ... DEPENDS target ... [SMOKE regex]): one benchmark program. ctest briefly
# runs the benchmarks that match `regex`, so that they keep working. Benchmarks that need a GPU have no SMOKE.
function(vdnn_benchmark name)
  cmake_parse_arguments(arg "" "SMOKE" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${arg_DEPENDS} vdnn_side_by_side vdnn_flags benchmark::benchmark_main)
  if(VDNN_BUILD_TESTS AND arg_SMOKE)
    add_test(NAME ${name}.smoke COMMAND ${name} --benchmark_min_time=0.001 --benchmark_filter=${arg_SMOKE})
    # The program succeeds even if nothing matches, or a benchmark reports that it could not run.
    set_tests_properties(${name}.smoke PROPERTIES TIMEOUT 300
                         FAIL_REGULAR_EXPRESSION "Failed to match any benchmarks;ERROR OCCURRED")
  endif()
endfunction()
