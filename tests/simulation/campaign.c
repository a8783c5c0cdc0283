/* campaign.c - see campaign.h. The processes share one page: each takes the next few seeds from it. */
#include "tests/simulation/campaign.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "proto/exit_code.h"
#include "tests/simulation/schedule.h"

enum { TAKEN_AT_ONCE = 32 };

struct shared {
    atomic_uint_fast64_t next, seeds, events, finished, failed, restarts, found_count;
    atomic_uint_fast64_t found[CAMPAIGN_FOUND_LIMIT];
};

static void run_seed(struct shared *shared, uint64_t seed)
{
    struct schedule schedule;
    struct outcome outcome;
    schedule_random(seed, &schedule);
    schedule_run(&schedule, &outcome, NULL);
    shared->seeds++;
    shared->events += outcome.events;
    shared->restarts += (uint64_t)outcome.restarts;
    shared->finished += outcome.state == JOB_FINISHED && outcome.code == EXIT_CODE_OK;
    shared->failed += outcome.state == JOB_FINISHED && outcome.code != EXIT_CODE_OK;
    if (!outcome.broken)
        return;
    uint64_t place = shared->found_count++;
    if (place < CAMPAIGN_FOUND_LIMIT)
        shared->found[place] = seed;
    (void)fprintf(stderr, "seed %" PRIu64 ": %s\n", seed, outcome.text);
}

static void work(const struct campaign *campaign, struct shared *shared)
{
    for (;;) {
        uint64_t first = atomic_fetch_add(&shared->next, TAKEN_AT_ONCE);
        for (uint64_t i = first; i < first + TAKEN_AT_ONCE; i++) {
            if (i >= campaign->count || (campaign->stop_at_first && shared->found_count))
                return;
            run_seed(shared, campaign->first + i);
        }
    }
}

static void tell(const struct campaign *campaign, const struct shared *shared, int64_t took_ns)
{
    double seconds = (double)took_ns / NS_PER_S;
    (void)fprintf(stderr,
                  "%" PRIuFAST64 " of %" PRIu64 " seeds (%.0f a second), %.1f million events (%.2f million a "
                  "second), %" PRIuFAST64 " violations\n",
                  shared->seeds, campaign->count, (double)shared->seeds / seconds,
                  (double)shared->events / 1e6, (double)shared->events / 1e6 / seconds, shared->found_count);
}

/* Until all have ended; whether each did well. */
static int wait_for_all(const struct campaign *campaign, const struct shared *shared, int running,
                        struct instant begun)
{
    int failed = 0, status;
    struct instant next = campaign->every_ns ? instant_add(begun, campaign->every_ns) : INSTANT_NEVER;
    while (running) {
        pid_t ended = waitpid(-1, &status, campaign->every_ns ? WNOHANG : 0);
        if (ended > 0) {
            running--;
            failed |= status != 0;
        } else if (ended == 0) {
            (void)poll(NULL, 0, 100);
        } else {
            return -1;
        }
        struct instant now = clock_now(NULL);
        if (instant_reached(now, next)) {
            tell(campaign, shared, instant_diff_ns(now, begun));
            next = instant_add(now, campaign->every_ns);
        }
    }
    return failed ? -1 : 0;
}

static void sum_up(const struct shared *shared, struct campaign_result *result)
{
    result->seeds = shared->seeds;
    result->events = shared->events;
    result->finished = shared->finished;
    result->failed = shared->failed;
    result->restarts = shared->restarts;
    result->found_count = shared->found_count;
    for (int i = 0; i < CAMPAIGN_FOUND_LIMIT; i++)
        result->found[i] = shared->found[i];
}

int campaign_run(const struct campaign *campaign, struct campaign_result *result)
{
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return -1;
    struct instant begun = clock_now(NULL);
    int running = 0;
    (void)fflush(NULL);
    for (; running < campaign->jobs && (campaign->jobs > 1 || campaign->every_ns); running++) {
        pid_t pid = fork();
        if (pid < 0)
            break;
        if (pid == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            work(campaign, shared);
            _exit(0);
        }
    }
    if (!running)
        work(campaign, shared);
    int failed = wait_for_all(campaign, shared, running, begun);
    sum_up(shared, result);
    result->took_ns = instant_diff_ns(clock_now(NULL), begun);
    (void)munmap(shared, sizeof *shared);
    return failed;
}
