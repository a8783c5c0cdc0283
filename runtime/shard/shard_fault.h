/* shard_fault.h - accesses to released groups, found by their page fault.
 *
 * A group's range without a slot cannot be accessed. With a watch on its ranges the access ends no process:
 * a SIGSEGV handler puts NaNs there, remembers the address and calls `notify`. Signals belong to the process,
 * so the list of watched ranges is one for all objects; a fault at another address goes to the handler that
 * was there before. */
#ifndef MUSTER_RUNTIME_SHARD_SHARD_FAULT_H
#define MUSTER_RUNTIME_SHARD_SHARD_FAULT_H

#include "runtime/shard/shard_ranges.h"

enum { SHARD_FAULT_WATCHES = 1024 }; /* in one process */

/* notify, which may be NULL, is called inside of the signal handler. The ranges must stay where they are
 * until shard_fault_forget. */
int shard_fault_watch(struct shard_ranges *ranges, int (*notify)(int argument), int argument,
                      struct muster_error *err);
/* Accepts ranges that nothing watches. */
void shard_fault_forget(struct shard_ranges *ranges);
/* The address of the first access since the last call, or NULL. The released ranges are inaccessible again.
 */
char *shard_fault_take(struct shard_ranges *ranges);

#endif
