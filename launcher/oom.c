/* oom.c - see oom.h. */
#include "launcher/oom.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/guard.h"
#include "proto/base/io.h"

enum { TEXT_LIMIT = 65536 };

int64_t oom_parse(const char *text)
{
    static const char name[] = "oom_kill ";
    for (const char *line = text; line && *line; line = strchr(line, '\n'), line += line != NULL)
        if (!strncmp(line, name, sizeof name - 1))
            return strtoll(line + sizeof name - 1, NULL, 10);
    return -1;
}

static int64_t read_counter(const char *root, const char *controller, const char *group, size_t length,
                            const char *file)
{
    scope_buffer text = {0};
    scope_free char *path = mem_printf("%s%s%.*s/%s", root, controller, (int)length, group, file);
    return path && io_read_file(path, TEXT_LIMIT, &text, NULL) == 0 && text.length ? oom_parse(text.data)
                                                                                   : -1;
}

/* One line of /proc/self/cgroup: number:controllers:path. */
static int64_t read_line(const char *root, const char *line)
{
    const char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path)
        return -1;
    size_t length = (size_t)(path - controllers - 1), path_length = strcspn(path + 1, "\n");
    bool v2 = length == 0;
    if (!v2 && (length != strlen("memory") || strncmp(controllers + 1, "memory", length)))
        return -1;
    const char *directory = v2 ? "" : "/memory", *file = v2 ? "memory.events" : "memory.oom_control";
    int64_t count = read_counter(root, directory, path + 1, path_length, file);
    return count >= 0 ? count : read_counter(root, directory, "", 0, file);
}

int64_t oom_read(const char *root, const char *proc_self_cgroup)
{
    int64_t found = -1;
    for (const char *line = proc_self_cgroup; line && *line && found < 0; line = strchr(line, '\n')) {
        line += *line == '\n';
        found = read_line(root, line);
    }
    return found;
}

int64_t oom_count(void)
{
    scope_buffer text = {0};
    if (io_read_file("/proc/self/cgroup", TEXT_LIMIT, &text, NULL) < 0 || !text.length)
        return -1;
    return oom_read("/sys/fs/cgroup", text.data);
}
