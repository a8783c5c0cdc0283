/* warm_key.c - see warm_key.h. */
#include "launcher/warm/warm_key.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"

/* --- the environment --- */

/* A name ends with "*" where all that begin so are meant. */
static const char *const passing[] = {
    "MUSTER_*",
    "TORCHELASTIC_*",
    "PET_*",
    "RANK",
    "LOCAL_RANK",
    "GROUP_RANK",
    "ROLE_RANK",
    "ROLE_NAME",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_WORLD_SIZE",
    "ROLE_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "JOB_COMPLETION_INDEX",
    "_",
    "PWD",
    "OLDPWD",
    "SHLVL",
    "SSH_*",
    "COLUMNS",
    "LINES",
    "WINDOWID",
    "TMUX*",
    "XDG_SESSION_ID",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
};

bool warm_key_is_passing(const char *entry)
{
    const size_t length = strcspn(entry, "=");
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++) {
        size_t known = strlen(passing[i]);
        const bool begins = passing[i][known - 1] == '*';
        known -= begins;
        if (!strncmp(entry, passing[i], known) && (length == known || (begins && length > known)))
            return true;
    }
    return false;
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int warm_key_environment(char *const *all, struct text_list *out)
{
    for (; *all; all++)
        if (!warm_key_is_passing(*all) && text_list_take(out, mem_strdup(*all)) < 0)
            return -1;
    if (out->count)
        qsort(out->items, out->count, sizeof *out->items, compare_texts);
    return 0;
}

/* --- records --- */

static void end_record(struct buffer *out)
{
    (void)buffer_append(out, "", 1); /* out remembers a failure */
}

static void key_put_text(struct buffer *out, const char *field, const char *value)
{
    buffer_printf(out, "%s=%s", field, value);
    end_record(out);
}

/* Which file a path is now; "none" where there is none. */
static void put_file(struct buffer *out, const char *field, const char *path)
{
    struct stat status;
    if (stat(path, &status) < 0)
        buffer_printf(out, "%s=%s none", field, path);
    else
        buffer_printf(out, "%s=%s %llu:%llu %lld %lld.%09ld", field, path, (unsigned long long)status.st_dev,
                      (unsigned long long)status.st_ino,
                      S_ISDIR(status.st_mode) ? 0LL : (long long)status.st_size,
                      S_ISDIR(status.st_mode) ? 0LL : (long long)status.st_mtim.tv_sec,
                      S_ISDIR(status.st_mode) ? 0L : status.st_mtim.tv_nsec);
    end_record(out);
}

/* The text of a small file of /proc; a file that cannot be read is the same for all. */
static void put_text_of(struct buffer *out, const char *field, const char *path)
{
    enum { TEXT_LIMIT = 65536 };
    scope_buffer text = {0};
    if (io_read_file(path, TEXT_LIMIT, &text, NULL) < 0)
        buffer_clear(&text);
    buffer_printf(out, "%s=", field);
    buffer_append(out, text.data, text.length);
    end_record(out);
}

/* --- the program --- */

static void put_interpreter(struct buffer *out, const char *path)
{
    const char *slash = strrchr(path, '/');
    put_file(out, "interpreter", path);
    if (!slash)
        return;
    scope_free char *settings = mem_printf("%.*s/../pyvenv.cfg", (int)(slash - path), path);
    if (settings)
        put_file(out, "virtual environment", settings);
    else
        out->failed = true;
}

static void put_folders(struct buffer *out, const char *program)
{
    char here[PATH_MAX];
    if (!getcwd(here, sizeof here))
        (void)snprintf(here, sizeof here, "(removed)");
    put_file(out, "working directory", here);
    put_file(out, "root directory", "/");
    if (!program)
        return;
    scope_free char *real = realpath(program, NULL);
    char *slash = real ? strrchr(real, '/') : NULL;
    if (slash && slash != real)
        *slash = '\0';
    put_file(out, "folder of the script", real ? real : program);
}

/* --- inherited properties --- */

static void put_status(struct buffer *out)
{
    static const char *const wanted[] = {
        "Umask",  "Uid",    "Gid",     "Groups",          "CapInh",     "CapPrm",       "CapEff",
        "CapBnd", "CapAmb", "Seccomp", "Seccomp_filters", "NoNewPrivs", "Cpus_allowed", "Mems_allowed",
    };
    scope_buffer text = {0};
    if (io_read_file("/proc/self/status", 65536, &text, NULL) < 0)
        return;
    for (char *line = text.data, *end; line && *line; line = end) {
        end = line + strcspn(line, "\n");
        end += *end ? 1 : 0;
        size_t name = strcspn(line, ":\n");
        for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
            if (strlen(wanted[i]) == name && !memcmp(wanted[i], line, name)) {
                buffer_printf(out, "%s=%.*s", wanted[i], (int)(end - line), line);
                end_record(out);
            }
    }
}

