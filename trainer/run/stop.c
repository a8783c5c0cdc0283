/* stop.c - see stop.h. */
#include "trainer/run/stop.h"

#include <signal.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"

struct stop {
    bool notices;        /* a launcher gives stop notices */
    bool noticed;        /* this rank has a request that the other ranks may not have seen */
    bool cuts_short;     /* all ranks end before the last step */
    struct instant ends; /* deadline of the notice; INSTANT_NEVER: none */
    int coming;          /* enum muster_coming of the notice */
};

static volatile sig_atomic_t asked, terminated;

static void take_signal(int number)
{
    if (number == SIGTERM)
        terminated = 1;
    else
        asked = 1;
}

static int handle_signals(bool terminates, struct muster_error *err)
{
    struct sigaction action = {.sa_handler = take_signal, .sa_flags = SA_RESTART};
    if (sigaction(SIGUSR2, &action, NULL) < 0)
        return error_errno(err, "cannot handle SIGUSR2");
    action.sa_flags |= (int)SA_RESETHAND; /* a second one ends the process at once */
    return terminates && sigaction(SIGTERM, &action, NULL) < 0 ? error_errno(err, "cannot handle SIGTERM")
                                                               : 0;
}

int stop_listen(struct run *run, struct muster_error *err)
{
    if (run->stop)
        return 0;
    const int notices = muster_notice_listen(err);
    if (notices < 0)
        return -1;
    run->stop = mem_calloc(1, sizeof *run->stop);
    if (!run->stop)
        return error_set(err, MUSTER_E_NOMEM, "no memory to listen for stop notices");
    run->stop->notices = notices > 0;
    run->stop->ends = INSTANT_NEVER;
    return run_keeps_checkpoints(run) ? handle_signals(!run->stop->notices, err) : 0;
}

bool stop_is_requested(const struct run *run)
{
    return run->stop && run->stop->noticed;
}

bool stop_wants_checkpoint(void)
{
    const bool wants = asked;
    asked = 0;
    return wants;
}

int stop_look(struct run *run, bool agreed, struct muster_error *err)
{
    struct stop *s = run->stop;
    struct muster_notice notice = {.size = sizeof notice};
    const int noticed = s->notices ? muster_notice(&notice, err) : 0;
    if (noticed < 0)
        return -1;
    s->noticed = noticed > 0 || terminated;
    s->ends = noticed > 0 ? (struct instant){notice.deadline_ns} : INSTANT_NEVER;
    s->coming = noticed > 0 ? notice.coming : MUSTER_STOP_COMES;
    s->cuts_short = agreed || (s->noticed && run->world_size == 1);
    return 0;
}

bool stop_cuts_short(const struct run *run)
{
    return run->stop && run->stop->cuts_short;
}

struct instant stop_deadline(const struct run *run)
{
    return run->stop ? run->stop->ends : INSTANT_NEVER;
}

bool stop_is_end(const struct run *run)
{
    return !stop_cuts_short(run) || terminated || run->stop->coming == MUSTER_JOB_STOPS;
}

bool stop_is_terminated(void)
{
    return terminated;
}

void stop_close(struct run *run)
{
    mem_free(run->stop);
    run->stop = NULL;
}
