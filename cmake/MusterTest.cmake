# How much of the machine a test gets beside others, in quarters of a processor. One that waits most of its time (WAITS) needs one of
# them; a sanitizer's work makes it two. Both kinds run at the same time, each in a room of its own (tests/support/room.json), which
# ./dev test gives ctest: tests that compute fill the processors while the others wait. Of those twelve quarters on two processors, since
# tests that compute wait too (for the disk, for the slowest of their processes), and with eight a fifth of both processors was idle.
# SECONDS is about how long a test takes, where that is long: ctest begins with those, so that none is left over at the end.
function(muster_test_weight name waits seconds)
  set(quarters 4)
  set(room computes)
  if(waits)
    set(room waits)
    set(quarters 1)
    if(MUSTER_SANITIZE)
      set(quarters 2)
    endif()
  endif()
  muster_test_quarters(${name} ${room} ${quarters})
  if(seconds)
    set_tests_properties(${name} PROPERTIES COST ${seconds})
  endif()
endfunction()

function(muster_test_quarters name room quarters)
  set_tests_properties(${name} PROPERTIES PROCESSORS ${quarters} RESOURCE_GROUPS ${room}:${quarters})
endfunction()

# Tests that wait about half of their time, as Testing/canary/NAME has it (cpu of seconds), and promise nothing in seconds.
function(muster_tests_wait_half)
  if(NOT MUSTER_SANITIZE)
    foreach(name ${ARGN})
      muster_test_quarters(${name} computes 2)
    endforeach()
  endif()
endfunction()

# Tests that look with Python's packages: ./dev test starts the other ones while those packages are still being fetched.
function(muster_tests_need_packages)
  set_tests_properties(${ARGN} PROPERTIES FIXTURES_REQUIRED packages)
endfunction()

# How long a test may take. Programs with sanitizers are larger and slower than themselves.
function(muster_test_timeout name seconds)
  if(MUSTER_SANITIZE)
    math(EXPR seconds "4 * ${seconds}")
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${seconds})
endfunction()

# Tests run in networks of their own, so that those beside each other do not meet; Testing/canary/NAME records how the machine
# served each (tests/support/apart.c). Those that compute and look at no clock leave the processors to the others in
# ./dev test (--computes).
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/Testing/canary)
function(muster_apart out name)
  set(${out} apart ${ARGN} --canary ${CMAKE_BINARY_DIR}/Testing/canary/${name} PARENT_SCOPE)
endfunction()

# Tests' programs are linked in half of the time where there is gold (Debian's binutils): there are 250 of them.
include(CheckLinkerFlag)
check_linker_flag(C -fuse-ld=gold MUSTER_HAS_GOLD)

# muster_test(name SOURCES a.c b.c LINK lib ... [LABELS unit] [WAITS] [SECONDS n])
# One program, one ctest entry, runnable alone. The only way to add a C test. Exit status 77 means skipped.
# MUSTER_TEST_OPTIONS of the folder are the compiler's for its own files.
function(muster_test name)
  cmake_parse_arguments(T "WAITS" "SECONDS" "SOURCES;LINK;LABELS;ARGS" ${ARGN})
  add_executable(${name} ${T_SOURCES})
  target_link_libraries(${name} PRIVATE muster_flags muster_test_support PkgConfig::CMOCKA ${T_LINK})
  target_compile_options(${name} PRIVATE ${MUSTER_TEST_OPTIONS})
  if(MUSTER_HAS_GOLD AND NOT MUSTER_SANITIZE)
    target_link_options(${name} PRIVATE -fuse-ld=gold)
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  set(kind --computes)
  if(T_WAITS)
    set(kind)
  endif()
  muster_apart(apart ${name} ${kind})
  if(CMAKE_CROSSCOMPILING)
    set(apart ${CMAKE_SOURCE_DIR}/tests/processors/emulate.sh ${CMAKE_SYSROOT})
  endif()
  add_test(NAME ${name} COMMAND ${apart} $<TARGET_FILE:${name}> ${T_ARGS} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  if(NOT T_LABELS)
    set(T_LABELS unit)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${T_LABELS}" SKIP_RETURN_CODE 77)
  muster_test_timeout(${name} 1200)
  muster_test_weight(${name} "${T_WAITS}" "${T_SECONDS}")
endfunction()

# muster_script_test(name COMMAND program args... [LABELS e2e] [TIMEOUT seconds] [WAITS] [SECONDS n] [SERIAL]
#   [MACHINE_NETWORK])
# A script that starts real programs. MUSTER_BUILD and MUSTER_SOURCE hold where they are. MACHINE_NETWORK: it fetches something.
function(muster_script_test name)
  cmake_parse_arguments(T "SERIAL;MACHINE_NETWORK;WAITS" "TIMEOUT;SECONDS" "COMMAND;LABELS" ${ARGN})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 1800) # against a hang; a starved machine takes its time
  endif()
  if(NOT T_LABELS)
    set(T_LABELS e2e)
  endif()
  set(where)
  if(T_MACHINE_NETWORK)
    set(where --here)
  endif()
  if(NOT T_WAITS AND NOT "e2e" IN_LIST T_LABELS)
    list(APPEND where --computes)
  endif()
  muster_apart(apart ${name} ${where})
  add_test(NAME ${name} COMMAND ${apart} ${T_COMMAND} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS "${T_LABELS}" SKIP_RETURN_CODE 77
    ENVIRONMENT "MUSTER_BUILD=${CMAKE_BINARY_DIR};MUSTER_SOURCE=${CMAKE_SOURCE_DIR}")
  muster_test_timeout(${name} ${T_TIMEOUT})
  muster_test_weight(${name} "${T_WAITS}" "${T_SECONDS}")
  if(MUSTER_SANITIZE)
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "MUSTER_SANITIZED=${MUSTER_SANITIZE}")
  endif()
  if(MUSTER_SANITIZE MATCHES address) # libasan's dlopen looks along its own path, not along a program's
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT LD_LIBRARY_PATH=${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
  endif()
  if(CMAKE_CROSSCOMPILING) # scripts start the programs as this machine's
    set_tests_properties(${name} PROPERTIES DISABLED TRUE)
  endif()
  if("compat" IN_LIST T_LABELS)
    muster_tests_need_packages(${name})
  endif()
  if(T_SERIAL)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL TRUE)
  endif()
endfunction()
