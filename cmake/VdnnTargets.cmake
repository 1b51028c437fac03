# How every target of this project is built.

include(GNUInstallDirs)

add_library(vdnn_flags INTERFACE)
set(warnings -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wimplicit-fallthrough
    # Designated initialisers name what differs from the defaults.
    -Wno-missing-field-initializers
    # g++ 12 sees overlaps in inlined std::string (GCC bug 105651).
    $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
# g++ collects garbage once its heap reaches 128 MiB, as it does in most sources here. Starting at 512 MiB saves 15 % of
# the time.
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
  # What nvcc hands to the host's compiler does not hold to all of them.
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers>)
if(VDNN_SANITIZE)
  target_compile_options(vdnn_flags INTERFACE -fsanitize=${VDNN_SANITIZE} -fno-omit-frame-pointer
                                              -fno-sanitize-recover=all
                                              # Instrumented, even the standard library looks uninitialised to g++.
                                              $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>
                                              # Instrumented loops are not vectorised, whatever they ask for.
                                              $<$<CXX_COMPILER_ID:Clang>:-Wno-pass-failed>)
  target_link_options(vdnn_flags INTERFACE -fsanitize=${VDNN_SANITIZE})
  if(VDNN_SANITIZE STREQUAL "address,undefined")
    # AddressSanitizer reports an access by such a pointer; checking each pointer, too, takes a third of the time to compile.
    # A null reference that nobody reads, or arithmetic that wraps, is not reported then. The fuzzer checks all.
    target_compile_options(vdnn_flags INTERFACE -fno-sanitize=null,object-size,pointer-overflow)
  endif()
  # The sanitizers' presets link debug information into every test, which takes GNU's linker seconds a program.
  find_program(VDNN_LLD ld.lld)
  mark_as_advanced(VDNN_LLD)
  if(VDNN_LLD)
    target_link_options(vdnn_flags INTERFACE -fuse-ld=lld)
  endif()
endif()

# With VDNN_UNITY, each batch of eight sources of the target is compiled as one, which pays for headers and templates once.
# Two sources of a batch cannot define the same name in their unnamed namespaces. Where tests do, the target sets
# UNITY_BUILD OFF.
function(vdnn_compile_in_batches name)
  set_target_properties(${name} PROPERTIES UNITY_BUILD ${VDNN_UNITY} UNITY_BUILD_BATCH_SIZE 8)
  if(VDNN_UNITY)
    # g++ takes what a batch includes for headers.
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

# vdnn_library(name SOURCES a.cpp ... DEPENDS other_target ... PRIVATE_DEPENDS ...): one room. vdnn_tape is what others
# link as vdnn::tape, here and installed. What programs that link us do not need (vdnn_flags, libraries of headers
# alone) is $<BUILD_INTERFACE:...>; anything else has to be found again by vdnnConfig.cmake.in. SHAREABLE: its code may
# also become part of a shared library.
function(vdnn_library name)
  cmake_parse_arguments(arg "SHAREABLE" "" "SOURCES;DEPENDS;PRIVATE_DEPENDS" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                     PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_features(${name} PUBLIC cxx_std_20)
  target_link_libraries(${name} PUBLIC ${arg_DEPENDS} PRIVATE ${arg_PRIVATE_DEPENDS} $<BUILD_INTERFACE:vdnn_flags>)
  if(arg_SHAREABLE)
    # One object a source: a shared library takes from the archive only what it uses.
    vdnn_shareable(${name})
  else()
    vdnn_compile_in_batches(${name})
  endif()
  vdnn_export(${name})
  set_property(GLOBAL APPEND PROPERTY VDNN_ROOMS ${name})
endfunction()

# Nobody puts other functions in place of the library's own, so calls of them stay direct and can be inlined.
function(vdnn_shareable name)
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${name} PRIVATE -fno-semantic-interposition)
endfunction()

