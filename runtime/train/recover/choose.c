/* choose.c - see choose.h. */
#include "runtime/train/recover/choose.h"

bool recover_rank_has_any(const struct recover_rank *steps)
{
    bool has = steps->live >= 0;
    for (int i = 0; i < RECOVER_GENERATIONS; i++)
        has = has || steps->own[i] >= 0 || steps->kept[i] >= 0;
    return has;
}

int recover_generation(const double steps[RECOVER_GENERATIONS], int64_t step)
{
    for (int i = 0; i < RECOVER_GENERATIONS; i++)
        if (steps[i] >= 0 && (int64_t)steps[i] == step)
            return i;
    return -1;
}

bool recover_finishes(const struct recover_rank *rank, int64_t step)
{
    return rank->finishes > 0 && rank->live >= 0 && (int64_t)rank->live + 1 == step;
}

static bool has_finished(const struct recover_rank *rank, int64_t step)
{
    return (rank->live >= 0 && (int64_t)rank->live == step) || recover_generation(rank->own, step) >= 0;
}

static bool is_live(const struct recover_rank *rank, int64_t step)
{
    return (rank->live >= 0 && (int64_t)rank->live == step) || recover_finishes(rank, step);
}

static bool has_own(const struct recover_rank *rank, int64_t step)
{
    return has_finished(rank, step) || recover_finishes(rank, step);
}

/* The rank with the state of that step for rank r; -1: none. Replicas of several ranks send to one each,
 * where there are as many. */
static int find_sender(const struct recover_rank *ranks, int size, const int *replica_of, int shift, int r,
                       int64_t step)
{
    const int keeper = (r + shift) % size;
    if (has_own(&ranks[r], step))
        return r;
    for (int i = 1; i < size; i++) {
        const int other = (r + i) % size;
        if (replica_of[other] == replica_of[r] && is_live(&ranks[other], step))
            return other;
    }
    return shift && recover_generation(ranks[keeper].kept, step) >= 0 ? keeper : -1;
}

static bool fits(const struct recover_rank *ranks, int size, const int *replica_of, int shift, int64_t step)
{
    for (int r = 0; r < size; r++)
        if (find_sender(ranks, size, replica_of, shift, r, step) < 0)
            return false;
    return true;
}

/* The largest step below `below` that any rank has; -1: none. */
static int64_t next_step(const struct recover_rank *ranks, int size, int64_t below)
{
    int64_t step = -1;
    for (int r = 0; r < size; r++) {
        const double found[] = {ranks[r].live, ranks[r].own[0], ranks[r].own[1], ranks[r].kept[0],
                                ranks[r].kept[1]};
        for (int i = 0; i < (int)(sizeof found / sizeof *found); i++)
            if ((int64_t)found[i] > step && (int64_t)found[i] < below)
                step = (int64_t)found[i];
    }
    return step;
}

bool recover_choose(const struct recover_rank *ranks, int size, const int *replica_of, int shift,
                    struct recover_choice *choice, int *from)
{
    int64_t step = INT64_MAX;
    do
        step = next_step(ranks, size, step);
    while (step >= 0 && !fits(ranks, size, replica_of, shift, step));
    *choice = (struct recover_choice){step, -1};
    for (int r = 0; r < size && step >= 0; r++) {
        from[r] = find_sender(ranks, size, replica_of, shift, r, step);
        if (choice->text_from < 0 && from[r] == r && has_finished(&ranks[r], step))
            choice->text_from = r;
    }
    return step >= 0 && choice->text_from >= 0;
}
