# How long a test may take. Programs with sanitizers are larger and slower than themselves, and the thread sanitizer is told
# of the libraries that it cannot see into.
function(muster_test_timeout name seconds)
  if(MUSTER_SANITIZE)
    math(EXPR seconds "4 * ${seconds}")
  endif()
  if(MUSTER_SANITIZE MATCHES thread)
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/e2e/tsan.supp")
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${seconds})
endfunction()

# Tests run in networks of their own, so that those beside each other do not meet (tests/support/apart.c).

# muster_test(name SOURCES a.c b.c LINK lib ... [LABELS unit])
# One program, one ctest entry, runnable alone. The only way to add a C test. Exit status 77 means skipped.
function(muster_test name)
  cmake_parse_arguments(T "" "" "SOURCES;LINK;LABELS;ARGS" ${ARGN})
  add_executable(${name} ${T_SOURCES})
  target_link_libraries(${name} PRIVATE muster_flags muster_test_support PkgConfig::CMOCKA ${T_LINK})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND apart $<TARGET_FILE:${name}> ${T_ARGS} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  if(NOT T_LABELS)
    set(T_LABELS unit)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${T_LABELS}" SKIP_RETURN_CODE 77)
  muster_test_timeout(${name} 1200)
endfunction()

# muster_script_test(name COMMAND program args... [LABELS e2e] [TIMEOUT seconds] [SERIAL] [MACHINE_NETWORK])
# A script that starts real programs. MUSTER_BUILD and MUSTER_SOURCE tell it where they are. MACHINE_NETWORK: it fetches something.
function(muster_script_test name)
  cmake_parse_arguments(T "SERIAL;MACHINE_NETWORK" "TIMEOUT" "COMMAND;LABELS" ${ARGN})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 1800) # against a hang; a starved machine takes its time
  endif()
  if(NOT T_LABELS)
    set(T_LABELS e2e)
  endif()
  set(apart apart)
  if(T_MACHINE_NETWORK)
    set(apart)
  endif()
  add_test(NAME ${name} COMMAND ${apart} ${T_COMMAND} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS "${T_LABELS}" SKIP_RETURN_CODE 77
    ENVIRONMENT "MUSTER_BUILD=${CMAKE_BINARY_DIR};MUSTER_SOURCE=${CMAKE_SOURCE_DIR}")
  muster_test_timeout(${name} ${T_TIMEOUT})
  if(MUSTER_SANITIZE)
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "MUSTER_SANITIZED=${MUSTER_SANITIZE}")
  endif()
  if(T_SERIAL)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL TRUE)
  endif()
endfunction()
