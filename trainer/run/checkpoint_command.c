/* checkpoint_command.c - training.checkpoint_command, and whether a run has left its last checkpoint and a
 * copy of it. See checkpoints.h. */
#include <stdio.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "trainer/run/checkpoints.h"
#include "trainer/run/observers.h"
#include "trainer/run/stop.h"

#define ASK_NS    (NS_PER_S / 2) /* the ranks that wait meet so often, so that no collective is late */
#define MARGIN_NS (NS_PER_S)     /* before a stop's deadline */

/* On rank 0. */
struct command_part {
    bool failed; /* the last run of the command */
};

static bool has_command(const struct run *run)
{
    const char *command = run->config.checkpoint_command;
    return command && *command && run_keeps_checkpoints(run);
}

static int open_command(struct run *run, struct muster_error *err)
{
    if (!run->observers[OBSERVER_command])
        run->observers[OBSERVER_command] = mem_calloc(1, sizeof(struct command_part));
    const int failed = run->observers[OBSERVER_command]
                           ? 0
                           : error_set(err, MUSTER_E_NOMEM, "no memory for training.checkpoint_command");
    return failed;
}

static void close_command(struct run *run)
{
    mem_free(run->observers[OBSERVER_command]);
    run->observers[OBSERVER_command] = NULL;
}

const struct observer command_observer = {.open = open_command, .close = close_command};

/* A run of the command has ended. */
static void print_command(struct run *run, int64_t step, const struct muster_error *err)
{
    const double seconds = (double)run_state(run).command_ns / (double)NS_PER_S;
    const long long last = run_state(run).command_step;
    console_line_end();
    struct command_part *part = run->observers[OBSERVER_command];
    part->failed = err->code != 0;
    log_command(run, step, err);
    if (!err->code) {
        printf("checkpoint command of step %lld: done in %.2f s\n", (long long)step, seconds);
        (void)fflush(stdout); /* a closed console does not stop the training */
    } else if (last >= 0) {
        fprintf(stderr,
                "muster-train: warning: checkpoint command of step %lld: %s; its last success is that of "
                "step %lld\n",
                (long long)step, err->text, last);
    } else {
        fprintf(stderr,
                "muster-train: warning: checkpoint command of step %lld: %s; it has not succeeded yet\n",
                (long long)step, err->text);
    }
}

/* Whether one has ended within the time, which is printed. */
static bool take_command(struct run *run, int64_t wait_ns)
{
    struct muster_error err = {0};
    int64_t step;
    if (!muster_trainer_command_end(run->trainer, wait_ns, &step, &err))
        return false;
    print_command(run, step, &err);
    return true;
}

void checkpoint_command_step(struct run *run)
{
    while (!run->rank && has_command(run) && take_command(run, 0))
        ;
}

/* On rank 0, for half a second at most. Whether there is something left to wait for. */
static bool wait_a_while(struct run *run, bool *stopped)
{
    const struct instant now = clock_now(NULL), last = instant_add(stop_deadline(run), -MARGIN_NS);
    if (stop_cuts_short(run) && !*stopped && stop_deadline(run).ns != INT64_MAX &&
        instant_reached(now, last)) {
        muster_trainer_command_stop(run->trainer);
        *stopped = true;
    }
    while (take_command(run, ASK_NS))
        ;
    return run_state(run).command_busy;
}

int checkpoint_command_end(struct run *run, struct muster_error *err)
{
    bool stopped = false;
    if (!has_command(run))
        return 0;
    for (;;) {
        double busy = !run->rank && wait_a_while(run, &stopped);
        if (muster_heartbeat(-1, err) < 0 || muster_trainer_reduce(run->trainer, &busy, 1, err) < 0)
            return -1;
        if (!(busy > 0))
            return 0;
    }
}

static int unsaved_error(const struct run *run, struct muster_error *err)
{
    const long long step = run->progress.done, last = (long long)checkpoints_last(run);
    return last >= 0
               ? error_set(
                     err, MUSTER_E_IO,
                     "the last checkpoint, of step %lld, is not saved (see the warning before); the newest "
                     "is that of step %lld, from which a restart goes on",
                     step, last)
               : error_set(err, MUSTER_E_IO,
                           "the last checkpoint, of step %lld, is not saved, and there is no other (see the "
                           "warning before)",
                           step);
}

int checkpoint_command_check(struct run *run, struct muster_error *err)
{
    const struct command_part *part = run->observers[OBSERVER_command];
    double values[2] = {!run->rank && has_command(run) && part->failed, stop_is_end(run)};
    if (!checkpoints_unsaved(run) && !has_command(run))
        return 0;
    if (muster_trainer_reduce(run->trainer, values, 2, err) <
        0) /* a notice may not have come to every rank */
        return -1;
    if (!(values[1] > 0))
        return 0;
    if (checkpoints_unsaved(run))
        return unsaved_error(run, err);
    return values[0] > 0
               ? error_set(err, MUSTER_E_IO,
                           "the last run of training.checkpoint_command has failed (see the warning before): "
                           "the newest checkpoint is in %s alone; a restart runs it again",
                           run->config.checkpoint_dir)
               : 0;
}
