/* sample_log.c - see sample_log.h. */
#include "trainer/run/sample_log.h"

#include <unistd.h>

#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/mem.h"

#define LINE_BEGINS "{\"run\": "

struct sample_log {
    int fd, rank, ranks;
    int64_t run;
    char *path;
    struct buffer line;
};

GUARD_DEFINE(sample_log, struct sample_log *, sample_log_close);

static int open_log_file(struct sample_log *log, const char *folder, struct muster_error *err)
{
    log->path = mem_printf("%s/rank-%d.jsonl", folder, log->rank);
    if (!log->path)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    if (io_make_directories(folder, 0777, err) < 0)
        return error_wrap(err, "logging.samples");
    log->fd = io_open_lines(log->path, LINE_BEGINS);
    return log->fd < 0 ? error_errno(err, "logging.samples: cannot write %s", log->path) : 0;
}

struct sample_log *sample_log_open(const char *folder, struct muster_world *world, struct muster_error *err)
{
    GUARD(guard_sample_log) struct sample_log *log = mem_calloc(1, sizeof *log);
    int failed = 0;
    if (log) {
        *log = (struct sample_log){.fd = -1,
                                   .rank = muster_world_rank(world),
                                   .ranks = muster_world_size(world),
                                   .run = clock_wall_ns()};
        failed = open_log_file(log, folder, err);
    } else {
        failed = error_set(err, MUSTER_E_NOMEM, "no memory for the log of samples");
    }
    if (muster_world_agree(world, failed, err) < 0 ||
        muster_world_broadcast(world, &log->run, sizeof log->run, 0, err) < 0)
        return NULL;
    return take_pointer(&log);
}

int sample_log_step(struct sample_log *log, int64_t step, const uint64_t *ids, int64_t count,
                    struct muster_error *err)
{
    struct buffer *line = &log->line;
    buffer_clear(line);
    (void)buffer_printf(line, LINE_BEGINS "%lld, \"step\": %lld, \"rank\": %d, \"ranks\": %d, \"samples\": [",
                        (long long)log->run, (long long)step, log->rank, log->ranks);
    for (int64_t i = 0; i < count; i++)
        (void)buffer_printf(line, "%s%llu", i ? ", " : "", (unsigned long long)ids[i]);
    if (buffer_text(line, "]}\n") < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a line of %s", log->path);
    return io_write_all(log->fd, line->data, line->length, log->path, err);
}

void sample_log_close(struct sample_log *log)
{
    if (!log)
        return;
    if (log->fd >= 0)
        (void)close(log->fd); /* nothing is buffered */
    buffer_free(&log->line);
    mem_free(log->path);
    mem_free(log);
}
