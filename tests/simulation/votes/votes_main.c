/* votes_main.c - many jobs that elect their server (votes.h).
 *
 *     simulate_votes [--seed FIRST] [--seeds COUNT] [--trace]    random ones; --trace prints one
 *     simulate_votes --quiet ...                                 agents that end, one at a time
 *     simulate_votes --drains ...                                agents leave in order, another ends
 *     simulate_votes --all-ranks ...                             a world needs all agents
 *     simulate_votes --directed INDEX --trace
 *     simulate_votes_mutated --mutation N ...                    with a planted bug; -1: their list */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/text.h"
#include "tests/simulation/votes/votes.h"
#ifdef MUSTER_PLANTED_BUGS
#include "tests/simulation/planted_bugs.h"
#endif

struct totals {
    uint64_t jobs, broken, stuck, rounds, takeovers, events, begun_again;
    int64_t first;
    char text[256];
};

static void add(struct totals *totals, int64_t seed, const struct votes_outcome *outcome)
{
    if (outcome->broken && !totals->broken++) {
        totals->first = seed;
        memcpy(totals->text, outcome->text, sizeof totals->text);
    }
    totals->jobs++;
    totals->stuck += outcome->stuck;
    totals->rounds += outcome->rounds;
    totals->takeovers += outcome->takeovers;
    totals->events += outcome->events;
    totals->begun_again += outcome->jobs > 1;
}

static int usage(void)
{
    fprintf(stderr, "usage: simulate_votes [--seed FIRST] [--seeds COUNT] [--quiet | --drains | --all-ranks] "
                    "[--directed INDEX] [--mutation N] [--trace]\n");
    return 2;
}

int main(int argc, char **argv)
{
    int64_t seed = 1, seeds = 1000, directed = -1, mutation = 0;
    bool trace = false;
    void (*make)(uint64_t, struct votes_schedule *) = votes_random;
    for (int i = 1; i < argc; i++) {
        const struct {
            const char *name;
            int64_t *value;
        } options[] = {
            {"--seed", &seed}, {"--seeds", &seeds}, {"--directed", &directed}, {"--mutation", &mutation}};
        static const struct {
            const char *name;
            void (*make)(uint64_t, struct votes_schedule *);
        } makers[] = {{"--quiet", votes_quiet}, {"--drains", votes_drains}, {"--all-ranks", votes_all_ranks}};
        bool known = !strcmp(argv[i], "--trace");
        trace |= known;
        for (size_t k = 0; !known && k < sizeof makers / sizeof *makers; k++)
            if (!strcmp(argv[i], makers[k].name)) {
                make = makers[k].make;
                known = true;
            }
        for (size_t k = 0; !known && k < sizeof options / sizeof *options; k++)
            if (!strcmp(argv[i], options[k].name))
                known = i + 1 < argc && text_int64(argv[++i], options[k].value);
        if (!known)
            return usage();
    }
#ifdef MUSTER_PLANTED_BUGS
    for (int k = 1; mutation < 0 && k < BUG_COUNT; k++)
        printf("%2d %s\n", k, planted_meanings[k]);
    if (mutation < 0 || mutation >= BUG_COUNT)
        return mutation < 0 ? 0 : usage();
    planted_bug = (enum planted_bug)mutation;
#endif
    struct votes_outcome outcome;
    struct votes_schedule schedule;
    if (directed >= 0) {
        const struct votes_schedule *chosen = votes_directed((int)directed);
        if (!chosen)
            return usage();
        votes_run(chosen, trace, &outcome);
        printf("directed %" PRId64 ": %s, %" PRId64 " ms to the next world\n", directed,
               outcome.broken ? outcome.text : "holds", outcome.pause_ms);
        return outcome.broken;
    }
    struct totals totals = {0};
    for (int64_t i = 0; i < (trace ? 1 : seeds); i++) {
        make((uint64_t)(seed + i), &schedule);
        votes_run(&schedule, trace, &outcome);
        add(&totals, seed + i, &outcome);
        if (outcome.broken && mutation)
            break;
    }
    printf("%" PRIu64 " jobs, %" PRIu64 " rounds, %" PRIu64 " changes of server, %" PRIu64 " events; %" PRIu64
           " left without a majority, %" PRIu64 " begun again; %" PRIu64 " broken",
           totals.jobs, totals.rounds, totals.takeovers, totals.events, totals.stuck, totals.begun_again,
           totals.broken);
    if (totals.broken)
        printf(", the first at seed %" PRId64 ": %s", totals.first, totals.text);
    putchar('\n');
    return totals.broken != 0;
}
