/* descendants.c - see descendants.h. Everything here runs in the guardian too: system calls and plain memory
 * only. */
#include "launcher/process/descendants.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/base/guard.h"

/* --- text --- */

static bool parse_number(const char **at, const char *end, long *out)
{
    const char *c = *at;
    bool negative = c < end && *c == '-';
    long value = 0;
    c += negative;
    const char *first = c;
    for (; c < end && *c >= '0' && *c <= '9'; c++)
        value = value * 10 + (*c - '0');
    *out = negative ? -value : value;
    *at = c;
    return c > first;
}

static void put_digits(char *out, unsigned value, int count)
{
    while (count--) {
        out[count] = "0123456789abcdef"[value & 15];
        value >>= 4;
    }
}

int descendants_make_id(char id[DESCENDANTS_ID_LENGTH + 1])
{
    unsigned char bits[DESCENDANTS_ID_LENGTH / 2];
    if (getrandom(bits, sizeof bits, 0) != sizeof bits)
        return -1;
    for (size_t i = 0; i < sizeof bits; i++)
        put_digits(id + 2 * i, bits[i], 2);
    id[DESCENDANTS_ID_LENGTH] = '\0';
    return 0;
}

int descendants_make_part_id(const char *run, unsigned number, char id[DESCENDANTS_ID_LENGTH + 1])
{
    if (descendants_make_id(id) < 0)
        return -1;
    memcpy(id, run, DESCENDANTS_FAMILY_LENGTH);
    put_digits(id + DESCENDANTS_FAMILY_LENGTH, number % DESCENDANTS_PARTS_LIMIT,
               3); /* all of them are in the mark */
    return 0;
}

bool descendants_parse_stat(const char *text, size_t length, struct descendants_process *process)
{
    const char *at = text, *end = text + length;
    const char *open = memchr(text, '(', length), *close = memrchr(text, ')', length);
    long pid, fields[3];
    if (!parse_number(&at, end, &pid) || !open || !close || close < open || end - close < 4)
        return false;
    *process = (struct descendants_process){.pid = (pid_t)pid, .state = close[2]};
    size_t name = (size_t)(close - open - 1);
    memcpy(process->name, open + 1, name < sizeof process->name ? name : sizeof process->name - 1);
    at = close + 3;
    for (int i = 0; i < 3; i++) {
        while (at < end && *at == ' ')
            at++;
        if (!parse_number(&at, end, &fields[i]))
            return false;
    }
    process->parent = (pid_t)fields[0];
    process->group = (pid_t)fields[1];
    process->session = (pid_t)fields[2];
    return true;
}

/* Bits in a mark above the id's, and bits of the id after its family's. */
static const uint64_t mark_flag = UINT64_C(1) << 62;
enum { OTHER_BITS = (16 - DESCENDANTS_FAMILY_LENGTH) * 4 - 3 };

