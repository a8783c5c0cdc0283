/* rank_threads.h - ranks as threads of one process: runs body(rank, world_size, context) on world_size
 * threads at once and returns when all are back; the result is the first non-zero return by rank, else 0.
 * Inside, cmocka's asserts must not be used (they jump): return a value and print instead. */
#ifndef MUSTER_TESTS_RANK_THREADS_H
#define MUSTER_TESTS_RANK_THREADS_H

int rank_threads_run(int world_size, int (*body)(int rank, int world_size, void *context), void *context);

#endif
