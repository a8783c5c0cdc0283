/* slurm.h - pure: Slurm's compressed lists, of hosts "node[01-04,7],gpu-a,r[1-2]n[1-3]" and of the tasks on
 * each "2(x3),1". */
#ifndef MUSTER_PROTO_SLURM_H
#define MUSTER_PROTO_SLURM_H

#include <stddef.h>
#include <stdint.h>

#include "proto/include/muster_error.h"

enum { SLURM_HOSTS_LIMIT = 1000000 };

/* How many hosts the list names, at most SLURM_HOSTS_LIMIT; -1 if it is malformed. */
int64_t slurm_host_count(const char *list, struct muster_error *err);
/* The host of this index, from 0, in the list's order: leading zeros are kept, and of several brackets in one
 * name the last changes fastest. A name longer than size - 1 is an error. */
int slurm_host_at(const char *list, int64_t index, char *out, size_t size, struct muster_error *err);
/* The tasks on the node of this index, from a list like SLURM_STEP_TASKS_PER_NODE; -1 if it is malformed or
 * ends before. */
int64_t slurm_tasks_at(const char *list, int64_t index, struct muster_error *err);

#endif
