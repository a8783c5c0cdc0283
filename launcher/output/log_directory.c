/* log_directory.c - see log_directory.h. */
#include "launcher/output/log_directory.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"

enum { TAG_LENGTH = 8 };

static void make_tag(uint64_t random, char tag[TAG_LENGTH + 1])
{
    static const char digits[] = "abcdefghijklmnopqrstuvwxyz012345";
    for (int i = 0; i < TAG_LENGTH; i++, random >>= 5)
        tag[i] = digits[random & 31];
    tag[TAG_LENGTH] = '\0';
}

/* The run id as one name of a directory. */
static char *run_name(const char *run_id, const char *tag)
{
    char *name = mem_printf("%s_%s", run_id, tag);
    for (char *at = name; at && *at; at++)
        if (*at == '/')
            *at = '_';
    return name;
}

char *log_directory_make(const char *log_dir, const char *run_id, uint64_t random,
                         struct temporary_folder *temporary, struct muster_error *err)
{
    char tag[TAG_LENGTH + 1], base_tag[TAG_LENGTH + 1];
    make_tag(random, tag);
    make_tag(random >> 24, base_tag);
    bool given = log_dir && *log_dir;
    if (!given)
        temporary_folder_find(temporary);
    scope_free char *base =
        given ? mem_strdup(log_dir) : mem_printf("%s/muster_%s", temporary->path, base_tag);
    scope_free char *name = run_name(run_id, tag);
    scope_free char *run = base && name ? mem_printf("%s/%s", base, name) : NULL;
    if (!run) {
        error_set(err, MUSTER_E_NOMEM, "no memory for the path of the log directory");
        return NULL;
    }
    if (io_make_directories(base, given ? 0777 : 0700, err) < 0 || io_make_directories(run, 0700, err) < 0) {
        error_wrap(err, given ? "--log-dir" : "no folder for the workers' log files (--log-dir=DIR sets it)");
        return NULL;
    }
    char whole[PATH_MAX]; /* workers may write elsewhere and derive their error file's name from it */
    if (!realpath(run, whole))
        return take_pointer(&run);
    char *absolute = mem_strdup(whole);
    return absolute ? absolute : take_pointer(&run);
}

void log_directory_discard(const char *log_dir, const char *run)
{
    scope_free char *base = mem_strdup(run);
    char *slash = base ? strrchr(base, '/') : NULL;
    bool chosen = !log_dir || !*log_dir;
    /* a directory that is not empty stays, and a failing removal is not worth another error line */
    if (rmdir(run) < 0 || !slash || !chosen)
        return;
    *slash = '\0';
    (void)rmdir(base);
}

char *log_directory_worker(const char *run, int64_t attempt, int local_rank, struct muster_error *err)
{
    scope_free char *path = mem_printf("%s/attempt_%lld/%d", run, (long long)attempt, local_rank);
    if (!path) {
        error_set(err, MUSTER_E_NOMEM, "no memory for the path of a log directory");
        return NULL;
    }
    if (io_make_directories(path, 0777, err) < 0)
        return NULL;
    return take_pointer(&path);
}

int log_directory_open(const char *directory, const char *name, struct muster_error *err)
{
    scope_free char *path = mem_printf("%s/%s", directory, name);
    if (!path)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the path of a log file");
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0)
        return error_errno(err, "cannot open the log file %s", path);
    return fd;
}
