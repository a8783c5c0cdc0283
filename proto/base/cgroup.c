/* cgroup.c - see cgroup.h. One walk from the own group to the mount's root; each question is a visitor. */
#include "proto/base/cgroup.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/text.h"

enum { TEXT_LIMIT = 65536 };

/* --- pure --- */

static bool line_names(const struct cgroup_line *line, const char *controller)
{
    size_t wanted = strlen(controller);
    for (const char *at = line->controllers, *end = at + line->controllers_length; at < end;) {
        size_t word = strcspn(at, ",:");
        if (word == wanted && !strncmp(at, controller, word))
            return true;
        at += word + 1;
    }
    return false;
}

bool cgroup_next_line(const char **text, const char *controller, struct cgroup_line *out)
{
    while (**text) {
        const char *line = *text, *end = line + strcspn(line, "\n");
        *text = end + (*end == '\n');
        const char *number_end = memchr(line, ':', (size_t)(end - line));
        const char *names_end =
            number_end ? memchr(number_end + 1, ':', (size_t)(end - number_end - 1)) : NULL;
        if (!names_end)
            continue;
        *out = (struct cgroup_line){.controllers = number_end + 1, .path = names_end + 1};
        out->controllers_length = (size_t)(names_end - out->controllers);
        out->path_length = (size_t)(end - out->path);
        while (out->path_length && out->path[out->path_length - 1] == '/') /* "/" is the mount itself */
            out->path_length--;
        out->second = out->controllers_length == 0;
        if (out->second || line_names(out, controller))
            return true;
    }
    return false;
}

/* A positive number at text, and the text after it; false for anything else ("max", "-1"). */
static bool is_positive(const char *text, long long *out, const char **rest)
{
    char *end;
    *out = strtoll(text, &end, 10);
    *rest = end;
    return end != text && *out > 0;
}

double cgroup_quota_second(const char *cpu_max)
{
    long long quota, period = 100000; /* the kernel's default */
    const char *rest;
    if (!is_positive(cpu_max, &quota, &rest))
        return 0;
    if (*rest == ' ' && !is_positive(rest, &period, &rest))
        return 0;
    return (double)quota / (double)period;
}

double cgroup_quota_first(const char *quota_us, const char *period_us)
{
    long long quota, period;
    const char *rest;
    if (!is_positive(quota_us, &quota, &rest) || !is_positive(period_us, &period, &rest))
        return 0;
    return (double)quota / (double)period;
}

int cgroup_whole_cores(int cpus, double quota)
{
    int cores = quota > 0 && quota < cpus ? (int)quota : cpus;
    return cores > 0 ? cores : 1;
}

bool cgroup_oom_is_full(const struct cgroup_oom *oom)
{
    return oom->limit > 0 && oom->peak >= oom->limit - oom->limit / 64;
}

/* --- the walk --- */

static const char *read_small(const char *group, const char *file, struct buffer *out)
{
    scope_free char *path = mem_printf("%s/%s", group, file);
    buffer_clear(out);
    return path && io_read_file(path, TEXT_LIMIT, out, NULL) == 0 && out->data ? out->data : NULL;
}

/* One file of one group. row: of a text of rows; NULL: the file is one number ("max" is none). -1 where there
 * is none. */
static int64_t read_value(const char *group, const char *file, const char *row)
{
    scope_buffer text = {0};
    int64_t value;
    if (!read_small(group, file, &text))
        return -1;
    if (row)
        return text_row(text.data, row);
    text.data[strcspn(text.data, "\n")] = '\0';
    return text_int64(text.data, &value) ? value : -1;
}

/* Reads a group; the caller then goes to the group above. Returns whether the group has the controller. */
typedef bool cgroup_visitor(const char *group, bool second, void *context);

static bool walk_up(char *group, size_t base, bool second, cgroup_visitor *visit, void *context)
{
    bool found = false;
    for (;;) {
        found |= visit(group, second, context);
        char *slash = strrchr(group, '/');
        if (!slash || (size_t)(slash - group) < base)
            return found;
        *slash = '\0';
    }
}

/* Where a version 1 line's controllers are mounted: together, or each in a folder of its own. */
static char *mount_of(const char *root, const struct cgroup_line *line, const char *controller)
{
    if (line->second)
        return mem_printf("%s/sys/fs/cgroup", root);
    char *together =
        mem_printf("%s/sys/fs/cgroup/%.*s", root, (int)line->controllers_length, line->controllers);
    if (!together || access(together, F_OK) == 0)
        return together;
    mem_free(together);
    return mem_printf("%s/sys/fs/cgroup/%s", root, controller);
}

/* A controller is in one hierarchy: that of the first line that has a file of it. */
static void walk(const char *root, const char *controller, cgroup_visitor *visit, void *context)
{
    static const char unknown[] = "2:cpu:/\n1:memory:/\n0::/\n";
    struct cgroup_line line;
    scope_buffer text = {0};
    const char *at = read_small(root, "proc/self/cgroup", &text);
    for (at = at ? at : unknown; cgroup_next_line(&at, controller, &line);) {
        scope_free char *mount = mount_of(root, &line, controller);
        scope_free char *group = mount ? mem_printf("%s%.*s", mount, (int)line.path_length, line.path) : NULL;
        if (group && walk_up(group, strlen(mount), line.second, visit, context))
            return;
    }
}

/* --- CPU time --- */

