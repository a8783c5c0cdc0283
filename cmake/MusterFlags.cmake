# Asserts guard the control plane and stay on in every build type.
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g")
set(CMAKE_C_FLAGS_RELEASE "-O2")

# The flags of every target, carried by one interface target.
add_library(muster_flags INTERFACE)
target_compile_options(muster_flags INTERFACE -Wall -Wextra -Wshadow=local -Wstrict-prototypes -Wmissing-prototypes
  -Wvla -Wformat=2 -Wno-format-nonliteral -fno-common)
target_compile_definitions(muster_flags INTERFACE _GNU_SOURCE)
target_include_directories(muster_flags INTERFACE ${CMAKE_SOURCE_DIR})
if(MUSTER_WERROR)
  target_compile_options(muster_flags INTERFACE -Werror)
endif()
if(MUSTER_SANITIZE)
  target_compile_options(muster_flags INTERFACE -fsanitize=${MUSTER_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_link_options(muster_flags INTERFACE -fsanitize=${MUSTER_SANITIZE})
else()
  target_compile_options(muster_flags INTERFACE -fstack-protector-strong)
endif()
