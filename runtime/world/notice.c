/* notice.c - receives the launcher's stop notices; the protocol is in launcher/docs/notice.md. A notice is
 * peeked at and stays in the socket, so no state is kept here. */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/text.h"
#include "proto/env_names.h"
#include "runtime/include/muster.h"
#include "runtime/world/regroup.h"
#include "runtime/world/sized.h"
#include "runtime/world/world_internal.h"

enum { NOTICES_LIMIT = 4096 }; /* bytes: a round has one notice of at most 1,024, rarely a second */

/* A child that did not inherit the descriptor may have a file of its own under this number. */
int notice_find(int *out, struct muster_error *err)
{
    const char *text = getenv(ENV_NOTICE_FD);
    struct stat status;
    int64_t fd;
    if (!text || !*text)
        return 0;
    if (!text_int64(text, &fd) || fd < 0 || fd > INT32_MAX || fstat((int)fd, &status) < 0 ||
        !S_ISSOCK(status.st_mode))
        return error_set(err, MUSTER_E_INVALID, "%s=%.32s is not the descriptor of a socket; unset it",
                         ENV_NOTICE_FD, text);
    *out = (int)fd;
    return 1;
}

int muster_notice_listen(struct muster_error *err)
{
    static const char word[] = "ready\n";
    int fd, found = notice_find(&fd, err);
    if (found <= 0)
        return found;
    ssize_t done;
    do
        done = send(fd, word, sizeof word - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (done < 0 && errno == EINTR);
    return done < 0 ? error_errno(err, "the launcher cannot be informed that this rank handles stop notices")
                    : 1;
}

/* A key appears once: quotes inside texts are escaped. */
int64_t notice_number(const char *line, const char *name, int64_t missing)
{
    const char *at = strstr(line, name);
    if (!at)
        return missing;
    char *end;
    errno = 0;
    long long value = strtoll(at + strlen(name), &end, 10);
    return end == at + strlen(name) || errno ? missing : value;
}

static enum muster_coming coming_of(const char *line)
{
    static const struct {
        const char *text;
        enum muster_coming coming;
    } rows[] = {
        {"\"coming\": \"nodes-join\"", MUSTER_NODES_JOIN},
        {"\"coming\": \"node-leaves\"", MUSTER_NODE_LEAVES},
        {"\"coming\": \"job-stops\"", MUSTER_JOB_STOPS},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strstr(line, rows[i].text))
            return rows[i].coming;
    return MUSTER_STOP_COMES;
}

static void read_line(const char *line, struct muster_notice *out)
{
    *out = (struct muster_notice){
        .coming = coming_of(line),
        .round = (int32_t)notice_number(line, "\"round\": ", -1),
        .nodes = (int32_t)notice_number(line, "\"nodes\": ", -1),
        .next_nodes = (int32_t)notice_number(line, "\"next_nodes\": ", -1),
        .deadline_ns = notice_number(line, "\"deadline_monotonic_ns\": ", 0),
    };
    out->left_s = (double)(out->deadline_ns - clock_now(NULL).ns) / (double)NS_PER_S;
}

/* The last complete line that is a stop notice, without its newline; NULL if there is none. */
static const char *last_notice(char *text)
{
    const char *last = NULL;
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        if (regroup_is(line, "regroup") || regroup_is(line, "place"))
            last = NULL; /* notices before it are of a round that is over */
        else
            last = line;
    }
    return last;
}

int muster_notice(struct muster_notice *notice, struct muster_error *err)
{
    char text[NOTICES_LIMIT];
    struct muster_notice read;
    int fd, found = notice_find(&fd, err);
    if (notice && sized_least("muster_notice", notice->size, sizeof *notice, err) < 0)
        return -1;
    if (found <= 0)
        return found;
    ssize_t got;
    do
        got = recv(fd, text, sizeof text - 1, MSG_PEEK | MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    if (got < 0 && errno != EAGAIN)
        return error_errno(err, "cannot read stop notices from the launcher");
    text[got > 0 ? got : 0] = '\0'; /* end of file: the agent has died and this process will be killed soon */
    const char *line = last_notice(text);
    if (!line)
        return 0;
    read_line(line, &read);
    return notice &&
                   sized_out("muster_notice", notice, notice->size, &read, sizeof read, sizeof read, err) < 0
               ? -1
               : 1;
}
