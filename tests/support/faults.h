/* faults.h - a leak-checking allocator with countdown fault injection, on the hook of proto/base/mem.h.
 *
 *     faults_begin();                 // from here every block is counted
 *     faults_fail_after(3);           // the fourth allocation from now fails, once
 *     ...
 *     assert_int_equal(faults_end(), 0);   // blocks still allocated
 */
#ifndef MUSTER_TESTS_FAULTS_H
#define MUSTER_TESTS_FAULTS_H

#include <stdbool.h>
#include <stddef.h>

void faults_begin(void);
/* The allocation after `count` good ones fails, once; a negative count disarms. */
void faults_fail_after(long count);
/* Whether the armed failure has happened. */
bool faults_happened(void);
/* Blocks allocated since faults_begin and not freed. */
long faults_live_blocks(void);
/* Removes the hook and returns faults_live_blocks(). */
long faults_end(void);

/* Runs body with the 1st, 2nd, ... allocation failing until a run sees no failure; asserts that each run
 * leaks nothing. body returns the result of the code under test: negative if a failure was injected, or an
 * error was swallowed. */
void faults_sweep(int (*body)(void *context), void *context);
/* The same where some allocations can be done without: body may succeed in spite of a failure. */
void faults_sweep_absorbed(int (*body)(void *context), void *context);

#endif
