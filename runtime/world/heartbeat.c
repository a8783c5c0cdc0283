/* heartbeat.c - reports this rank's step to the launcher. See heartbeat.h. */
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/buffer.h"
#include "proto/base/error.h"
#include "proto/base/text.h"
#include "proto/env_names.h"
#include "runtime/include/muster.h"
#include "runtime/world/world_internal.h"

enum { FIGURES_LINE = 500 }; /* the launcher drops a longer one than 512 */

/* A child that did not inherit the descriptor may have a file of its own under this number: write to pipes
 * only. */
static bool is_pipe(int fd)
{
    struct stat status;
    return fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode);
}

int heartbeat_write(const char *line, struct muster_error *err)
{
    const char *text = getenv(ENV_HEARTBEAT_FD);
    int64_t fd;
    if (!text || !*text)
        return 0;
    if (!text_int64(text, &fd) || fd < 0 || fd > INT32_MAX || !is_pipe((int)fd))
        return error_set(err, MUSTER_E_INVALID, "%s=%.32s is not the descriptor of a pipe; unset it",
                         ENV_HEARTBEAT_FD, text);
    ssize_t done;
    do
        done = write((int)fd, line, strlen(line)); /* a write of less than PIPE_BUF is atomic */
    while (done < 0 && errno == EINTR);
    if (done < 0 && errno != EAGAIN) /* full: the launcher is not reading now, and the next line will do */
        return error_errno(err, "the launcher does not accept heartbeats");
    return 0;
}

int muster_figures(const char *const *names, const double *values, int64_t count, struct muster_error *err)
{
    scope_buffer line = {.limit = FIGURES_LINE};
    if (count < 0 || count > MUSTER_FIGURES)
        return error_set(err, MUSTER_E_LIMIT, "%lld figures; there may be 0 to %d", (long long)count,
                         MUSTER_FIGURES);
    buffer_text(&line, "figures/1");
    for (int64_t i = 0; i < count; i++)
        if (isfinite(values[i]))
            buffer_printf(&line, " %s=%.9g", names[i], values[i]);
    buffer_text(&line, "\n");
    if (line.failed)
        return error_set(err, MUSTER_E_LIMIT, "the names of %lld figures are too long for one line",
                         (long long)count);
    return heartbeat_write(line.data, err);
}

int muster_checkpointed(int64_t step, int32_t saved, const char *text, struct muster_error *err)
{
    char line[FIGURES_LINE + 2];
    int length = snprintf(line, FIGURES_LINE, "checkpoint/1 %s %lld %s", saved ? "saved" : "failed",
                          (long long)step, text);
    length = length < FIGURES_LINE ? length : FIGURES_LINE - 1; /* a long text is cut */
    for (int i = 0; i < length; i++)
        if (line[i] == '\n')
            line[i] = ' ';
    memcpy(line + length, "\n", 2);
    return heartbeat_write(line, err);
}

int muster_heartbeat(int64_t step, struct muster_error *err)
{
    char line[24];
    (void)snprintf(line, sizeof line, "%lld\n", (long long)step); /* fits */
    return heartbeat_write(line, err);
}
