/* host_memory.c - see host_memory.h. */
#include "runtime/device/host_memory.h"

#include "proto/base/buffer.h"
#include "proto/base/cgroup.h"
#include "proto/base/io.h"
#include "proto/base/text.h"

/* A row of the machine's, cut by the group's figure (-1: it has none). */
static int64_t host_memory_least(const char *row, int64_t group)
{
    enum { MEMINFO_LIMIT = 65536 };
    scope_buffer meminfo = {0};
    int64_t least = -1;
    if (io_read_file("/proc/meminfo", MEMINFO_LIMIT, &meminfo, NULL) == 0 && meminfo.data)
        least = text_row(meminfo.data, row);
    if (group >= 0 && (least < 0 || group < least))
        least = group;
    return least > 0 ? least : 0;
}

int64_t host_memory_available(void)
{
    struct cgroup_memory group;
    cgroup_memory("", &group);
    return host_memory_least("MemAvailable", group.left);
}

int64_t host_memory_total(void)
{
    struct cgroup_memory group;
    cgroup_memory("", &group);
    return host_memory_least("MemTotal", group.limit > 0 ? group.limit : -1);
}
