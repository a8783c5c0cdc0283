/* checkpoints.c - see checkpoints.h. */
#include "trainer/run/checkpoints.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/text.h"

enum { REPORT_SIZE = 1 << 14 };

static volatile sig_atomic_t asked, terminated;

static void take_signal(int number)
{
    if (number == SIGTERM)
        terminated = 1;
    else
        asked = 1;
}

bool checkpoints_wanted(const struct train_config *config)
{
    return config->checkpoint_dir && *config->checkpoint_dir;
}

int checkpoints_listen(bool terminates, struct muster_error *err)
{
    struct sigaction action = {.sa_handler = take_signal, .sa_flags = SA_RESTART};
    if (sigaction(SIGUSR2, &action, NULL) < 0)
        return error_errno(err, "cannot handle SIGUSR2");
    action.sa_flags |= (int)SA_RESETHAND; /* a second one ends the process at once */
    return terminates && sigaction(SIGTERM, &action, NULL) < 0 ? error_errno(err, "cannot handle SIGTERM")
                                                               : 0;
}

bool checkpoints_terminated(void)
{
    return terminated;
}

/* Lines of a report: rank 0 prints all of them, the others what they alone know. */
static void print_report(const struct checkpoints *c, const char *report)
{
    for (const char *line = report; *line;) {
        int length = (int)strcspn(line, "\n");
        if (!strncmp(line, "resumed", 7) && c->rank == 0)
            printf("%.*s\n", length, line);
        else if (strncmp(line, "resumed", 7) != 0 &&
                 (c->rank == 0 || !strncmp(line, "refused", 7) || !strncmp(line, "rank ", 5)))
            fprintf(stderr, "muster-train: warning: %.*s\n", length, line);
        line += length + (line[length] == '\n');
    }
    (void)fflush(stdout); /* a closed console does not stop the training */
}

/* Of a checkpoint without more of them than the path. */
static void compare_path(const struct checkpoints *c, const char *before)
{
    if (before && strcmp(before, c->config->path) != 0 && c->rank == 0)
        fprintf(
            stderr,
            "muster-train: warning: data.path is %s, and was %s: the samples are taken from there from now "
            "on\n",
            c->config->path, before);
}

