/* cmocka_all.h - cmocka with the headers that it wants before it. */
#ifndef MUSTER_TESTS_CMOCKA_ALL_H
#define MUSTER_TESTS_CMOCKA_ALL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#endif
