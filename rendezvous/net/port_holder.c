/* port_holder.c - see port_holder.h. */
#include "rendezvous/net/port_holder.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/guard.h"
#include "proto/base/io.h"

enum { TABLE_LIMIT = 32 << 20, COMMAND_LIMIT = 64 };
enum { TCP_STATE_LISTEN = 0x0A }; /* column "st" of /proc/net/tcp */

static void guard_closedir(DIR **directory)
{
    if (*directory)
        (void)closedir(*directory); /* was only read */
}

/* The inode of the socket with this local port in a table; a listening socket wins. 0: none. */
static uint64_t find_inode(const char *table, uint16_t port, bool *listening)
{
    scope_buffer text = {0};
    uint64_t found = 0;
    if (io_read_file(table, TABLE_LIMIT, &text, NULL))
        return 0;
    char *rest = text.data;
    for (char *line; rest && (line = strsep(&rest, "\n"));) {
        unsigned local = 0, state = 0;
        uint64_t inode = 0;
        if (sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %*u %*u %" SCNu64, &local,
                   &state, &inode) != 3 ||
            local != port || !inode)
            continue;
        found = inode;
        *listening = state == TCP_STATE_LISTEN;
        if (*listening)
            break;
    }
    return found;
}

static bool process_has_socket(const char *pid, const char *link)
{
    char path[64], target[64];
    (void)snprintf(path, sizeof path, "/proc/%.20s/fd", pid);
    GUARD(guard_closedir) DIR *directory = opendir(path);
    if (!directory)
        return false; /* gone, or another user's */
    for (struct dirent *entry; (entry = readdir(directory));) {
        ssize_t length = readlinkat(dirfd(directory), entry->d_name, target, sizeof target - 1);
        if (length <= 0)
            continue;
        target[length] = '\0';
        if (!strcmp(target, link))
            return true;
    }
    return false;
}

/* The path of a program's file. The kernel marks one that was replaced since the program started, as an
 * installation of another version does. */
static bool read_program_path(const char *link, char *path, size_t size)
{
    static const char mark[] = " (deleted)";
    const ssize_t length = readlink(link, path, size - 1);
    if (length <= 0)
        return false;
    path[length] = '\0';
    char *end = path + length - (ssize_t)(sizeof mark - 1);
    if (end > path && !strcmp(end, mark))
        *end = '\0';
    return true;
}

/* Two programs are one where their files are, or are at one place. */
static bool is_same_program(const char *pid)
{
    char link[64], their_path[PATH_MAX], our_path[PATH_MAX];
    struct stat theirs, ours;
    (void)snprintf(link, sizeof link, "/proc/%.20s/exe", pid);
    if (stat(link, &theirs) == 0 && stat("/proc/self/exe", &ours) == 0 && theirs.st_dev == ours.st_dev &&
        theirs.st_ino == ours.st_ino)
        return true;
    return read_program_path(link, their_path, sizeof their_path) &&
           read_program_path("/proc/self/exe", our_path, sizeof our_path) && !strcmp(their_path, our_path);
}

static void describe_process(const char *pid, struct port_holder *holder)
{
    char path[64];
    scope_buffer command = {0};
    (void)snprintf(path, sizeof path, "/proc/%.20s/comm", pid);
    bool named = !io_read_file(path, COMMAND_LIMIT, &command, NULL) && command.length > 0;
    int length = named ? (int)strcspn(command.data, "\n") : 1;
    (void)snprintf(holder->command, sizeof holder->command, "%.*s", length, named ? command.data : "?");
    holder->pid = (int)strtol(pid, NULL, 10); /* digits only, and below 2^22 */
    holder->same_program = is_same_program(pid);
}

static void find_process(uint64_t inode, struct port_holder *holder)
{
    char link[64];
    (void)snprintf(link, sizeof link, "socket:[%" PRIu64 "]", inode);
    GUARD(guard_closedir) DIR *processes = opendir("/proc");
    if (!processes)
        return;
    for (struct dirent *entry; (entry = readdir(processes));)
        if (isdigit((unsigned char)entry->d_name[0]) && process_has_socket(entry->d_name, link)) {
            describe_process(entry->d_name, holder);
            return;
        }
}

void port_holder_find(uint16_t port, struct port_holder *holder)
{
    bool listening = false, listening6 = false;
    uint64_t inode = find_inode("/proc/net/tcp", port, &listening);
    uint64_t inode6 = listening ? 0 : find_inode("/proc/net/tcp6", port, &listening6);
    if (inode6 && (listening6 || !inode))
        inode = inode6;
    *holder = (struct port_holder){0};
    if (inode)
        find_process(inode, holder);
}

const char *port_holder_text(const struct port_holder *holder, char *text, size_t size)
{
    if (holder->pid)
        (void)snprintf(text, size, "pid %d (%s)", holder->pid, holder->command);
    else
        (void)snprintf(text, size, "a process that /proc does not show");
    return text;
}

const char *port_holder_describe(uint16_t port, char *text, size_t size)
{
    struct port_holder holder;
    port_holder_find(port, &holder);
    return port_holder_text(&holder, text, size);
}
