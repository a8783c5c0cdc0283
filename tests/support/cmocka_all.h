/* cmocka_all.h - cmocka with the headers that it wants before it. */
#ifndef MUSTER_TESTS_CMOCKA_ALL_H
#define MUSTER_TESTS_CMOCKA_ALL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Ends a test that cannot run here, with the reason: the tests' runner lists untested cases (run_tests.py).
 */
#define skip_because(...)                                                                                    \
    do {                                                                                                     \
        print_message("skipped: ");                                                                          \
        print_message(__VA_ARGS__);                                                                          \
        print_message("\n");                                                                                 \
        skip();                                                                                              \
    } while (0)

#endif
