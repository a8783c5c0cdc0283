/* host_threads.c - see host_threads.h. */
#include "runtime/device/host_threads.h"

#include <ctype.h>
#include <stdlib.h>

#include "proto/base/cgroup.h"
#include "proto/env_names.h"

int host_threads_of(const char *omp, int64_t cpus, int local_world_size)
{
    char *end = NULL;
    long asked = omp && isdigit((unsigned char)*omp) ? strtol(omp, &end, 10) : 0;
    if (asked > 0 && asked <= HOST_THREADS_MAX && (*end == '\0' || *end == ','))
        return (int)asked;
    int64_t share = cpus / (local_world_size > 0 ? local_world_size : 1);
    return share < 1 ? 1 : share > HOST_THREADS_MAX ? HOST_THREADS_MAX : (int)share;
}

int host_threads(int local_world_size)
{
    return host_threads_of(getenv(ENV_OMP_NUM_THREADS), cgroup_cores(), local_world_size);
}
