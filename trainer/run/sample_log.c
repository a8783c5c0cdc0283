/* sample_log.c - observer `samples`: which samples each step of a run took, JSON lines in one file a rank,
 *
 *   {"run": 1764000000000000000, "step": 17, "rank": 1, "ranks": 3, "samples": [257, 260]}
 *
 * `run` is the time at which rank 0 started, in nanoseconds of its clock, the same on all ranks; more than
 * that of the run before, whose clock may have been set since. A line is written before its step is run. A
 * later run may take a step again, because its checkpoint was lost: then the line of the later run counts.
 * See observers.h. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "trainer/run/observers.h"

#define LINE_BEGINS "{\"run\": "

struct sample_log {
    int fd, rank, ranks;
    int64_t run;
    char *path;
    struct buffer line;
};

static void sample_log_close(struct sample_log *log)
{
    if (!log)
        return;
    if (log->fd >= 0)
        (void)close(log->fd); /* nothing is buffered */
    buffer_free(&log->line);
    mem_free(log->path);
    mem_free(log);
}

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

/* Of the last line; 0: there is none. A line may be as long as a step has samples. */
static int64_t last_run(const char *path)
{
    enum { PART = 16384, OVERLAP = 64 };
    char bytes[PART + OVERLAP + 1];
    struct stat status;
    scope_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) < 0)
        return 0;
    for (off_t end = status.st_size; end > 0;) {
        const off_t from = end > PART ? end - PART : 0;
        const ssize_t got = pread(fd, bytes, (size_t)(end - from) + OVERLAP, from);
        if (got <= 0)
            return 0;
        bytes[got] = '\0';
        const char *found = NULL;
        for (const char *at = bytes; (at = strstr(at, LINE_BEGINS)); at++)
            found = at;
        if (found)
            return strtoll(found + strlen(LINE_BEGINS), NULL, 10);
        end = from;
    }
    return 0;
}

/* Collective. Makes the folder where it is not there. A file that is there is continued, without a last line
 * that a killed process has left unfinished. */
static struct sample_log *sample_log_open(const char *folder, struct muster_world *world,
                                          struct muster_error *err)
{
    GUARD(guard_sample_log) struct sample_log *log = mem_calloc(1, sizeof *log);
    int failed = 0;
    if (log) {
        *log = (struct sample_log){.fd = -1,
                                   .rank = muster_world_rank(world),
                                   .ranks = muster_world_size(world),
                                   .run = clock_wall_ns()};
        failed = open_log_file(log, folder, err);
        const int64_t before = failed ? 0 : last_run(log->path);
        log->run = log->run > before || before == INT64_MAX ? log->run : before + 1;
    } else {
        failed = error_set(err, MUSTER_E_NOMEM, "no memory for the log of samples");
    }
    if (muster_world_agree(world, failed, err) < 0 ||
        muster_world_broadcast(world, &log->run, sizeof log->run, 0, err) < 0)
        return NULL;
    return take_pointer(&log);
}

static int open_samples(struct run *run, struct muster_error *err)
{
    const char *folder = run->config.samples;
    if (!folder || !*folder)
        return 0;
    run->observers[OBSERVER_samples] = sample_log_open(folder, run->world, err);
    return run->observers[OBSERVER_samples] ? 0 : -1;
}

static int begin_samples(struct run *run, const struct run_step *step, struct muster_error *err)
{
    struct sample_log *log = run->observers[OBSERVER_samples];
    const struct train_batch batch = train_config_batch(&run->config, run->rank, run->world_size);
    if (!log ||
        run->rank >= batch.ranks) /* the first stage of a pipeline tells of the samples that all take */
        return 0;
    struct buffer *line = &log->line;
    buffer_clear(line);
    (void)buffer_printf(line, LINE_BEGINS "%lld, \"step\": %lld, \"rank\": %d, \"ranks\": %d, \"samples\": [",
                        (long long)log->run, (long long)step->number, log->rank, log->ranks);
    for (int64_t i = 0; i < step->batch->samples; i++)
        (void)buffer_printf(line, "%s%llu", i ? ", " : "", (unsigned long long)step->batch->ids[i]);
    if (buffer_text(line, "]}\n") < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a line of %s", log->path);
    return io_write_all(log->fd, line->data, line->length, log->path, err);
}

static void close_samples(struct run *run)
{
    sample_log_close(run->observers[OBSERVER_samples]);
    run->observers[OBSERVER_samples] = NULL;
}

const struct observer samples_observer = {
    .open = open_samples, .begin = begin_samples, .stage = close_samples, .close = close_samples};
