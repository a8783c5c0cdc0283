/* commit.c - see commit.h. */
#include "runtime/checkpoint/commit.h"

const struct commit_row commit_table[COMMIT_STATE_COUNT] = {
#define COMMIT_ROW(symbol, what, good_, bad_) [symbol] = {.good = (good_), .bad = (bad_)},
    COMMIT_STATES(COMMIT_ROW)
#undef COMMIT_ROW
};

const struct save_row save_table[SAVE_STATE_COUNT] = {
#define SAVE_ROW(symbol, by_, what, good_, bad_) [symbol] = {.by = (by_), .good = (good_), .bad = (bad_)},
    SAVE_STATES(SAVE_ROW)
#undef SAVE_ROW
};

enum commit_state commit_next(const struct commit_row *table, enum commit_state state, bool good)
{
    return good ? table[state].good : table[state].bad;
}

bool commit_ended(enum commit_state state)
{
    return state == COMMIT_DONE || state == COMMIT_FAILED;
}

bool save_works(const struct save_row *table, enum save_state state, int rank)
{
    return !save_ended(state) && (table[state].by == SAVE_ALL || rank == 0);
}

enum save_state save_next(const struct save_row *table, enum save_state state, struct save_votes votes,
                          int ranks, bool behind)
{
    const double workers = table[state].by == SAVE_ALL ? ranks : 1;
    if (votes.ended < workers || behind)
        return state;
    return votes.failed > 0 ? table[state].bad : table[state].good;
}

bool save_ended(enum save_state state)
{
    return state == SAVE_DONE || state == SAVE_FAILED;
}

bool save_may_begin(const enum save_state *states, int count)
{
    for (int i = 0; i < count; i++)
        if (states[i] == SAVE_WRITE)
            return false;
    return count < SAVES_AT_ONCE;
}

/* Number of checkpoints newer than `step`, up to and including `saved`, which stays. */
static int64_t newer_than(int64_t step, int64_t saved, const int64_t *steps, int count)
{
    int64_t newer = 1;
    for (int i = 0; i < count; i++)
        newer += steps[i] > step && steps[i] < saved;
    return newer;
}

/* Rank of a checkpoint: the lowest is given up first. */
static int worth(const struct retention *retention, int64_t step)
{
    const bool multiple = retention->every > 0 && step % retention->every == 0;
    return step > 0 && (step == retention->best || step == retention->best_before) ? 2 : multiple;
}

int retention_give_up(const struct retention *retention, const int64_t *steps, const bool *held, int count)
{
    int chosen = -1;
    bool good = false;
    for (int i = 0; i < count; i++) {
        good |= steps[i] == retention->good;
        if (steps[i] == retention->good || held[i])
            continue;
        const int here = worth(retention, steps[i]), there = chosen < 0 ? 0 : worth(retention, steps[chosen]);
        if (chosen < 0 || here < there || (here == there && steps[i] < steps[chosen]))
            chosen = i;
    }
    return good ? chosen : -1;
}

void retention_choose(const struct retention *retention, int64_t step, const int64_t *steps, int count,
                      bool *remove)
{
    for (int i = 0; i < count; i++) {
        bool multiple = retention->every > 0 && steps[i] % retention->every == 0;
        remove[i] = steps[i] < step && !multiple && steps[i] != retention->best &&
                    newer_than(steps[i], step, steps, count) >= retention->last;
    }
}
