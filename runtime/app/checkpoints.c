/* checkpoints.c - see checkpoints.h. */
#include "runtime/app/checkpoints.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

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
        else if (strncmp(line, "resumed", 7) != 0 && (c->rank == 0 || !strncmp(line, "refused", 7)))
            fprintf(stderr, "muster-train: warning: %.*s\n", length, line);
        line += length + (line[length] == '\n');
    }
    (void)fflush(stdout); /* a closed console does not stop the training */
}

/* The data are not the trainer's: another text has other samples under the same numbers. */
static int note_data(struct checkpoints *c, bool resumed, struct muster_error *err)
{
    const char *before = muster_trainer_noted(c->trainer, "data.path");
    if (resumed && before && strcmp(before, c->config->path) != 0 && c->rank == 0)
        fprintf(
            stderr,
            "muster-train: warning: data.path is %s, and was %s: the samples are taken from there from now "
            "on\n",
            c->config->path, before);
    return muster_trainer_note(c->trainer, "data.path", c->config->path, err);
}

int checkpoints_resume(struct checkpoints *c, struct muster_error *err)
{
    static char report[REPORT_SIZE]; /* of one call a process */
    report[0] = '\0';
    int result = muster_trainer_resume(c->trainer, report, sizeof report, err);
    print_report(c, report);
    c->last = result > 0 ? (int64_t)muster_trainer_figure(c->trainer, "checkpoint_step") : -1;
    return result < 0 || note_data(c, result > 0, err) < 0 ? -1 : result;
}

int checkpoints_go_back(struct checkpoints *c, int64_t *step, struct muster_error *err)
{
    static char report[REPORT_SIZE]; /* of one call at a time */
    report[0] = '\0';
    int result = muster_trainer_roll_back(c->trainer, report, sizeof report, err);
    print_report(c, report);
    *step = result > 0 ? (int64_t)muster_trainer_figure(c->trainer, "steps") : -1;
    if (result > 0)
        c->last = *step;
    if (result > 0 && !c->rank)
        fprintf(stderr,
                "muster-train: warning: back to the checkpoint of step %lld; the samples since then are left "
                "out, number %lld is the next\n",
                (long long)*step, (long long)muster_trainer_figure(c->trainer, "taken"));
    return result < 0 || (result > 0 && note_data(c, false, err) < 0) ? -1 : 0;
}

int checkpoints_ask(struct checkpoints *c, struct muster_error *err)
{
    bool asks = asked;
    asked = 0;
    return muster_trainer_set(c->trainer, "checkpoint", asks, err);
}

static double seconds(const struct checkpoints *c, const char *figure)
{
    return muster_trainer_figure(c->trainer, figure) / (double)NS_PER_S;
}

static void print_written(const struct checkpoints *c)
{
    char bytes[32];
    if (c->rank)
        return;
    printf("checkpoint %s/step-%lld: %s a rank in %.2f s, of which training waited %.3f s\n",
           c->config->checkpoint_dir, (long long)c->last,
           text_format_bytes(bytes, sizeof bytes,
                             (int64_t)muster_trainer_figure(c->trainer, "checkpoint_bytes")),
           seconds(c, "checkpoint_ns"), seconds(c, "checkpoint_stall_ns"));
    (void)fflush(stdout); /* as above */
}

/* One that is saved, or could not be. */
static void print_ended(struct checkpoints *c, int result, const struct muster_error *err)
{
    if (result > 0) {
        c->last = (int64_t)muster_trainer_figure(c->trainer, "checkpoint_step");
        print_written(c);
        if (err->code)
            fprintf(stderr, "muster-train: rank %d: warning: step %lld has no copy on this node: %s\n",
                    c->rank, (long long)c->last, err->text);
    } else if (c->last >= 0)
        fprintf(stderr, "muster-train: rank %d: warning: %s; the last one is that of step %lld\n", c->rank,
                err->text, (long long)c->last);
    else
        fprintf(stderr, "muster-train: rank %d: warning: %s; there is none yet\n", c->rank, err->text);
}

static bool writing(const struct checkpoints *c)
{
    return muster_trainer_figure(c->trainer, "checkpoint_writing") > 0;
}

/* The next one is due already: training waits, so that there is one of every step that was asked for. */
static void say_late(struct checkpoints *c, int64_t step)
{
    if (!c->rank && !c->warned)
        fprintf(stderr,
                "muster-train: warning: the checkpoint of step %lld waited %.2f s for the one before: raise "
                "training.checkpoint_every (printed once)\n",
                (long long)step, seconds(c, "checkpoint_stall_ns"));
    c->warned = true;
}

bool checkpoints_go_on(struct checkpoints *c, bool asked, bool ends, int64_t step,
                       void (*before_print)(void *context), void *context)
{
    const int64_t every = c->config->checkpoint_every;
    const bool due = asked || ends || (every > 0 && step % every == 0);
    struct muster_error err = {0};
    if (!writing(c))
        return due;
    int ended = muster_trainer_checkpoint_end(c->trainer, false, &err);
    const bool late = due && !ended;
    if (late)
        ended = muster_trainer_checkpoint_end(c->trainer, true, &err);
    if (ended) {
        before_print(context);
        print_ended(c, ended, &err);
    }
    if (late && !ends)
        say_late(c, step);
    return due;
}

void checkpoints_write(struct checkpoints *c, bool ends)
{
    struct muster_error err = {0};
    int result = ends ? muster_trainer_checkpoint(c->trainer, &err)
                      : muster_trainer_checkpoint_begin(c->trainer, &err);
    if (result < 0 || (ends && result > 0))
        print_ended(c, result, &err);
}

void checkpoints_estimate(const struct checkpoints *c, double left_s)
{
    double last_s = seconds(c, "checkpoint_ns");
    if (c->rank || !(last_s > left_s))
        return;
    fprintf(stderr,
            "muster-train: warning: the last checkpoint took %.1f s and %.1f s are left; if it is cut off "
            "the one "
            "before stays; raise muster run --shutdown-timeout (--notice-timeout)\n",
            last_s, left_s);
}
