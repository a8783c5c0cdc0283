/* reader_cgroup.c - what this process's control group leaves it of memory and CPU time.
 *
 * The limit is the smallest of its own group and of all above. Inside a container the group's path is often
 * the host's, and the container's own group is mounted as the root: a path that is not there counts as the
 * root. */
#include <stdio.h>
#include <string.h>

#include "proto/base/guard.h"
#include "runtime/nccl/read/reader_internal.h"

enum { GROUP = READER_PATH / 2 };

/* A folder of limits, and the names of the files that this version of control groups has there. */
struct version {
    bool second;
    const char *memory, *used;
};

static const struct version first = {false, "memory.limit_in_bytes", "memory.usage_in_bytes"},
                            second = {true, "memory.max", "memory.current"};

static double quota_of(const struct reader *r, const char *folder, const struct version *version)
{
    char line[64];
    double quota = 0, period = 0;
    if (version->second) {
        if (!reader_line(r, line, sizeof line, "%s/cpu.max", folder) ||
            sscanf(line, "%lf %lf", &quota, &period) != 2) /* "max 100000": none */
            return 0;
    } else {
        quota = (double)reader_number(r, -1, "%s/cpu.cfs_quota_us", folder);
        period = (double)reader_number(r, -1, "%s/cpu.cfs_period_us", folder);
    }
    return quota > 0 && period > 0 ? quota / period : 0;
}

static void look_at(struct reader *r, const char *folder, const struct version *version)
{
    struct description *out = r->out;
    int64_t limit = reader_number(r, -1, "%s/%s", folder, version->memory);
    if (limit > 0 && limit < out->memory_bytes && /* none is a number near 2^63 in the first version */
        (out->memory_limit_bytes < 0 || limit < out->memory_limit_bytes)) {
        out->memory_limit_bytes = limit;
        out->memory_used_bytes = reader_number(r, out->memory_used_bytes, "%s/%s", folder, version->used);
    }
    double quota = quota_of(r, folder, version);
    if (quota > 0 && (out->cpu_quota == 0 || quota < out->cpu_quota))
        out->cpu_quota = quota;
}

/* The group at path below base, then all above it. */
static void look_up_from(struct reader *r, const char *base, const char *path, const struct version *version)
{
    char folder[2 * GROUP];
    if (snprintf(folder, sizeof folder, "%s%s", base, path) >= (int)sizeof folder)
        return;
    for (size_t root = strlen(base);;) {
        look_at(r, folder, version);
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < root)
            return;
        *slash = 0;
    }
}

/* "0::/path" (second version) or "4:memory:/path", "2:cpu,cpuacct:/path" (first) */
static void take_line(struct reader *r, char *line)
{
    char base[GROUP];
    line[strcspn(line, "\n")] = 0;
    char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path)
        return;
    controllers++;
    *path++ = 0;
    if (!*controllers)
        look_up_from(r, "/sys/fs/cgroup", path, &second);
    else if (snprintf(base, sizeof base, "/sys/fs/cgroup/%s", controllers) < (int)sizeof base &&
             (!strcmp(controllers, "memory") || !strncmp(controllers, "cpu", 3)))
        look_up_from(r, base, path, &first);
}

void reader_cgroup(struct reader *r)
{
    char path[READER_PATH], line[GROUP];
    look_at(r, "/sys/fs/cgroup", &second);
    look_at(r, "/sys/fs/cgroup/memory", &first);
    look_at(r, "/sys/fs/cgroup/cpu", &first);
    if (!reader_path(r, path, "/proc/self/cgroup"))
        return;
    scope_fclose FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        take_line(r, line);
}
