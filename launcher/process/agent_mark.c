/* agent_mark.c - see agent_mark.h. */
#include "launcher/process/agent_mark.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "proto/base/buffer.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/mem.h"

static const char suffix[] = ".muster-agent";
enum { MARK_LIMIT = 256, OLD_S = 7 * 24 * 3600 };

/* All lines but the id: two agents with the same ones see the same processes. */
static int describe_place(struct buffer *out)
{
    scope_buffer boot = {0};
    struct stat namespace;
    if (io_read_file("/proc/sys/kernel/random/boot_id", MARK_LIMIT, &boot, NULL) < 0 ||
        stat("/proc/self/ns/pid", &namespace) < 0)
        return -1;
    return buffer_printf(out, "muster agent 1\nboot %.*s\nnamespace %llu\nid ", (int)strcspn(boot.data, "\n"),
                         boot.data, (unsigned long long)namespace.st_ino);
}

/* The id in the file of a dead agent that was in the same place; false: it is another file. */
static bool read_mark(int fd, const struct buffer *place, char id[DESCENDANTS_ID_LENGTH + 1])
{
    char text[MARK_LIMIT];
    const ssize_t got = pread(fd, text, sizeof text, 0);
    if (got != (ssize_t)(place->length + DESCENDANTS_ID_LENGTH + 1) ||
        memcmp(text, place->data, place->length) != 0 || text[got - 1] != '\n')
        return false;
    memcpy(id, text + place->length, DESCENDANTS_ID_LENGTH);
    id[DESCENDANTS_ID_LENGTH] = '\0';
    return strspn(id, "0123456789abcdef") == DESCENDANTS_ID_LENGTH;
}

/* Kills until two looks find nothing: a process may be made after a look. */
static int kill_of_id(const char *id)
{
    enum { LOOKS = 100, PAUSE_MS = 50 };
    const struct descendants left = {.id = id};
    int killed = 0;
    for (int i = 0, clean = 0; i < LOOKS && clean < 2; i++) {
        const int found = descendants_sweep(&left, SIGKILL, NULL, NULL);
        if (found < 0)
            break; /* no /proc */
        killed = found > killed ? found : killed;
        clean = found ? 0 : clean + 1;
        (void)poll(NULL, 0, PAUSE_MS);
    }
    return killed;
}

static int sweep_file(int directory, const char *name, const struct buffer *place)
{
    char id[DESCENDANTS_ID_LENGTH + 1];
    scope_close int fd = openat(directory, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat status;
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 || fstat(fd, &status) < 0)
        return 0; /* its agent lives */
    const bool here = read_mark(fd, place, id);
    if (!here && time(NULL) - status.st_mtime < OLD_S)
        return 0; /* it may be another machine's, which comes back */
    const int killed = here ? kill_of_id(id) : 0;
    (void)unlinkat(directory, name, 0); /* else the next agent finds nothing any more */
    return killed;
}

int agent_mark_sweep(const char *directory, const char *job_id)
{
    scope_buffer place = {.limit = MARK_LIMIT};
    DIR *folder = describe_place(&place) < 0 ? NULL : opendir(directory);
    const size_t job = strlen(job_id);
    int killed = 0;
    for (const struct dirent *entry; folder && (entry = readdir(folder));) {
        const size_t length = strlen(entry->d_name);
        if (length == job + 1 + DESCENDANTS_ID_LENGTH + sizeof suffix - 1 &&
            !strncmp(entry->d_name, job_id, job) && entry->d_name[job] == '.' &&
            !strcmp(entry->d_name + length - (sizeof suffix - 1), suffix))
            killed += sweep_file(dirfd(folder), entry->d_name, &place);
    }
    if (folder)
        (void)closedir(folder);
    return killed;
}

int agent_mark_keep(const char *directory, const char *job_id, const char *id, struct agent_mark *mark,
                    struct muster_error *err)
{
    scope_buffer text = {.limit = MARK_LIMIT};
    *mark = (struct agent_mark){.fd = -1};
    mark->path = mem_printf("%s/%s.%s%s", directory, job_id, id, suffix);
    if (!mark->path || describe_place(&text) < 0 || buffer_printf(&text, "%s\n", id) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory, or no /proc");
    scope_close int fd = open(mark->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return error_errno(err, "cannot make %s", mark->path);
    /* locked while it is empty: nobody takes it for a dead agent's */
    if (flock(fd, LOCK_EX | LOCK_NB) < 0 || write(fd, text.data, text.length) != (ssize_t)text.length) {
        (void)error_errno(err, "cannot lock or write %s", mark->path);
        (void)unlink(mark->path); /* nothing reads an empty one */
        return -1;
    }
    mark->fd = take_fd(&fd);
    return 0;
}

void agent_mark_remove(struct agent_mark *mark)
{
    if (mark->fd >= 0)
        (void)unlink(mark->path); /* the next agent sweeps for nothing if it stays */
    guard_close(&mark->fd);
    mem_free(mark->path);
    *mark = (struct agent_mark){.fd = -1};
}
