/* team.h - the threads beneath the parallel loops of kernels/cpu. */
#ifndef MUSTER_KERNELS_CPU_TEAM_H
#define MUSTER_KERNELS_CPU_TEAM_H

#include <stddef.h>

#include "proto/include/muster_error.h"

/* Gives the calling thread a team of `threads`, itself included, for its parallel loops; it ends with the
 * thread. begin is called once on each. A team of the same size is kept. */
int team_start(int threads, void (*begin)(void), struct muster_error *err);
/* Threads of the calling thread's team; 1 without a team. */
int team_size(void);
/* Lends `each` bytes to every thread of the calling thread's team: memory has them one after the other, and
 * outlives the team. Between loops. */
void team_lend(void *memory, size_t each);
/* The part of the calling thread, in a loop or outside; NULL: none was lent. */
void *team_lent(void);

#endif
