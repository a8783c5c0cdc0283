/* run_fail.c - the end of a run that failed: its error, printed by one rank, and the exit code. See run.h. */
#include <stdio.h>
#include <stdlib.h>

#include "proto/env_names.h"
#include "proto/exit_code.h"
#include "trainer/run/run.h"

/* For other ranks to print theirs; all meet such an error, and at once where none of them is in a long piece
 * of work. A rank that has only learned that another one cannot start waits less: that one may have died. */
#define MEETING_NS      (5 * NS_PER_S)
#define PEER_MEETING_NS (NS_PER_S)

static bool has_no_step(const struct run *run)
{
    return run->progress.done == run->progress.begun;
}

/* The table's, but a file that was there for the first step, and is not any more, was right: its disk or
 * mount has gone. */
static int code_of(const struct run *run, int error)
{
    return error == MUSTER_E_NOT_FOUND && !has_no_step(run) ? EXIT_CODE_ENVIRONMENT
                                                            : exit_code_of_error(error);
}

/* The launcher stops all ranks as soon as one has ended: before the first step one whose peer cannot go on
 * gives that peer the time to print why, and to report that a restart is in vain. A peer whose error a
 * restart may mend is waited for, and waits for none. */
static void run_meet(struct run *run, int code, bool fatal)
{
    if (fatal)
        muster_fatal_meet(run->world, MEETING_NS);
    else if (has_no_step(run))
        muster_fatal_meet(run->world, code == MUSTER_E_PEER ? PEER_MEETING_NS : 0);
}

/* A rank whose settings are refused has no world yet: the others learn of it there, instead of waiting. */
static void run_refuse(struct run *run, const struct muster_error *err)
{
    struct muster_error why = *err; /* which the world does not change */
    if (!getenv(ENV_WORLD_SIZE) || !(run->world = muster_world_open(NULL, NULL)))
        return; /* then every rank prints its own */
    run->rank = muster_world_rank(run->world);
    run->world_size = muster_world_size(run->world);
    (void)muster_world_agree(run->world, -1, &why); /* -1, at once */
}

int run_fail(struct run *run, const struct muster_error *err)
{
    bool prints = true;
    if (run->refused)
        run_refuse(run, err);
    const int exit_code = code_of(run, err->code);
    const bool fatal = exit_code == EXIT_CODE_USAGE; /* the next round would meet it again */
    if (fatal)
        prints = muster_fatal(run->world, err);
    if (prints)
        run_show_line_end(run);
    run_place_failed(run, err);
    if (prints && run->world_size > 1)
        fprintf(stderr, "muster-train: rank %d: error: %s\n", run->rank, err->text);
    else if (prints)
        fprintf(stderr, "muster-train: error: %s\n", err->text);
    run_place_linger(run, err);
    run_meet(run, err->code, fatal);
    return exit_code;
}

int run_fail_usage(void)
{
    const struct muster_error why = {MUSTER_E_INVALID, "the command line is wrong"};
    (void)muster_fatal(NULL, &why); /* every rank has printed what is wrong with it */
    return EXIT_CODE_USAGE;
}