static void put_namespaces(struct buffer *out)
{
    static const char *const kinds[] = {
        "cgroup", "ipc", "mnt", "net", "pid", "pid_for_children", "time", "time_for_children", "user", "uts"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char path[64], target[128];
        (void)snprintf(path, sizeof path, "/proc/self/ns/%s", kinds[i]);
        ssize_t length = readlink(path, target, sizeof target - 1);
        target[length > 0 ? length : 0] = '\0';
        buffer_printf(out, "namespace %s=%s", kinds[i], target);
        end_record(out);
    }
}

/* The soft limit of RLIMIT_RTTIME is the mark of an agent (launcher/process/descendants.h). */
static void put_limits(struct buffer *out, const struct warm_key_subject *subject)
{
    for (int which = 0; which < (int)RLIM_NLIMITS; which++) {
        struct rlimit limit;
        if (getrlimit((__rlimit_resource_t)which, &limit) < 0)
            continue;
        if (which == RLIMIT_NOFILE && subject->descriptors)
            limit = *subject->descriptors;
        if (which == RLIMIT_CORE && subject->core_dumps)
            limit = *subject->core_dumps;
        if (which == RLIMIT_RTTIME)
            limit.rlim_cur = limit.rlim_max;
        buffer_printf(out, "limit %d=%llu %llu", which, (unsigned long long)limit.rlim_cur,
                      (unsigned long long)limit.rlim_max);
        end_record(out);
    }
}

static void put_process(struct buffer *out)
{
    put_status(out);
    put_namespaces(out);
    put_text_of(out, "control group", "/proc/self/cgroup");
    put_text_of(out, "OOM score", "/proc/self/oom_score_adj");
    put_text_of(out, "core dumps", "/proc/self/coredump_filter");
    put_text_of(out, "login", "/proc/self/loginuid");
    put_text_of(out, "security label", "/proc/self/attr/current");
    errno = 0;
    buffer_printf(out, "scheduling=%d %ld %ld %d %d", (int)syscall(SYS_sched_getscheduler, 0),
                  (long)syscall(SYS_getpriority, 0, 0), (long)syscall(SYS_ioprio_get, 1, 0),
                  personality(0xffffffffUL), prctl(PR_GET_TIMERSLACK));
    end_record(out);
}

int warm_key_write(const struct warm_key_subject *subject, struct buffer *out, struct muster_error *err)
{
    key_put_text(out, "version", MUSTER_VERSION);
    put_file(out, "muster", "/proc/self/exe");
    put_interpreter(out, subject->interpreter);
    key_put_text(out, "modules", subject->modules);
    put_folders(out, subject->program);
    for (char *const *entry = subject->environment; entry && *entry; entry++) {
        buffer_printf(out, "variable %s", *entry);
        end_record(out);
    }
    buffer_text(out, "ignored signals=");
    for (int number = 1; subject->ignored && number <= 64; number++)
        if (sigismember(subject->ignored, number) == 1)
            buffer_printf(out, " %d", number);
    end_record(out);
    put_limits(out, subject);
    put_process(out);
    return out->failed ? error_set(err, MUSTER_E_NOMEM, "no memory for the key of a template") : 0;
}

/* --- two keys --- */

/* The value of a field, by "FIELD=" with its length; NULL: none. */
static const char *value_of(const char *key, size_t key_length, const char *field, size_t length)
{
    for (const char *at = key; at < key + key_length; at += strlen(at) + 1)
        if (!strncmp(at, field, length))
            return at + length;
    return NULL;
}

/* A record of a that b does not have, or has with another value; NULL: none. */
static const char *first_apart(const char *a, size_t a_length, const char *b, size_t b_length)
{
    for (const char *at = a; at < a + a_length; at += strlen(at) + 1) {
        const size_t length = strcspn(at, "=") + 1;
        const char *other = value_of(b, b_length, at, length);
        if (!other || strcmp(other, at + length) != 0)
            return at;
    }
    return NULL;
}

void warm_key_difference(const char *a, size_t a_length, const char *b, size_t b_length, char *field,
                         size_t size)
{
    const char *found = first_apart(a, a_length, b, b_length);
    if (!found)
        found = first_apart(b, b_length, a, a_length);
    (void)snprintf(field, size, "%.*s", found ? (int)strcspn(found, "=") : 0, found ? found : "");
}