static bool visit_quota(const char *group, bool second, void *context)
{
    double *least = context, quota = 0;
    scope_buffer text = {0}, period = {0};
    const char *first = read_small(group, second ? "cpu.max" : "cpu.cfs_quota_us", &text);
    if (first && second)
        quota = cgroup_quota_second(first);
    else if (first && read_small(group, "cpu.cfs_period_us", &period))
        quota = cgroup_quota_first(first, period.data);
    if (quota > 0 && (*least == 0 || quota < *least))
        *least = quota;
    return first != NULL;
}

double cgroup_cpu_quota(const char *root)
{
    double least = 0;
    walk(root, "cpu", visit_quota, &least);
    return least;
}

static int affinity_count(void)
{
    /* The kernel wants a mask at least as large as its own; machines above 1,024 CPUs need more than
     * cpu_set_t. */
    for (int cpus = 1024; cpus <= 1 << 18; cpus *= 4) {
        cpu_set_t *set = CPU_ALLOC(cpus);
        if (!set)
            break;
        size_t size = CPU_ALLOC_SIZE(cpus);
        int got = sched_getaffinity(0, size, set) == 0 ? CPU_COUNT_S(size, set) : 0;
        CPU_FREE(set);
        if (got > 0)
            return got;
    }
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

int cgroup_cores(void)
{
    return cgroup_whole_cores(affinity_count(), cgroup_cpu_quota(""));
}

/* --- memory --- */

/* Names of a version's files. */
struct memory_files {
    const char *limit, *usage, *cache; /* cache: the row of memory.stat, with the groups below */
    const char *kills;                 /* has a row "oom_kill" */
    const char *hits[2];               /* NULL: there is none */
    const char *hits_row;              /* the row in it; NULL: the file is one number */
    const char *peak;                  /* new kernels have it: else the usage */
};
static const struct memory_files versions[] = {
    {.limit = "memory.limit_in_bytes",
     .usage = "memory.usage_in_bytes",
     .cache = "total_inactive_file",
     .kills = "memory.oom_control",
     .hits = {"memory.failcnt", "memory.memsw.failcnt"}, /* memory with swap has a limit of its own */
     .peak = "memory.max_usage_in_bytes"},
    {.limit = "memory.max",
     .usage = "memory.current",
     .cache = "inactive_file",
     .kills = "memory.events",
     .hits = {"memory.events"},
     .hits_row = "oom",
     .peak = "memory.peak"},
};

/* The group's own limit; 0: none. Version 1 writes the largest page count where there is none. */
static int64_t read_limit(const char *group, const struct memory_files *files)
{
    int64_t limit = read_value(group, files->limit, NULL);
    return limit > 0 && limit < INT64_MAX / 2 ? limit : 0;
}

static bool visit_memory(const char *group, bool second, void *context)
{
    struct cgroup_memory *out = context;
    const struct memory_files *files = &versions[second];
    int64_t used = read_value(group, files->usage, NULL), limit = read_limit(group, files);
    if (!limit)
        return used >= 0;
    if (!out->limit || limit < out->limit) {
        out->limit = limit;
        out->used = used;
    }
    if (used >= 0) {
        int64_t cache = read_value(group, "memory.stat", files->cache), left;
        left = limit - used + (cache > 0 ? cache : 0);
        left = left < 0 ? 0 : left > limit ? limit : left;
        out->left = out->left < 0 || left < out->left ? left : out->left;
    }
    return true;
}

void cgroup_memory(const char *root, struct cgroup_memory *out)
{
    *out = (struct cgroup_memory){.used = -1, .left = -1};
    walk(root, "memory", visit_memory, out);
}

/* --- processes --- */

static bool visit_pids(const char *group, bool second, void *context)
{
    struct cgroup_pids *out = context;
    int64_t used = read_value(group, "pids.current", NULL), limit = read_value(group, "pids.max", NULL);
    (void)second; /* both versions have the same files */
    if (used >= 0 && limit >= 0 && (out->limit < 0 || limit - used < out->limit - out->used))
        *out = (struct cgroup_pids){.limit = limit, .used = used};
    return used >= 0;
}

void cgroup_pids(const char *root, struct cgroup_pids *out)
{
    *out = (struct cgroup_pids){.limit = -1};
    walk(root, "pids", visit_pids, out);
}

/* --- memory that ran out --- */

struct oom_walk {
    struct cgroup_oom *out;
    bool counted;
};

static bool visit_oom(const char *group, bool second, void *context)
{
    struct oom_walk *walk = context;
    struct cgroup_oom *out = walk->out;
    const struct memory_files *files = &versions[second];
    int64_t kills = walk->counted ? -1 : read_value(group, files->kills, "oom_kill");
    if (kills >= 0) { /* the nearest group that is counted */
        int64_t peak = read_value(group, files->peak, NULL);
        peak = peak < 0 ? read_value(group, files->usage, NULL) : peak;
        out->peak = peak > 0 ? peak : 0;
        out->kills = kills;
        walk->counted = true;
    }
    for (int i = 0; i < 2 && files->hits[i]; i++) {
        int64_t hits = read_value(group, files->hits[i], files->hits_row);
        out->hits += hits > 0 ? hits : 0;
    }
    int64_t limit = read_limit(group, files);
    if (limit && (!out->limit || limit < out->limit))
        out->limit = limit;
    return walk->counted;
}

bool cgroup_oom(const char *root, struct cgroup_oom *out)
{
    struct oom_walk context = {.out = out};
    *out = (struct cgroup_oom){0};
    walk(root, "memory", visit_oom, &context);
    if (!context.counted)
        *out = (struct cgroup_oom){0};
    return context.counted;
}
