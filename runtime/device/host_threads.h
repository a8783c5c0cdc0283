/* host_threads.h - number of compute threads of a rank, where no setting gives it. */
#ifndef MUSTER_RUNTIME_DEVICE_HOST_THREADS_H
#define MUSTER_RUNTIME_DEVICE_HOST_THREADS_H

#include <stdint.h>

enum { HOST_THREADS_MAX = 1024 };

/* Pure. omp: the text of OMP_NUM_THREADS or NULL. The first number of a list counts, as in OpenMP; a text
 * that is no number from 1 to HOST_THREADS_MAX does not count. cpus: number of CPUs that this process may
 * use. */
int host_threads_of(const char *omp, int64_t cpus, int local_world_size);
/* The same of this process: OMP_NUM_THREADS, else its cores (cgroup_cores) / ranks. */
int host_threads(int local_world_size);

#endif
