/* calibrate_cold.h - how much a rank passes over so that caches are as cold as in a step. */
#ifndef MUSTER_RUNTIME_CALIBRATE_CALIBRATE_COLD_H
#define MUSTER_RUNTIME_CALIBRATE_CALIBRATE_COLD_H

#include <stdint.h>

/* --- pure --- */

/* Bytes of a cache from the system's text ("491520K"), 1 GB at most; 0 where it is none. */
int64_t calibrate_cache_size(const char *text);
/* A rank's part of the cache, at most a quarter of its part of the memory that is available (0: unknown). */
int64_t calibrate_cold_bytes(int64_t cache, int64_t available, int ranks);
/* Bytes to pass over before a call that works on own bytes, in a step that passes over `step` bytes: `cold`,
 * but at most the step's other bytes. */
int64_t calibrate_pass_bytes(int64_t cold, int64_t step, int64_t own);

/* --- reader --- */

/* The largest cache of processor 0; 64 MB where the system does not describe any. root: "" for this machine,
 * or a folder with sys/ below it. */
int64_t calibrate_cache_bytes(const char *root);

#endif