# Others see vdnn_NAME as vdnn::NAME.
function(vdnn_export name)
  string(REGEX REPLACE "^vdnn_" "" exported ${name})
  add_library(vdnn::${exported} ALIAS ${name})
  set_target_properties(${name} PROPERTIES EXPORT_NAME ${exported})
  if(VDNN_INSTALL)
    install(TARGETS ${name} EXPORT vdnnTargets INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  endif()
endfunction()

# Installs vdnn_NAME_shared with a file for pkg-config, which finds library and headers wherever the prefix is moved to.
function(vdnn_install_shared target description)
  if(NOT VDNN_INSTALL)
    return()
  endif()
  get_target_property(package ${target} OUTPUT_NAME)
  get_target_property(soversion ${target} SOVERSION)
  file(RELATIVE_PATH prefix_from_pkgconfig /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/vdnn_shared.pc.in ${CMAKE_CURRENT_BINARY_DIR}/${package}.pc @ONLY)
  install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${package}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()

# vdnn::vdnn, what everybody links: all rooms that have been defined.
function(vdnn_all_rooms)
  get_property(rooms GLOBAL PROPERTY VDNN_ROOMS)
  add_library(vdnn_vdnn INTERFACE)
  target_link_libraries(vdnn_vdnn INTERFACE ${rooms})
  vdnn_export(vdnn_vdnn)
endfunction()

# Everything that the sanitizers' presets run: building the rest with them would be for nothing.
add_custom_target(asan_tests)
add_custom_target(tsan_tests)
# What wants a GPU: of all tests scripts/gpu-check builds these alone.
add_custom_target(gpu_tests)

# Extra flags of tests.
add_library(vdnn_test_flags INTERFACE)
target_include_directories(vdnn_test_flags INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/tests)
# GoogleTest's targets define it; a precompiled header needs the same definition everywhere.
target_compile_definitions(vdnn_test_flags INTERFACE GTEST_HAS_PTHREAD=1)
target_compile_options(vdnn_test_flags INTERFACE
  # g++ 12 takes members of temporary options for uninitialised.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
target_link_libraries(vdnn_test_flags INTERFACE vdnn_flags)
if(VDNN_SANITIZE STREQUAL "address,undefined")
  # The libraries under test check these, but for inline functions of headers, whose copy may be the test's; in the programs
  # that test them they take a quarter of the time to compile. A target of its own: its flags come after vdnn_flags'.
  add_library(vdnn_fewer_checks INTERFACE)
  target_compile_options(vdnn_fewer_checks INTERFACE -fno-sanitize=alignment,vptr)
  target_link_libraries(vdnn_test_flags INTERFACE vdnn_fewer_checks)
endif()
if(VDNN_SANITIZE STREQUAL "thread")
  add_library(vdnn_thread_sanitizer OBJECT ${PROJECT_SOURCE_DIR}/tests/thread_sanitizer.cpp)
endif()

# Test programs, most of all that is compiled, use -Og, which builds in two thirds of the time of -O1, instrumented or not.
# They spend their run time in libraries, those of tests included. A template or inline function of a public header that a
# program uses may come from its object, so benchmarks link no test.
set(optimization_of_tests $<$<NOT:$<CONFIG:Debug>>:-Og>)

# The headers of other projects that most tests include, precompiled once for all. None of our own is among them: a change
# of one would compile every test again. Sources still include what they use; VDNN_PRECOMPILE=OFF builds the same.
if(VDNN_BUILD_TESTS AND VDNN_PRECOMPILE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_library(vdnn_test_headers OBJECT ${PROJECT_SOURCE_DIR}/tests/precompiled.cpp)
  target_link_libraries(vdnn_test_headers PRIVATE vdnn_test_flags GTest::gmock nlohmann_json::nlohmann_json)
  target_compile_features(vdnn_test_headers PRIVATE cxx_std_20)
  target_compile_options(vdnn_test_headers PRIVATE ${optimization_of_tests})
  target_precompile_headers(vdnn_test_headers PRIVATE ${PROJECT_SOURCE_DIR}/tests/precompiled.h)
endif()

# vdnn_compile_cases(target): how test programs, and objects that several of them share, are compiled. g++ uses a
# precompiled header only with the flags that made it.
function(vdnn_compile_cases name)
  target_link_libraries(${name} PRIVATE vdnn_test_flags)
  target_compile_options(${name} PRIVATE ${optimization_of_tests})
  vdnn_compile_in_batches(${name})
  if(TARGET vdnn_test_headers)
    target_precompile_headers(${name} REUSE_FROM vdnn_test_headers)
  endif()
endfunction()

# vdnn_test_library(name SOURCES a.cpp ... DEPENDS target ...): what several test programs share.
function(vdnn_test_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  target_compile_features(${name} PUBLIC cxx_std_20)
  target_link_libraries(${name} PUBLIC ${arg_DEPENDS} PRIVATE vdnn_test_flags)
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O2>)
  vdnn_compile_in_batches(${name})
endfunction()

# vdnn_test(name SOURCES a_test.cpp ... DEPENDS target ... [LABELS tsan ...] [SHARDS n] [LONG] [ALONE]): one test program, each
# case a ctest, or, where starting a process a case takes longer than the cases do, each of n shards. The label `asan`
# marks what the preset `asan` runs, `tsan` what `tsan` does, `heavy` what not even `asan-all` does, `gpu` what
# scripts/gpu-check runs where there is one, `long` what `scripts/test --long` adds; LONG: that runs it a second time, to a larger extent (tests/extent.h).
# ALONE: no other test runs beside it, as where it counts what a whole GPU has free.
function(vdnn_test name)
  cmake_parse_arguments(arg "LONG;ALONE" "SHARDS" "SOURCES;DEPENDS;LABELS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_DEPENDS} vdnn_base GTest::gtest_main $<TARGET_NAME_IF_EXISTS:vdnn_thread_sanitizer>)
  vdnn_compile_cases(${name})
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
    # The sanitizers' presets do not run it: it is not built there either.
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
  if(arg_LABELS)
    # As one label, since gtest_discover_tests() would take the second for a property: ctest looks for parts of labels.
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
  else()
    gtest_discover_tests(${name} DISCOVERY_TIMEOUT 120 PROPERTIES ${properties})
  endif()
  if(arg_LONG AND NOT VDNN_SANITIZE)
    gtest_discover_tests(${name} TEST_PREFIX long. TEST_LIST ${name}_LONG DISCOVERY_TIMEOUT 120
                         PROPERTIES TIMEOUT 3600 LABELS long ENVIRONMENT VDNN_LONG_RUN=1)
  endif()
endfunction()

# vdnn_benchmark(name SOURCES a_bench.cpp ... DEPENDS target ... [SMOKE regex]): one benchmark program; what matches
# `regex` of it is also a ctest that runs it for a moment, so that it cannot rot. None where it wants a GPU.
function(vdnn_benchmark name)
  cmake_parse_arguments(arg "" "SMOKE" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${arg_DEPENDS} vdnn_side_by_side vdnn_flags benchmark::benchmark_main)
  if(VDNN_BUILD_TESTS AND arg_SMOKE)
    add_test(NAME ${name}.smoke COMMAND ${name} --benchmark_min_time=0.001 --benchmark_filter=${arg_SMOKE})
    # The program succeeds where nothing matches, or where a benchmark says that it could not run.
    set_tests_properties(${name}.smoke PROPERTIES TIMEOUT 300
                         FAIL_REGULAR_EXPRESSION "Failed to match any benchmarks;ERROR OCCURRED")
  endif()
endfunction()
