/* simulate.c - the simulator as a program: one seed or one file with its trace, many seeds, or a failing one
 * made small. README.md tells how it is used. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "tests/simulation/campaign.h"
#include "tests/simulation/schedule.h"
#ifdef MUSTER_PLANTED_BUGS
#include "tests/simulation/planted_bugs.h"
#endif

struct request {
    uint64_t seed, count;
    int jobs, progress_s;
    const char *file;
    bool trace, print, shrink, moving;
};

static const char usage[] =
    "usage: simulate [--seed N | --schedule FILE] [--trace] [--print] [--shrink]\n"
    "       simulate --seeds COUNT [--seed FIRST] [--jobs N] [--progress SECONDS]\n"
    "  --seed N         the schedule of this seed (odd: static, even: elastic)\n"
    "  --schedule FILE  the schedule of a file, as --print and --shrink write it\n"
    "  --trace          print what happens\n"
    "  --print          print the schedule\n"
    "  --shrink         make a schedule that breaks an invariant small, and print it\n"
    "  --moving         seeds of jobs whose server is lost again and again\n"
    "  --seeds COUNT    so many seeds from FIRST (1) on; a failing one is made small and printed\n"
    "  --mutation N     simulate_mutated only: plant the bug of this number, or list them with 'list'\n"
    "Status: 0 where every invariant held, 1 where one broke, 2 for a wrong call.\n";

static void tell_broken(const struct outcome *outcome)
{
    (void)printf("# broken: %s\n# %s: %s\n", outcome->text, invariant_name(outcome->broken),
                 invariant_meaning(outcome->broken));
}

static void print_schedule(const struct schedule *schedule)
{
    scope_buffer text = {0};
    schedule_write(schedule, &text);
    (void)fputs(text.data ? text.data : "", stdout);
}

static int run_one(const struct request *request, struct schedule *schedule)
{
    struct outcome outcome;
    scope_buffer trace = {0};
    schedule_run(schedule, &outcome, NULL);
    if (request->shrink && outcome.broken) {
        int runs = schedule_shrink(schedule, outcome.broken);
        (void)printf("# made small in %d runs\n", runs);
    }
    if (request->trace || request->shrink)
        schedule_run(schedule, &outcome, &trace);
    if (request->print || request->shrink)
        print_schedule(schedule);
    if (request->trace)
        (void)fputs(trace.data ? trace.data : "", stdout);
    if (outcome.broken)
        tell_broken(&outcome);
    else
        (void)printf("# %s with code %d after %" PRId64 " restarts, %" PRIu64
                     " events; every invariant held\n",
                     roster_job_state_name(outcome.state), outcome.code, outcome.restarts, outcome.events);
    return outcome.broken != INVARIANT_NONE;
}

static void show_found(uint64_t seed)
{
    struct schedule schedule;
    struct outcome outcome;
    schedule_random(seed, &schedule);
    schedule_run(&schedule, &outcome, NULL);
    (void)printf("\n# seed %" PRIu64 ": %s\n# replay: simulate --seed %" PRIu64
                 " --trace; or the rest of this as a file: simulate --schedule FILE --trace\n",
                 seed, outcome.text, seed);
    (void)schedule_shrink(&schedule, outcome.broken);
    print_schedule(&schedule);
}

static int run_many(const struct request *request)
{
    enum { SHOWN = 3 };
    struct campaign campaign = {.first = request->seed,
                                .count = request->count,
                                .jobs = request->jobs,
                                .every_ns = request->progress_s * NS_PER_S};
    struct campaign_result r;
    if (campaign_run(&campaign, &r) < 0) {
        (void)fprintf(stderr, "a process of the campaign did not end well\n");
        return 1;
    }
    double seconds = (double)r.took_ns / NS_PER_S;
    (void)printf("seeds %" PRIu64 "..%" PRIu64 ": %" PRIu64 " jobs finished, %" PRIu64 " failed, %" PRIu64
                 " restarts; %.1f million events in %.1f s: %.2f million a second, %.0f seeds a second; "
                 "%" PRIu64 " violations\n",
                 request->seed, request->seed + request->count - 1, r.finished, r.failed, r.restarts,
                 (double)r.events / 1e6, seconds, (double)r.events / 1e6 / seconds, (double)r.seeds / seconds,
                 r.found_count);
    for (uint64_t i = 0; i < r.found_count && i < SHOWN; i++)
        show_found(r.found[i]);
    if (r.found_count)
        return 1;
    /* A generator that only makes dead or only makes healthy jobs tests nothing. */
    bool lopsided = r.finished < r.seeds / 5 || r.finished > r.seeds * 19 / 20 || r.restarts < r.seeds / 5;
    if (r.seeds >= 1000 && lopsided)
        (void)printf("the schedules are lopsided\n");
    return r.seeds >= 1000 && lopsided;
}

static bool plant(const char *name)
{
#ifdef MUSTER_PLANTED_BUGS
    char *end;
    long which = strtol(name, &end, 10);
    if (*end == '\0' && which >= 0 && which < BUG_COUNT) {
        planted_bug = (enum planted_bug)which;
        return true;
    }
    for (int i = 0; i < BUG_COUNT; i++)
        (void)printf("%2d  %s\n", i, planted_meanings[i]);
#else
    (void)name;
    (void)fprintf(stderr, "this program has no bugs to plant: use simulate_mutated\n");
#endif
    return false;
}

static bool read_option(struct request *request, int option)
{
    switch (option) {
    case 's':
        request->seed = strtoull(optarg, NULL, 10);
        return true;
    case 'n':
        request->count = strtoull(optarg, NULL, 10);
        return request->count > 0;
    case 'j':
        request->jobs = (int)strtol(optarg, NULL, 10);
        return request->jobs > 0 && request->jobs <= CAMPAIGN_JOBS_LIMIT;
    case 'P':
        request->progress_s = (int)strtol(optarg, NULL, 10);
        return request->progress_s >= 0;
    case 'f':
        request->file = optarg;
        return true;
    case 't':
        return request->trace = true;
    case 'p':
        return request->print = true;
    case 'k':
        return request->shrink = true;
    case 'm':
        return plant(optarg);
    case 'M':
        return request->moving = true;
    default:
        return false;
    }
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"seed", required_argument, NULL, 's'},
        {"seeds", required_argument, NULL, 'n'},
        {"jobs", required_argument, NULL, 'j'},
        {"progress", required_argument, NULL, 'P'},
        {"schedule", required_argument, NULL, 'f'},
        {"trace", no_argument, NULL, 't'},
        {"print", no_argument, NULL, 'p'},
        {"shrink", no_argument, NULL, 'k'},
        {"mutation", required_argument, NULL, 'm'},
        {"moving", no_argument, NULL, 'M'},
        {0},
    };
    struct request request = {.seed = 1, .jobs = 1};
    struct schedule schedule;
    struct muster_error err = {0};
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) >= 0;)
        if (!read_option(&request, option)) {
            (void)fputs(usage, stderr);
            return 2;
        }
    if (optind < argc) {
        (void)fputs(usage, stderr);
        return 2;
    }
    if (request.moving)
        request.seed |= SCHEDULE_MOVING;
    if (request.count)
        return run_many(&request);
    if (!request.file)
        schedule_random(request.seed, &schedule);
    else if (schedule_load(request.file, &schedule, &err) < 0) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 2;
    }
    return run_one(&request, &schedule);
}
