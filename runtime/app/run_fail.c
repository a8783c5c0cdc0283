/* run_fail.c - the end of a run that failed: its error, printed by one rank, and the exit code. See run.h. */
#include <stdio.h>
#include <stdlib.h>

#include "proto/env_names.h"
#include "proto/exit_code.h"
#include "runtime/app/run.h"
#include "runtime/world/fatal.h"

/* For other ranks to print theirs; all meet such an error, and at once where none of them is in a long piece
 * of work. A rank that has only learned that another one cannot start waits less: that one may have died. */
#define MEETING_NS      (5 * NS_PER_S)
#define PEER_MEETING_NS (NS_PER_S)

/* Whether the user can fix it: invalid input, or a plan that does not fit into memory. */
static bool is_usage(int code)
{
    return code == MUSTER_E_INVALID || code == MUSTER_E_NOT_FOUND || code == MUSTER_E_UNSUPPORTED ||
           code == MUSTER_E_LIMIT || code == MUSTER_E_NOMEM || code == MUSTER_E_REFUSED;
}

static bool has_no_step(const struct run *run)
{
    return run->progress.done == run->progress.begun;
}

/* Whether the next round would meet it again. Memory that is not there before the first step will not be
 * there then either: the settings ask for too much. Later something else has taken it, and may be gone by
 * then. */
static bool run_is_fatal(const struct run *run, int code)
{
    return is_usage(code) && (code != MUSTER_E_NOMEM || has_no_step(run));
}

/* The launcher stops all ranks as soon as one has ended: before the first step one whose peer cannot go on
 * gives that peer the time to print why, and to report that a restart is in vain. A peer whose error a
 * restart may mend is waited for, and waits for none. */
static void run_meet(struct run *run, int code, bool fatal)
{
    if (fatal)
        fatal_meet(run->world, MEETING_NS);
    else if (has_no_step(run))
        fatal_meet(run->world, code == MUSTER_E_PEER ? PEER_MEETING_NS : 0);
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
    const bool fatal = run_is_fatal(run, err->code);
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
    return is_usage(err->code) ? EXIT_CODE_USAGE : EXIT_CODE_FAILURE;
}

int run_fail_usage(void)
{
    const struct muster_error why = {MUSTER_E_INVALID, "the command line is wrong"};
    (void)muster_fatal(NULL, &why); /* every rank has printed what is wrong with it */
    return EXIT_CODE_USAGE;
}
