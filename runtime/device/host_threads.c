/* host_threads.c - see host_threads.h. */
#include "runtime/device/host_threads.h"

#include <ctype.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "proto/base/buffer.h"
#include "proto/base/io.h"
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

int64_t host_threads_quota(const char *cpu_max)
{
    char *end;
    long long quota = strtoll(cpu_max, &end, 10); /* 0 of "max": no limit */
    long long period = strtoll(end, NULL, 10);
    return quota > 0 && period > 0 ? (quota - 1) / period + 1 : 0;
}

int host_threads(int local_world_size)
{
    enum { FILE_LIMIT = 256 };
    cpu_set_t set;
    scope_buffer cpu_max = {0};
    /* More CPUs than the set has room for is an error: then all of them count. */
    int64_t cpus =
        sched_getaffinity(0, sizeof set, &set) ? sysconf(_SC_NPROCESSORS_ONLN) : (int64_t)CPU_COUNT(&set);
    if (!io_read_file("/sys/fs/cgroup/cpu.max", FILE_LIMIT, &cpu_max, NULL) && cpu_max.data) {
        int64_t quota = host_threads_quota(cpu_max.data);
        cpus = quota > 0 && quota < cpus ? quota : cpus;
    }
    return host_threads_of(getenv(ENV_OMP_NUM_THREADS), cpus, local_world_size);
}
