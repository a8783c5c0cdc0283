/* checkpoints.c - see checkpoints.h. */
#include "trainer/run/checkpoints.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"
#include "trainer/run/inputs.h"
#include "trainer/run/stop.h"

enum { REPORT_SIZE = 1 << 14 };

struct checkpoints {
    int64_t last; /* step of the last one; -1: none */
    bool warned;  /* the warning about a slow disk is printed */
    bool again;   /* one was not saved for lack of room, and another try may succeed */
    bool unsaved; /* the run's last checkpoint could not be written */
};

int checkpoints_open(struct run *run, struct muster_error *err)
{
    run->checkpoints = mem_calloc(1, sizeof *run->checkpoints);
    if (!run->checkpoints)
        return error_set(err, MUSTER_E_NOMEM, "no memory for checkpoints");
    run->checkpoints->last = -1;
    return 0;
}

void checkpoints_close(struct run *run)
{
    mem_free(run->checkpoints);
    run->checkpoints = NULL;
}

int64_t checkpoints_last(const struct run *run)
{
    return run->checkpoints->last;
}

bool checkpoints_unsaved(const struct run *run)
{
    return run->checkpoints->unsaved;
}

/* ---- to go on from ---- */

/* Lines of a report. Rank 0 prints all lines, other ranks their own: refusals, copies that cannot be read. */
static void print_report(const struct run *run, const char *report)
{
    for (const char *line = report; *line;) {
        int length = (int)strcspn(line, "\n");
        if (!strncmp(line, "resumed", 7) && run->rank == 0)
            printf("%.*s\n", length, line);
        else if (strncmp(line, "resumed", 7) != 0 &&
                 (run->rank == 0 || !strncmp(line, "refused", 7) || !strncmp(line, "rank ", 5)))
            fprintf(stderr, "muster-train: warning: %.*s\n", length, line);
        line += length + (line[length] == '\n');
    }
    (void)fflush(stdout); /* a closed console does not stop the training */
}

/* A checkpoint that knows no more of its data than the path. */
static void compare_path(const struct run *run, const char *before)
{
    if (before && strcmp(before, run->config.path) != 0 && run->rank == 0)
        fprintf(
            stderr,
            "muster-train: warning: data.path is %s, and was %s: the samples are taken from there from now "
            "on\n",
            run->config.path, before);
}