static int compare_data(const struct checkpoints *c, const char *before, struct muster_error *err)
{
    scope_buffer differences = {0};
    if (data_identity_compare(before, c->identity, &differences) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory to compare the data");
    if (!differences.length)
        return 0;
    if (c->config->resume_data == TRAIN_DATA_REFUSE)
        return error_set(err, MUSTER_E_REFUSED,
                         "the data differ from the checkpoint's: %s; samples would be missed or taken twice: "
                         "restore them, begin a new run in another training.checkpoint_dir, or set "
                         "training.resume_data: warn",
                         differences.data);
    if (c->rank == 0)
        fprintf(
            stderr,
            "muster-train: warning: the data differ from the checkpoint's: %s; the samples are taken from "
            "these from now on\n",
            differences.data);
    return 0;
}

/* The data are not the trainer's: others have other samples under the same numbers. */
int checkpoints_note_data(struct checkpoints *c, bool resumed, struct muster_error *err)
{
    const char *before = muster_trainer_noted(c->trainer, "data");
    if (resumed && before && compare_data(c, before, err) < 0)
        return -1;
    if (resumed && !before)
        compare_path(c, muster_trainer_noted(c->trainer, "data.path"));
    return muster_trainer_note(c->trainer, "data", c->identity, err) < 0
               ? -1
               : muster_trainer_note(c->trainer, "data.path", c->config->path, err);
}

int checkpoints_resume(struct checkpoints *c, struct muster_error *err)
{
    static char report[REPORT_SIZE]; /* of one call a process */
    report[0] = '\0';
    int result = muster_trainer_resume(c->trainer, report, sizeof report, err);
    print_report(c, report);
    c->last = result > 0 ? muster_trainer_state_now(c->trainer).checkpoint_step : -1;
    return result;
}

int checkpoints_restore(struct checkpoints *c, const char *path, struct muster_error *err)
{
    static char report[REPORT_SIZE]; /* of one call a process */
    report[0] = '\0';
    const int result = muster_trainer_restore(c->trainer, path, report, sizeof report, err);
    print_report(c, report);
    return result;
}

int checkpoints_go_back(struct checkpoints *c, int64_t *step, struct muster_error *err)
{
    static char report[REPORT_SIZE]; /* of one call at a time */
    report[0] = '\0';
    int result = muster_trainer_roll_back(c->trainer, report, sizeof report, err);
    print_report(c, report);
    *step = result > 0 ? muster_trainer_state_now(c->trainer).steps : -1;
    if (result > 0)
        c->last = *step;
    if (result > 0 && !c->rank)
        fprintf(stderr,
                "muster-train: warning: back to the checkpoint of step %lld; the samples since then are left "
                "out, number %lld is the next\n",
                (long long)*step, (long long)muster_trainer_state_now(c->trainer).taken);
    return result < 0 || (result > 0 && checkpoints_note_data(c, false, err) < 0) ? -1 : 0;
}

int checkpoints_ask(struct checkpoints *c, struct muster_error *err)
{
    bool asks = asked;
    asked = 0;
    return muster_trainer_set(c->trainer, "checkpoint", asks, err);
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

static void print_written(const struct checkpoints *c)
{
    char bytes[32], text[600];
    (void)snprintf(
        text, sizeof text, "%s/step-%lld: %s a rank in %.2f s, of which training waited %.3f s",
        c->config->checkpoint_dir, (long long)c->last,
        text_format_bytes(bytes, sizeof bytes, muster_trainer_state_now(c->trainer).checkpoint_bytes),
        seconds(muster_trainer_state_now(c->trainer).checkpoint_ns),
        seconds(muster_trainer_state_now(c->trainer).checkpoint_stall_ns)); /* a long path is cut */
    tell_launcher(c->last, true, text);
    if (c->rank)
        return;
    printf("checkpoint %s\n", text);
    (void)fflush(stdout); /* as above */
}

/* One that is saved, or could not be: `step`. */
static void print_ended(struct checkpoints *c, int64_t step, int result, const struct muster_error *err)
{
    if (result > 0) {
        c->last = muster_trainer_state_now(c->trainer).checkpoint_step;
        print_written(c);
        if (err->code)
            fprintf(stderr, "muster-train: rank %d: warning: step %lld has no copy on this node: %s\n",
                    c->rank, (long long)c->last, err->text);
        return;
    }
    const long long given_up = muster_trainer_state_now(c->trainer).checkpoint_given_up;
    char room[80] = "";
    if (given_up >= 0)
        (void)snprintf(room, sizeof room, "; that of step %lld was removed to make room",
                       given_up); /* fits */
    tell_launcher(step, false, err->text);
    if (c->last >= 0)
        fprintf(stderr, "muster-train: rank %d: warning: %s; the last one is that of step %lld%s\n", c->rank,
                err->text, (long long)c->last, room);
    else
        fprintf(stderr, "muster-train: rank %d: warning: %s; there is none yet\n", c->rank, err->text);
}

/* The next one is due already: training waits, so that there is one of every step that was asked for. */
static void say_late(struct checkpoints *c, int64_t step)
{
    if (!c->rank && !c->warned)
        fprintf(stderr,
                "muster-train: warning: the checkpoint of step %lld waited %.2f s for those before: raise "
                "training.checkpoint_every (printed once)\n",
                (long long)step, seconds(muster_trainer_state_now(c->trainer).checkpoint_stall_ns));
    c->warned = true;
}

/* Prints how it ended, if it has. */
static void look_at_oldest(struct checkpoints *c, bool wait, void (*before_print)(void *context),
                           void *context)
{
    struct muster_error err = {0};
    const int64_t step = muster_trainer_state_now(c->trainer).checkpoint_oldest;
    int ended = muster_trainer_checkpoint_end(c->trainer, wait, &err);
    if (!ended)
        return;
    before_print(context);
    print_ended(c, step, ended, &err);
    c->again = muster_trainer_state_now(c->trainer).checkpoint_again;
}

/* Whether another one has to wait; ends: for all before. */
static bool checkpoints_busy(const struct checkpoints *c, bool ends)
{
    const struct muster_trainer_state s = muster_trainer_state_now(c->trainer);
    return ends ? s.checkpoint_writing > 0 : s.checkpoint_busy;
}

bool checkpoints_go_on(struct checkpoints *c, bool asked, bool ends, int64_t step,
                       void (*before_print)(void *context), void *context)
{
    const int64_t every = c->config->checkpoint_every;
    bool due = asked || ends || (every > 0 && step % every == 0), late = false;
    if (!muster_trainer_state_now(c->trainer).checkpoint_writing)
        return due;
    look_at_oldest(c, false, before_print, context); /* by what the step has summed */
    if (due && muster_trainer_state_now(c->trainer).checkpoint_busy)
        look_at_oldest(c, false, before_print, context); /* what was done since */
    for (; due && checkpoints_busy(c, ends); late = true)
        look_at_oldest(c, true, before_print, context);
    if (late && !ends)
        say_late(c, step);
    due |= c->again;
    c->again = false;
    return due;
}

void checkpoints_write(struct checkpoints *c, bool ends)
{
    struct muster_error err = {0};
    const int64_t step = muster_trainer_state_now(c->trainer).steps;
    int result;
    while ((result = ends ? muster_trainer_checkpoint(c->trainer, &err)
                          : muster_trainer_checkpoint_begin(c->trainer, &err)) < 0 &&
           ends && muster_trainer_state_now(c->trainer).checkpoint_again)
        print_ended(c, step, result, &err); /* as many times as there are older ones to give up */
    c->unsaved = ends && result < 0;
    if (result < 0 || (ends && result > 0))
        print_ended(c, step, result, &err);
    else if (!result && c->last == step) {
        char text[600];
        (void)snprintf(text, sizeof text, "%s/step-%lld: it was there already", c->config->checkpoint_dir,
                       (long long)step); /* a long path is cut */
        tell_launcher(step, true, text);
    }
}

void checkpoints_estimate(const struct checkpoints *c, double left_s)
{
    double last_s = seconds(muster_trainer_state_now(c->trainer).checkpoint_ns);
    if (c->rank || !(last_s > left_s))
        return;
    fprintf(stderr,
            "muster-train: warning: the last checkpoint took %.1f s and %.1f s are left; if it is cut off "
            "the one "
            "before stays; raise muster run --shutdown-timeout (--notice-timeout)\n",
            last_s, left_s);
}
