/* trace.c - observer `trace`: the steps of logging.trace, written by each rank for itself. See observers.h.
 */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/log.h"
#include "trainer/report/trace.h"
#include "trainer/run/observers.h"

enum { HOST_SIZE = 256 };
/* Tracks: steps and waits, then the streams. */
enum { TRACK_STEP, TRACK_STREAMS, STREAMS = 10 };
static const char *const stream_tracks[STREAMS] = {
    "compute",          "gathers",        "reductions",        "activations",     "gradients",
    "activations, odd", "gradients, odd", "activations, last", "gradients, last", "transfers"};

/* Records a run that continues among the chosen steps from there on. */
static int begin_trace(struct run *run, const struct run_step *step, struct muster_error *err)
{
    int64_t first, count;
    if (train_config_trace(&run->config, &first, &count, err) < 0)
        return -1;
    const int64_t left = first + count - step->number;
    const bool begins =
        step->number == first || (step->number == run->progress.begun + 1 && step->number > first);
    return count && begins && left > 0 ? muster_trainer_trace(run->trainer, left, err) : 0;
}

struct writer {
    struct trace_process process;
    struct buffer *out;
    bool named[STREAMS]; /* streams that have a track */
};

static int write_event(void *context, const struct muster_trace_event *event)
{
    static const char *const categories[] = {[MUSTER_TRACE_STEP] = "step",
                                             [MUSTER_TRACE_OPERATION] = "compute",
                                             [MUSTER_TRACE_COLLECTIVE] = "comm",
                                             [MUSTER_TRACE_WAIT] = "wait"};
    struct writer *writer = context;
    if (event->kind != MUSTER_TRACE_STEP && !writer->named[event->stream]) {
        writer->named[event->stream] = true;
        if (trace_track(&writer->process, TRACK_STREAMS + event->stream, stream_tracks[event->stream],
                        writer->out) < 0)
            return -1;
    }
    struct trace_slice slice = {.track = event->kind == MUSTER_TRACE_STEP ? TRACK_STEP
                                                                          : TRACK_STREAMS + event->stream,
                                .name = event->name,
                                .category = categories[event->kind],
                                .begin_ns = event->begin_ns,
                                .end_ns = event->end_ns};
#define NOTE(...) slice.notes[slice.note_count++] = (struct trace_note){__VA_ARGS__}
    NOTE(.name = "step", .number = event->step);
    if (event->micro_batch >= 0)
        NOTE(.name = "micro_batch", .number = event->micro_batch);
    if (*event->group)
        NOTE(.name = "group", .text = event->group);
    if (*event->axis)
        NOTE(.name = "axis", .text = event->axis);
    if (event->bytes)
        NOTE(.name = "bytes", .number = event->bytes);
    if (event->kind == MUSTER_TRACE_STEP) {
        NOTE(.name = "comm_ns", .number = event->comm_ns);
        NOTE(.name = "exposed_ns", .number = event->exposed_ns);
    }
#undef NOTE
    return trace_slice(&writer->process, &slice, writer->out);
}

static int make_trace(struct run *run, struct buffer *out, struct muster_error *err)
{
    char host[HOST_SIZE] = "localhost";
    (void)gethostname(host, sizeof host - 1); /* a name only */
    struct writer writer = {.process = {.rank = run->rank,
                                        .host = host,
                                        .monotonic_ns = clock_now(NULL).ns,
                                        .wall_ns = clock_wall_ns()},
                            .out = out};
    int result = trace_begin(&writer.process, out);
    if (!result)
        result = trace_track(&writer.process, TRACK_STEP, "steps", out);
    if (!result && muster_trainer_traced(run->trainer, write_event, &writer, err) == 0)
        return 0;
    return out->failed ? error_set(err, MUSTER_E_NOMEM, "no memory for the trace") : -1;
}

static int write_trace(struct run *run, struct muster_error *err)
{
    scope_buffer trace = {.limit = 1u << 30};
    scope_free char *folder = mem_printf("%s/trace", run->config.log_folder);
    scope_free char *path = folder ? mem_printf("%s/rank-%d.perfetto-trace", folder, run->rank) : NULL;
    if (!path)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the trace");
    if (make_trace(run, &trace, err) < 0 || io_make_directories(folder, 0777, err) < 0)
        return -1;
    return io_write_file_atomic(path, trace.data, trace.length, 0666, err);
}

static void write_recorded(struct run *run, int64_t step, bool last)
{
    struct muster_error err = {0};
    int64_t first, count;
    if (train_config_trace(&run->config, &first, &count, &err) < 0 || !count || step < first ||
        (step != first + count - 1 && !(last && step < first + count)))
        return;
    if (write_trace(run, &err) < 0 || muster_trainer_trace(run->trainer, 0, &err) < 0)
        log_warning(console_warnings(), "rank %d has no trace: %s", run->rank, err.text);
}

static int step_trace(struct run *run, struct run_step *step, struct muster_error *err)
{
    (void)err; /* a trace that cannot be written is a warning */
    write_recorded(run, step->number, step->last);
    return 0;
}

static void back_trace(struct run *run, const struct run_step *step)
{
    write_recorded(run, step->number, false);
}

const struct observer trace_observer = {.begin = begin_trace, .step = step_trace, .back = back_trace};
