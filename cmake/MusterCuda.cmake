# The CUDA compiler and runtime; read only with MUSTER_CUDA=ON, so that nothing else ever asks for nvcc.
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR "MUSTER_CUDA=ON, but there is no working nvcc: install the CUDA toolkit (nvcc, cudart) and g++, put "
    "nvcc on PATH or name it with -DCMAKE_CUDA_COMPILER=/usr/local/cuda/bin/nvcc, or configure with -DMUSTER_CUDA=OFF")
endif()

# Our choice: 75 (T4), 80 (A100), 90 (H100, H200), less what this toolkit no longer or not yet compiles for. A user who sets
# CMAKE_CUDA_ARCHITECTURES gets exactly that. It has to be set before the language is enabled, which has a default too.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-arch OUTPUT_VARIABLE known RESULT_VARIABLE status ERROR_QUIET)
  set(architectures "")
  foreach(architecture 75 80 90)
    if(NOT status EQUAL 0 OR known MATCHES "compute_${architecture}(\n|$)") # a toolkit that cannot list: trust it
      list(APPEND architectures ${architecture}-real)
    endif()
  endforeach()
  list(TRANSFORM architectures REPLACE "-real$" "" AT -1) # of the last, PTX too: what newer GPUs compile for themselves
  if(NOT architectures)
    message(FATAL_ERROR "${CMAKE_CUDA_COMPILER} compiles for none of 75, 80, 90: set CMAKE_CUDA_ARCHITECTURES to your GPU's")
  endif()
  set(CMAKE_CUDA_ARCHITECTURES "${architectures}" CACHE STRING "GPU architectures to compile for")
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared) # one runtime in a process, PyTorch's or ours
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
enable_language(CUDA)
set(CMAKE_CUDA_FLAGS_RELWITHDEBINFO "-O2 -g -lineinfo") # as for C: asserts stay on; lines are for compute-sanitizer
set(CMAKE_CUDA_FLAGS_RELEASE "-O2")
find_package(CUDAToolkit REQUIRED)
message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}")
set(CMAKE_OPTIMIZE_DEPENDENCIES ON) # an archive does not wait for those that its users link: the module needs few of them
