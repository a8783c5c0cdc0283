/* observers.c - the table of observers. See observers.h. */
#include "trainer/run/observers.h"

static const struct observer *const table[OBSERVER_COUNT] = {
#define RUN_OBSERVER_ENTRY(name) [OBSERVER_##name] = &name##_observer,
    RUN_OBSERVERS(RUN_OBSERVER_ENTRY)
#undef RUN_OBSERVER_ENTRY
};

int observers_open(struct run *run, struct muster_error *err)
{
    for (int i = 0; i < OBSERVER_COUNT; i++)
        if (table[i]->open && table[i]->open(run, err) < 0)
            return -1;
    return 0;
}

int observers_begin(struct run *run, const struct run_step *step, struct muster_error *err)
{
    for (int i = 0; i < OBSERVER_COUNT; i++)
        if (table[i]->begin && table[i]->begin(run, step, err) < 0)
            return -1;
    return 0;
}

int observers_step(struct run *run, struct run_step *step, struct muster_error *err)
{
    for (int i = 0; i < OBSERVER_COUNT; i++)
        if (table[i]->step && table[i]->step(run, step, err) < 0)
            return -1;
    return 0;
}

void observers_back(struct run *run, const struct run_step *step)
{
    for (int i = 0; i < OBSERVER_COUNT; i++)
        if (table[i]->back)
            table[i]->back(run, step);
}

void observers_evaluation(struct run *run, int64_t step)
{
    for (int i = 0; i < OBSERVER_COUNT; i++)
        if (table[i]->evaluation)
            table[i]->evaluation(run, step);
}

void observers_end(struct run *run)
{
    for (int i = 0; i < OBSERVER_COUNT; i++)
        if (table[i]->end)
            table[i]->end(run);
}

void observers_stage(struct run *run)
{
    for (int i = OBSERVER_COUNT; i-- > 0;)
        if (table[i]->stage)
            table[i]->stage(run);
}

void observers_close(struct run *run)
{
    for (int i = OBSERVER_COUNT; i-- > 0;)
        if (table[i]->close)
            table[i]->close(run);
}
