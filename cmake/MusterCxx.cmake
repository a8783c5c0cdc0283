# Whether there is a C++ compiler: CMAKE_CXX_COMPILER. ./dev run needs none, and on a new machine ./dev test installs one after it; what
# CMake keeps of the first look must not hide it from the second.
include_guard()
include(CheckLanguage)
if(NOT CMAKE_CXX_COMPILER)
  unset(CMAKE_CXX_COMPILER CACHE)
endif()
check_language(CXX)
