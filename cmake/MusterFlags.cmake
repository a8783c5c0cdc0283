# Asserts guard the control plane and stay on in every build type.
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g1") # lines for traces; variables, which preset debug has, take a fifth of the compiler's time
set(CMAKE_C_FLAGS_RELEASE "-O2")
set(CMAKE_C_FLAGS_MINSIZEREL "-Os")

# The flags of every target, carried by one interface target.
add_library(muster_flags INTERFACE)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU") # clang has no such flag, and warns of it for every file
  set(shadow -Wshadow=local)
endif()
set(c_flags -Wall -Wextra ${shadow} -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wformat=2
  -Wno-format-nonliteral -fno-common)
set(cuda_flags -Xcompiler=-Wall,-Wextra -Wno-deprecated-gpu-targets)
target_compile_definitions(muster_flags INTERFACE _GNU_SOURCE)
target_include_directories(muster_flags INTERFACE ${CMAKE_SOURCE_DIR})
if(MUSTER_WERROR)
  list(APPEND c_flags -Werror)
  list(APPEND cuda_flags -Werror=all-warnings)
endif()
if(MUSTER_SANITIZE)
  # A variable that is used before it is set has a pattern that is no pointer: no run takes it for an empty one by chance.
  list(APPEND c_flags -fsanitize=${MUSTER_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -ftrivial-auto-var-init=pattern)
  target_link_options(muster_flags INTERFACE -fsanitize=${MUSTER_SANITIZE})
else()
  list(APPEND c_flags -fstack-protector-strong)
endif()
if(MUSTER_SANITIZE MATCHES thread) # inform every program of the libraries that the sanitizer cannot see into
  add_library(muster_tsan OBJECT ${CMAKE_SOURCE_DIR}/tests/support/tsan_suppressions.c)
  target_sources(muster_flags INTERFACE
    "$<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:$<TARGET_OBJECTS:muster_tsan>>")
endif()
target_compile_options(muster_flags INTERFACE "$<$<COMPILE_LANGUAGE:C>:${c_flags}>"
  "$<$<COMPILE_LANGUAGE:CUDA>:${cuda_flags}>")
if(MUSTER_LIBFUZZER)
  target_compile_options(muster_flags INTERFACE -fsanitize=fuzzer-no-link) # coverage of every library, not of the entry alone
endif()
