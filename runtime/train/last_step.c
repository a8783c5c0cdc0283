/* last_step.c - see last_step.h. The store only adds: the first rank counted among the proposers sets the
 * step. */
#include "runtime/train/last_step.h"

static const char proposers_key[] = "last-step/proposers", step_key[] = "last-step/number";

/* The number in the store is one more than the last step, and 0 while there is none. */
static int propose(struct last_step *last, int64_t step, struct muster_error *err)
{
    const struct kv_store *store = last->store;
    int64_t count;
    if (store->add(store->ctx, proposers_key, 1, &count, err))
        return -1;
    last->proposed = true;
    return count == 1 ? store->add(store->ctx, step_key, step + 1, NULL, err) : 0;
}

int last_step_reached(struct last_step *last, int64_t step, bool stop_requested, bool *reached,
                      struct muster_error *err)
{
    const struct kv_store *store = last->store;
    int64_t number;
    if (!store) {
        *reached = stop_requested;
        return 0;
    }
    if (stop_requested && !last->proposed && propose(last, step + 1, err))
        return -1;
    if (store->add(store->ctx, step_key, 0, &number, err))
        return -1;
    *reached = number && step + 1 >= number;
    return 0;
}
