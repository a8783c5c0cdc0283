/* earlier_libstdcxx.cc - exports two functions for Debian 12's libsentencepiece that the libstdc++ of GCC 8
 * lacks. See packages/glibc.py. */
#include <new>
#include <sstream>

#define EXPORTED __attribute__((visibility("default")))

EXPORTED void std::__throw_bad_array_new_length()
{
    throw std::bad_array_new_length();
}

/* std::ostringstream::ostringstream(), by the constructor that is as old as the class */
extern "C" EXPORTED void muster_ostringstream(void *place) __asm__(
    "_ZNSt7__cxx1119basic_ostringstreamIcSt11char_traitsIcESaIcEEC1Ev");
extern "C" void muster_ostringstream(void *place)
{
    new (place) std::ostringstream(std::ios_base::out);
}
