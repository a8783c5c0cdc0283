/* oom_counters.c - see oom_counters.h. */
#include "launcher/verdict/oom_counters.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/text.h"

enum { TEXT_LIMIT = 65536, DEPTH_LIMIT = 32 };

/* What the files of one version are called. */
struct files {
    const char *directory; /* under the root */
    const char *kills;     /* has a line "oom_kill N" */
    const char *hits[2];   /* NULL: there is none */
    const char *hits_name; /* the line in it; NULL: the file is one number */
    const char *limit;
    const char *peak, *usage; /* usage where the kernel keeps no peak */
};

static const struct files version_2 = {
    .directory = "",
    .kills = "memory.events",
    .hits = {"memory.events"},
    .hits_name = "oom",
    .limit = "memory.max",
    .peak = "memory.peak",
    .usage = "memory.current",
};
static const struct files version_1 = {
    .directory = "/memory",
    .kills = "memory.oom_control",
    .hits = {"memory.failcnt", "memory.memsw.failcnt"}, /* memory with swap has a limit of its own */
    .limit = "memory.limit_in_bytes",
    .peak = "memory.max_usage_in_bytes",
    .usage = "memory.usage_in_bytes",
};

bool oom_counters_is_full(const struct oom_counters_account *account)
{
    return account->limit > 0 && account->peak >= account->limit - account->limit / 64;
}

int64_t oom_counters_number(const char *text, const char *name)
{
    size_t length = strlen(name);
    for (const char *line = text; line && *line;) {
        if (!strncmp(line, name, length) && line[length] == ' ')
            return strtoll(line + length + 1, NULL, 10);
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
    return -1;
}

/* One file of one group. name: of a line; NULL: the file is one number ("max" is none). -1 where there is
 * none. */
static int64_t read_value(const char *group, const char *file, const char *name)
{
    scope_buffer text = {0};
    scope_free char *path = mem_printf("%s/%s", group, file);
    int64_t value = -1;
    if (!path || io_read_file(path, TEXT_LIMIT, &text, NULL) < 0 || !text.length)
        return -1;
    if (name)
        return oom_counters_number(text.data, name);
    text.data[strcspn(text.data, "\n")] = '\0';
    return text_int64(text.data, &value) ? value : -1;
}

static bool is_limit(int64_t value)
{
    return value > 0 && value < INT64_MAX / 2; /* v1 writes the largest page count where there is none */
}

static void look_at_limits(const char *group, const struct files *files, struct oom_counters_account *out)
{
    int64_t limit = read_value(group, files->limit, NULL);
    for (int i = 0; i < 2 && files->hits[i]; i++) {
        int64_t hits = read_value(group, files->hits[i], files->hits_name);
        out->hits += hits > 0 ? hits : 0;
    }
    if (is_limit(limit) && (!out->limit || limit < out->limit))
        out->limit = limit;
}

/* The group, then those above it up to base (bytes of path), whose limits count too. */
static bool look_upward(char *path, size_t base, const struct files *files, struct oom_counters_account *out)
{
    *out = (struct oom_counters_account){.kills = read_value(path, files->kills, "oom_kill")};
    if (out->kills < 0)
        return false;
    int64_t peak = read_value(path, files->peak, NULL);
    if (peak < 0)
        peak = read_value(path, files->usage, NULL);
    out->peak = peak > 0 ? peak : 0;
    for (int level = 0; level < DEPTH_LIMIT; level++) {
        look_at_limits(path, files, out);
        char *slash = strrchr(path, '/');
        if (!slash || (size_t)(slash - path) < base)
            break;
        *slash = '\0';
    }
    return true;
}

static bool names_memory(const char *controllers, size_t length)
{
    static const char name[] = "memory";
    for (const char *at = controllers, *end = controllers + length; at < end;) {
        size_t word = strcspn(at, ",:");
        if (word == sizeof name - 1 && !strncmp(at, name, word))
            return true;
        at += word + 1;
    }
    return false;
}

/* One line of /proc/self/cgroup: number:controllers:path. */
static bool look_at_line(const char *root, const char *line, struct oom_counters_account *out)
{
    const char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path)
        return false;
    size_t length = (size_t)(path - controllers - 1), path_length = strcspn(path + 1, "\n");
    const struct files *files = length == 0                             ? &version_2
                                : names_memory(controllers + 1, length) ? &version_1
                                                                        : NULL;
    if (!files)
        return false;
    while (path_length && path[path_length] == '/') /* "/" is the mount itself */
        path_length--;
    scope_free char *base = mem_printf("%s%s", root, files->directory);
    scope_free char *group = base ? mem_printf("%s%.*s", base, (int)path_length, path + 1) : NULL;
    return group &&
           (look_upward(group, strlen(base), files, out) || look_upward(base, strlen(base), files, out));
}

bool oom_counters_look(const char *root, const char *proc_self_cgroup, struct oom_counters_account *out)
{
    for (const char *line = proc_self_cgroup; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (look_at_line(root, line, out))
            return true;
    }
    *out = (struct oom_counters_account){0};
    return false;
}

bool oom_counters_look_at_own(struct oom_counters_account *out)
{
    scope_buffer text = {0};
    *out = (struct oom_counters_account){0};
    return io_read_file("/proc/self/cgroup", TEXT_LIMIT, &text, NULL) == 0 && text.length &&
           oom_counters_look("/sys/fs/cgroup", text.data, out);
}
