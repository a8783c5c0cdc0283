/* host_memory.c - see host_memory.h. */
#include "runtime/device/host_memory.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "proto/base/io.h"

enum { FILE_LIMIT = 64 * 1024 };
/* An unlimited group of version 1 shows 2^63 cut to pages. */
#define NO_LIMIT (INT64_C(1) << 60)

static int64_t number(const char *text)
{
    while (*text == ' ' || *text == '\t')
        text++;
    if (!isdigit((unsigned char)*text))
        return -1;
    return strtoll(text, NULL, 10); /* too large a number becomes the largest one, which is right here */
}

int64_t host_memory_row(const char *text, const char *name)
{
    size_t length = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        if (strncmp(line, name, length) || (line[length] != ':' && line[length] != ' '))
            continue;
        int64_t value = number(line + length + 1);
        size_t rest = strcspn(line, "\n");
        const char *unit = memmem(line, rest, "kB", 2);
        return value > 0 && unit ? value * 1024 : value;
    }
    return -1;
}

int64_t host_memory_cgroup(const char *limit, const char *used, const char *stat)
{
    int64_t most = number(limit), now = number(used), cache = 0;
    if (most < 0 || most >= NO_LIMIT || now < 0)
        return -1;
    if (stat)
        cache = host_memory_row(stat, "inactive_file"); /* the kernel reclaims it under memory pressure */
    int64_t left = most - now + (cache > 0 ? cache : 0);
    return left < 0 ? 0 : left > most ? most : left;
}

static const char *read_text(const char *path, struct buffer *out)
{
    buffer_clear(out);
    return io_read_file(path, FILE_LIMIT, out, NULL) || !out->data ? NULL : out->data;
}

static int64_t cgroup_available(const char *limit_path, const char *used_path, const char *stat_path)
{
    scope_buffer limit = {0}, used = {0}, stat = {0};
    const char *most = read_text(limit_path, &limit), *now = read_text(used_path, &used);
    return most && now ? host_memory_cgroup(most, now, read_text(stat_path, &stat)) : -1;
}

int64_t host_memory_available(void)
{
    scope_buffer meminfo = {0};
    const char *text = read_text("/proc/meminfo", &meminfo);
    int64_t least = text ? host_memory_row(text, "MemAvailable") : -1;
    const int64_t groups[] = {
        cgroup_available("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current",
                         "/sys/fs/cgroup/memory.stat"),
        cgroup_available("/sys/fs/cgroup/memory/memory.limit_in_bytes",
                         "/sys/fs/cgroup/memory/memory.usage_in_bytes", "/sys/fs/cgroup/memory/memory.stat"),
    };
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        if (groups[i] >= 0 && (least < 0 || groups[i] < least))
            least = groups[i];
    }
    return least > 0 ? least : 0;
}
