/* host_memory.c - see host_memory.h. */
#include "runtime/device/host_memory.h"

#include "proto/base/buffer.h"
#include "proto/base/cgroup.h"
#include "proto/base/io.h"
#include "proto/base/text.h"

int64_t host_memory_available(void)
{
    enum { MEMINFO_LIMIT = 65536 };
    scope_buffer meminfo = {0};
    struct cgroup_memory group;
    int64_t least = -1;
    if (io_read_file("/proc/meminfo", MEMINFO_LIMIT, &meminfo, NULL) == 0 && meminfo.data)
        least = text_row(meminfo.data, "MemAvailable");
    cgroup_memory("", &group);
    if (group.left >= 0 && (least < 0 || group.left < least))
        least = group.left;
    return least > 0 ? least : 0;
}