static int compare_data(const struct run *run, const char *before, struct muster_error *err)
{
    scope_buffer differences = {0};
    if (data_identity_compare(before, inputs_identity(run->inputs), &differences) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory to compare the data");
    if (!differences.length)
        return 0;
    if (run->config.resume_data == TRAIN_DATA_REFUSE)
        return error_set(err, MUSTER_E_REFUSED,
                         "the data differ from the checkpoint's: %s; samples would be missed or taken twice: "
                         "restore them, begin a new run in another training.checkpoint_dir, or set "
                         "training.resume_data: warn",
                         differences.data);
    if (run->rank == 0)
        fprintf(
            stderr,
            "muster-train: warning: the data differ from the checkpoint's: %s; the samples are taken from "
            "these from now on\n",
            differences.data);
    return 0;
}

/* Gives the identity of the data to checkpoints: other data have other samples under the same numbers.
 * resumed: the run went on from a checkpoint, whose data are compared. MUSTER_E_REFUSED on this rank alone:
 * they differ.
 */
static int note_data(struct run *run, bool resumed, struct muster_error *err)
{
    const char *before = muster_trainer_noted(run->trainer, "data");
    if (resumed && before && compare_data(run, before, err) < 0)
        return -1;
    if (resumed && !before)
        compare_path(run, muster_trainer_noted(run->trainer, "data.path"));
    return muster_trainer_note(run->trainer, "data", inputs_identity(run->inputs), err) < 0
               ? -1
               : muster_trainer_note(run->trainer, "data.path", run->config.path, err);
}

int checkpoints_resume(struct run *run, struct muster_error *err)
{
    static char report[REPORT_SIZE]; /* called once in a process */
    report[0] = '\0';
    const int resumed = muster_trainer_resume(run->trainer, report, sizeof report, err);
    print_report(run, report);
    run->checkpoints->last = resumed > 0 ? run_state(run).checkpoint_step : -1;
    const int failed = resumed < 0 ? -1 : note_data(run, resumed == 1, err);
    return muster_world_agree(run->world, failed, err) < 0 ? -1 : resumed;
}

int checkpoints_restore(struct run *run, const char *path, struct muster_error *err)
{
    static char report[REPORT_SIZE]; /* called once in a process */
    report[0] = '\0';
    const int result = muster_trainer_restore(run->trainer, path, report, sizeof report, err);
    print_report(run, report);
    return result;
}

int checkpoints_go_back(struct run *run, int64_t *step, struct muster_error *err)
{
    static char report[REPORT_SIZE]; /* one call at a time */
    report[0] = '\0';
    int result = muster_trainer_roll_back(run->trainer, report, sizeof report, err);
    print_report(run, report);
    *step = result > 0 ? run_state(run).steps : -1;
    if (result > 0)
        run->checkpoints->last = *step;
    if (result > 0 && !run->rank)
        fprintf(stderr,
                "muster-train: warning: back to the checkpoint of step %lld; the samples since then are left "
                "out, number %lld is the next\n",
                (long long)*step, (long long)run_state(run).taken);
    return result < 0 || (result > 0 && note_data(run, false, err) < 0) ? -1 : 0;
}

/* ---- to write ---- */

int checkpoints_ask(struct run *run, struct muster_error *err)
{
    return muster_trainer_set(run->trainer, "checkpoint", stop_wants_checkpoint(), err);
}

static double seconds(int64_t ns)
{
    return (double)ns / (double)NS_PER_S;
}

/* `muster checkpoint` may wait for it. */
static void tell_launcher(int64_t step, bool saved, const char *text)
{
    struct muster_error err = {0};
    if (muster_checkpointed(step, saved, text, &err) < 0)
        fprintf(stderr, "muster-train: warning: %s\n", err.text); /* nothing else depends on it */
}

static void print_written(const struct run *run)
{
    char bytes[32], text[600];
    (void)snprintf(text, sizeof text, "%s/step-%lld: %s a rank in %.2f s, of which training waited %.3f s",
                   run->config.checkpoint_dir, (long long)run->checkpoints->last,
                   text_format_bytes(bytes, sizeof bytes, run_state(run).checkpoint_bytes),
                   seconds(run_state(run).checkpoint_ns),
                   seconds(run_state(run).checkpoint_stall_ns)); /* a long path is cut */
    tell_launcher(run->checkpoints->last, true, text);
    if (run->rank)
        return;
    printf("checkpoint %s\n", text);
    (void)fflush(stdout); /* as above */
}

/* The checkpoint of `step` is saved, or could not be. */
static void print_ended(struct run *run, int64_t step, int result, const struct muster_error *err)
{
    if (result > 0) {
        run->checkpoints->last = run_state(run).checkpoint_step;
        print_written(run);
        if (err->code)
            fprintf(stderr, "muster-train: rank %d: warning: step %lld has no copy on this node: %s\n",
                    run->rank, (long long)run->checkpoints->last, err->text);
        return;
    }
    const long long given_up = run_state(run).checkpoint_given_up;
    char room[80] = "";
    if (given_up >= 0)
        (void)snprintf(room, sizeof room, "; that of step %lld was removed to make room",
                       given_up); /* fits */
    tell_launcher(step, false, err->text);
    if (run->checkpoints->last >= 0)
        fprintf(stderr, "muster-train: rank %d: warning: %s; the last one is that of step %lld%s\n",
                run->rank, err->text, (long long)run->checkpoints->last, room);
    else
        fprintf(stderr, "muster-train: rank %d: warning: %s; there is none yet\n", run->rank, err->text);
}

/* The next checkpoint is due already. Training waits, so that no requested checkpoint is left out. */
static void warn_late(struct run *run, int64_t step)
{
    if (!run->rank && !run->checkpoints->warned)
        fprintf(stderr,
                "muster-train: warning: the checkpoint of step %lld waited %.2f s for those before: raise "
                "training.checkpoint_every (printed once)\n",
                (long long)step, seconds(run_state(run).checkpoint_stall_ns));
    run->checkpoints->warned = true;
}

/* Prints how it ended, if it has. */
static void look_at_oldest(struct run *run, bool wait)
{
    struct muster_error err = {0};
    const int64_t step = run_state(run).checkpoint_oldest;
    int ended = muster_trainer_checkpoint_end(run->trainer, wait, &err);
    if (!ended)
        return;
    console_line_end();
    print_ended(run, step, ended, &err);
    run->checkpoints->again = run_state(run).checkpoint_again;
}

/* Whether another checkpoint has to wait; ends: for all earlier ones. */
static bool is_busy(const struct run *run, bool ends)
{
    const struct muster_trainer_state s = run_state(run);
    return ends ? s.checkpoint_writing > 0 : s.checkpoint_busy;
}

/* Whether a checkpoint is due now. If so, this has waited until it can begin; at the end for all earlier
 * ones. */
static bool go_on(struct run *run, bool asked, bool ends, int64_t step)
{
    const int64_t every = run->config.checkpoint_every;
    bool due = asked || ends || (every > 0 && step % every == 0), late = false;
    if (!run_state(run).checkpoint_writing)
        return due;
    look_at_oldest(run, false); /* the step has summed its result */
    if (due && run_state(run).checkpoint_busy)
        look_at_oldest(run, false); /* its result may have come since */
    for (; due && is_busy(run, ends); late = true)
        look_at_oldest(run, true);
    if (late && !ends)
        warn_late(run, step);
    due |= run->checkpoints->again;
    run->checkpoints->again = false;
    return due;
}

static void write_one(struct run *run, bool ends)
{
    struct muster_error err = {0};
    const int64_t step = run_state(run).steps;
    int result;
    while ((result = ends ? muster_trainer_checkpoint(run->trainer, &err)
                          : muster_trainer_checkpoint_begin(run->trainer, &err)) < 0 &&
           ends && run_state(run).checkpoint_again)
        print_ended(run, step, result, &err); /* as many times as there are older ones to give up */
    run->checkpoints->unsaved = ends && result < 0;
    if (result < 0 || (ends && result > 0))
        print_ended(run, step, result, &err);
    else if (!result && run->checkpoints->last == step) {
        char text[600];
        (void)snprintf(text, sizeof text, "%s/step-%lld: it was there already", run->config.checkpoint_dir,
                       (long long)step); /* a long path is cut */
        tell_launcher(step, true, text);
    }
}

/* Before the last checkpoint of a run that is stopped. */
static void estimate(const struct run *run)
{
    const double left_s = (double)instant_diff_ns(stop_deadline(run), clock_now(NULL)) / (double)NS_PER_S,
                 last_s = seconds(run_state(run).checkpoint_ns);
    if (run->rank || !(last_s > left_s))
        return;
    fprintf(stderr,
            "muster-train: warning: the last checkpoint took %.1f s and %.1f s are left; if it is cut off "
            "the one "
            "before stays; raise muster run --shutdown-timeout (--notice-timeout)\n",
            last_s, left_s);
}

void checkpoints_write_last(struct run *run)
{
    write_one(run, true);
}

int checkpoints_step(struct run *run, int64_t step, bool requested, bool last, struct muster_error *err)
{
    if (!run_keeps_checkpoints(run))
        return 0;
    if (last && muster_heartbeat(-1, err) < 0) /* it takes longer than a step */
        return -1;
    if (!go_on(run, requested, last, step))
        return 0;
    if (muster_heartbeat(-1, err) < 0) /* the next step may wait for the disk */
        return -1;
    console_line_end();
    if (stop_cuts_short(run) && stop_deadline(run).ns != INT64_MAX)
        estimate(run);
    write_one(run, last);
    return 0;
}
