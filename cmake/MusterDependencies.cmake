# The libraries outside our core, each found once and with a message that names what to install.
find_package(Threads REQUIRED)

# jansson without pkg-config: libmuster alone needs nothing else of it.
find_path(JANSSON_INCLUDE jansson.h)
find_library(JANSSON_SHARED jansson)
if(NOT JANSSON_INCLUDE OR NOT JANSSON_SHARED)
  message(FATAL_ERROR "jansson was not found: install libjansson-dev (./dev installs every package by name)")
endif()
add_library(muster_jansson INTERFACE)
target_include_directories(muster_jansson SYSTEM INTERFACE ${JANSSON_INCLUDE})
target_link_libraries(muster_jansson INTERFACE ${JANSSON_SHARED})

if(NOT MUSTER_BUNDLE)
  # OpenBLAS's OpenMP build by explicit path: /etc/alternatives may point libopenblas at the pthread build, whose threads
  # fight with ours.
  find_library(OPENBLAS_OPENMP NAMES openblas PATHS
    /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp
    /usr/lib/x86_64-linux-gnu/openblas-openmp /usr/lib/aarch64-linux-gnu/openblas-openmp NO_DEFAULT_PATH)
  find_path(OPENBLAS_INCLUDE NAMES cblas.h PATHS
    /usr/include/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp
    /usr/include/x86_64-linux-gnu/openblas-openmp /usr/include/aarch64-linux-gnu/openblas-openmp NO_DEFAULT_PATH)
  if(NOT OPENBLAS_OPENMP OR NOT OPENBLAS_INCLUDE)
    message(FATAL_ERROR "OpenBLAS (OpenMP build) was not found: install libopenblas-openmp-dev")
  endif()
  # The kernels load it at run time (kernels/cpu/openblas/openblas.c); fakes of the tests are linked with it.
  add_library(muster_openblas_header INTERFACE)
  target_include_directories(muster_openblas_header SYSTEM INTERFACE ${OPENBLAS_INCLUDE})
  add_library(muster_openblas INTERFACE)
  target_link_libraries(muster_openblas INTERFACE muster_openblas_header ${OPENBLAS_OPENMP})
  get_filename_component(OPENBLAS_FOLDER ${OPENBLAS_OPENMP} DIRECTORY)
  if(CMAKE_SYSROOT)
    string(REPLACE ${CMAKE_SYSROOT} "" OPENBLAS_FOLDER ${OPENBLAS_FOLDER})
  endif()
  if(MUSTER_OPENMP)
    find_package(OpenMP REQUIRED COMPONENTS C)
  endif()
endif()
if(MUSTER_LIBRARY_ONLY)
  return() # what follows is the programs'
endif()

find_package(PkgConfig REQUIRED)

function(muster_pkg name module package)
  pkg_check_modules(${name} IMPORTED_TARGET ${module})
  if(NOT ${name}_FOUND)
    message(FATAL_ERROR "${module} was not found: install ${package} (./dev installs every package by name)")
  endif()
endfunction()
muster_pkg(ZMQ libzmq libzmq3-dev)
muster_pkg(SODIUM libsodium libsodium-dev)
muster_pkg(PROTOBUF_C libprotobuf-c libprotobuf-c-dev)
muster_pkg(YAML yaml-0.1 libyaml-dev)
muster_pkg(MICROHTTPD libmicrohttpd libmicrohttpd-dev)
# Its header alone: the library is loaded where a terminal is wanted (launcher/commands/top_command.c).
find_path(NCURSES_INCLUDE ncurses.h)
if(NOT NCURSES_INCLUDE)
  message(FATAL_ERROR "ncurses.h was not found: install libncurses-dev (./dev installs every package by name)")
endif()
# Their archives, for programs whose start-up counts.
find_library(YAML_ARCHIVE libyaml.a HINTS ${YAML_LIBRARY_DIRS} ${YAML_LIBDIR} REQUIRED)
find_library(JANSSON_ARCHIVE libjansson.a REQUIRED)
find_library(PROTOBUF_C_LINK libprotobuf-c.a HINTS ${PROTOBUF_C_LIBRARY_DIRS} ${PROTOBUF_C_LIBDIR} REQUIRED)

find_program(PROTOC_C protoc-c)
if(NOT PROTOC_C)
  message(FATAL_ERROR "protoc-c was not found: install protobuf-c-compiler")
endif()

if(MUSTER_BUNDLE)
  return() # what follows is the tests' and the trainer's
endif()

muster_pkg(CMOCKA cmocka libcmocka-dev)
# raw texts: compressed files and hashes
muster_pkg(ZLIB zlib zlib1g-dev)
muster_pkg(ZSTD libzstd libzstd-dev)
muster_pkg(XXHASH libxxhash libxxhash-dev)
find_library(ZLIB_ARCHIVE libz.a HINTS ${ZLIB_LIBRARY_DIRS} ${ZLIB_LIBDIR} REQUIRED)
find_library(ZSTD_ARCHIVE libzstd.a HINTS ${ZSTD_LIBRARY_DIRS} ${ZSTD_LIBDIR} REQUIRED)
find_library(XXHASH_ARCHIVE libxxhash.a HINTS ${XXHASH_LIBRARY_DIRS} ${XXHASH_LIBDIR} REQUIRED)