uint64_t descendants_mark(const char *id)
{
    uint64_t bits = 0;
    for (int i = 0; i < 16; i++) {
        unsigned char c = (unsigned char)id[i];
        bits = bits << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return mark_flag | bits >> 3;
}

uint64_t descendants_parse_mark(const char *limits, size_t length)
{
    static const char name[] = "Max realtime timeout";
    const char *end = limits + length, *at = memmem(limits, length, name, sizeof name - 1);
    uint64_t value = 0;
    if (!at)
        return 0;
    for (at += sizeof name - 1; at < end && *at == ' '; at++)
        ;
    for (; at < end && *at >= '0' && *at <= '9'; at++)
        value = value * 10 + (uint64_t)(*at - '0');
    return value & mark_flag ? value : 0;
}

/* --- /proc --- */

static ssize_t read_some(int fd, char *out, size_t size)
{
    ssize_t got;
    do
        got = read(fd, out, size);
    while (got < 0 && errno == EINTR);
    return got;
}

/* directory/name for reading, -1 if it does not exist or is not readable for us */
static int open_in(int proc, const char *pid, const char *name)
{
    char path[64];
    size_t at = strlen(pid), length = strlen(name);
    if (at + length + 2 > sizeof path)
        return -1;
    memcpy(path, pid, at);
    path[at] = '/';
    memcpy(path + at + 1, name, length + 1);
    return openat(proc, path, O_RDONLY | O_CLOEXEC);
}

static bool read_stat(int proc, const char *pid, struct descendants_process *process)
{
    char text[1024];
    scope_close int fd = open_in(proc, pid, "stat");
    ssize_t got = fd >= 0 ? read_some(fd, text, sizeof text) : -1;
    return got > 0 && descendants_parse_stat(text, (size_t)got, process);
}

static bool carries_mark(const struct descendants *descendants, int proc, const char *pid)
{
    char text[4096]; /* the whole is less than 2,000 bytes */
    scope_close int fd = open_in(proc, pid, "limits");
    ssize_t got = fd >= 0 ? read_some(fd, text, sizeof text) : -1;
    uint64_t differs =
        descendants_mark(descendants->id) ^ (got > 0 ? descendants_parse_mark(text, (size_t)got) : 0);
    return !(descendants->family ? differs >> OTHER_BITS : differs);
}

/* Anywhere in an environment, 128 random bits are ours. */
static bool carries_id(int proc, const char *pid, const char *id)
{
    char text[8192];
    size_t kept = 0;
    scope_close int fd = open_in(proc, pid, "environ");
    while (fd >= 0) {
        ssize_t got = read_some(fd, text + kept, sizeof text - kept);
        if (got <= 0)
            break;
        size_t length = kept + (size_t)got;
        if (memmem(text, length, id, DESCENDANTS_ID_LENGTH))
            return true;
        kept = length < DESCENDANTS_ID_LENGTH - 1 ? length : DESCENDANTS_ID_LENGTH - 1;
        memmove(text, text + length - kept, kept);
    }
    return false;
}

/* The kernel reuses a number only when no process, group or session has it: if there is a process with the
 * number of a leader that was reaped, the session that we started is gone and this one is that process's. */
static bool is_in(const struct descendants_session *session, const struct descendants_process *process)
{
    if (process->session != session->id)
        return false;
    return !session->leaderless || (kill(session->id, 0) < 0 && errno == ESRCH);
}

static bool is_unread(const struct descendants *descendants, pid_t pid)
{
    for (size_t i = 0; i < descendants->unread_count; i++)
        if (descendants->unread[i] == pid)
            return true;
    return false;
}

static bool reads_id(const struct descendants *descendants, int proc, const char *name, pid_t pid)
{
    if (descendants->reading)
        __atomic_store_n(descendants->reading, pid, __ATOMIC_RELAXED);
    bool found = carries_id(proc, name, descendants->id);
    if (descendants->reading)
        __atomic_store_n(descendants->reading, 0, __ATOMIC_RELAXED);
    return found;
}

static bool is_descendant(const struct descendants *descendants, int proc, const char *name,
                          struct descendants_process *process)
{
    if (!read_stat(proc, name, process) || process->state == 'Z' || process->state == 'X')
        return false;
    if (process->pid == descendants->except[0] || process->pid == descendants->except[1] ||
        (descendants->reaper && process->pid == descendants->reaper) ||
        (descendants->keeper &&
         (process->pid == descendants->keeper || process->parent == descendants->keeper)) ||
        !strcmp(process->name, DESCENDANTS_GUARDIAN_NAME) || !strcmp(process->name, DESCENDANTS_SECOND_NAME))
        return false;
    if (descendants->parent && process->parent == descendants->parent)
        return true;
    if (descendants->reaper && process->parent == descendants->reaper)
        return true;
    for (size_t i = 0; i < descendants->session_count; i++)
        if (is_in(&descendants->sessions[i], process))
            return true;
    if (descendants->id && carries_mark(descendants, proc, name))
        return true;
    return descendants->id && !descendants->blind && !is_unread(descendants, process->pid) &&
           reads_id(descendants, proc, name, process->pid);
}

void descendants_send(int pidfd, pid_t pid, int signal)
{
    if (pidfd >= 0)
        (void)syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0); /* it may be gone: that is the aim */
    else
        (void)kill(pid, signal);
}

static void deliver(const struct descendants *descendants, void *context, int pidfd, pid_t pid, int signal)
{
    if (descendants->deliver)
        descendants->deliver(context, pidfd, pid, signal);
    else
        descendants_send(pidfd, pid, signal);
}

static void send_signal(const struct descendants *descendants, int proc, const char *name,
                        struct descendants_process *process, int signal, void *context)
{
    scope_close int pidfd = (int)syscall(SYS_pidfd_open, process->pid, 0);
    if (pidfd >= 0) { /* the pid is pinned now: check once more, so that a recycled one is spared */
        if (is_descendant(descendants, proc, name, process))
            deliver(descendants, context, pidfd, process->pid, signal);
    } else if (errno != ESRCH) { /* Linux before 5.3, a sandbox without it, or no descriptor is left */
        deliver(descendants, context, -1, process->pid, signal);
    }
}

int descendants_sweep(const struct descendants *descendants, int signal,
                      bool (*found)(void *context, const struct descendants_process *process), void *context)
{
    _Alignas(struct dirent64) char entries[8192];
    int count = 0;
    scope_close int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (proc < 0)
        return -1;
    for (;;) { /* readdir(3) allocates */
        long length = syscall(SYS_getdents64, proc, entries, sizeof entries);
        if (length <= 0)
            return length < 0 ? -1 : count;
        for (long at = 0; at < length;) {
            struct dirent64 *entry = (struct dirent64 *)(entries + at);
            at += entry->d_reclen;
            struct descendants_process process;
            if (descendants->looked)
                (void)__atomic_add_fetch(descendants->looked, 1, __ATOMIC_RELAXED);
            if (entry->d_name[0] < '1' || entry->d_name[0] > '9' ||
                !is_descendant(descendants, proc, entry->d_name, &process))
                continue;
            count++;
            if (!found || found(context, &process))
                send_signal(descendants, proc, entry->d_name, &process, signal, context);
        }
    }
}
