# Headers of CUDA, NCCL and cuBLASLt: the target muster_cuda_headers. The back end's plain C and the emulated module that the tests
# load need no more than these: no nvcc, no library. From the wheels that ./dev test and ./dev build cuda put into .cuda/
# (cmake/cuda_headers.sh), so that they are the same on every machine, else from a toolkit; beside nvcc from its toolkit first.
# MUSTER_CUDA_HEADERS: whether all are there; where they are not, MUSTER_CUDA_MISSING states what and how to get it, and whatever needs
# them is not built.
set(wheels ${CMAKE_SOURCE_DIR}/.cuda/include)
set(toolkit $ENV{CUDA_HOME}/include /usr/local/cuda/include)
set(first ${wheels} ${toolkit})
if(MUSTER_CUDA)
  set(first ${toolkit} ${wheels})
endif()
find_path(MUSTER_CUDART_INCLUDE cuda_runtime_api.h HINTS ${first} NO_CMAKE_FIND_ROOT_PATH)
find_path(MUSTER_CCCL_INCLUDE nv/target HINTS ${first} NO_CMAKE_FIND_ROOT_PATH)
find_path(MUSTER_NCCL_INCLUDE nccl.h HINTS ${wheels} NO_CMAKE_FIND_ROOT_PATH)
find_path(MUSTER_CUBLASLT_INCLUDE cublasLt.h HINTS ${wheels} NO_CMAKE_FIND_ROOT_PATH)
foreach(place wheels toolkit first) # this file is included at the top
  unset(${place})
endforeach()
mark_as_advanced(MUSTER_CUDART_INCLUDE MUSTER_CCCL_INCLUDE MUSTER_NCCL_INCLUDE MUSTER_CUBLASLT_INCLUDE)

set(MUSTER_CUDA_MISSING "")
set(includes "")
foreach(row "CUDART cuda_runtime_api.h" "CCCL nv/target" "NCCL nccl.h" "CUBLASLT cublasLt.h")
  separate_arguments(row)
  list(GET row 0 name)
  list(GET row 1 header)
  if(MUSTER_${name}_INCLUDE)
    list(APPEND includes ${MUSTER_${name}_INCLUDE})
  else()
    list(APPEND MUSTER_CUDA_MISSING ${header})
  endif()
endforeach()
list(REMOVE_DUPLICATES includes)
add_library(muster_cuda_headers INTERFACE)
target_include_directories(muster_cuda_headers SYSTEM INTERFACE ${includes})
set(MUSTER_CUDA_HEADERS ON)
if(MUSTER_CUDA_MISSING)
  set(MUSTER_CUDA_HEADERS OFF)
  list(JOIN MUSTER_CUDA_MISSING " and " MUSTER_CUDA_MISSING)
  string(APPEND MUSTER_CUDA_MISSING " not found: cmake/cuda_headers.sh .cuda fetches them, and ./dev test does so")
endif()
# tests/lint compiles every header alone
list(JOIN includes "\n" lines)
file(WRITE ${CMAKE_BINARY_DIR}/cuda_includes.txt "${lines}\n")
