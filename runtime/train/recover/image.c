/* image.c - see image.h. */
#include "runtime/train/recover/image.h"

#include <string.h>

#include "runtime/train/trainer_state.h"

int image_walk(const struct trainer *trainer, int (*visit)(void *context, char *bytes, int64_t count),
               void *context)
{
    const struct plan *plan = &trainer->plan;
    for (int g = 0; g < plan->group_count; g++) {
        int entries[PLAN_STATE_ENTRIES];
        const int count = plan_state_entries(&plan->groups[g], entries);
        for (int i = 0; i < count; i++)
            if (visit(context, executor_address(&trainer->parts, entries[i], 0),
                      plan->entries[entries[i]].bytes) < 0)
                return -1;
    }
    return 0;
}

int64_t image_bytes(const struct plan *plan)
{
    int64_t bytes = 0;
    for (int g = 0; g < plan->group_count; g++) {
        int entries[PLAN_STATE_ENTRIES];
        const int count = plan_state_entries(&plan->groups[g], entries);
        for (int i = 0; i < count; i++)
            bytes += plan->entries[entries[i]].bytes;
    }
    return bytes;
}

struct cursor {
    char *at;
    bool out;
};

static int copy_piece(void *context, char *bytes, int64_t count)
{
    struct cursor *cursor = context;
    if (cursor->out)
        memcpy(cursor->at, bytes, (size_t)count);
    else
        memcpy(bytes, cursor->at, (size_t)count);
    cursor->at += count;
    return 0;
}

void image_copy_out(const struct trainer *trainer, char *to)
{
    struct cursor cursor = {to, true};
    (void)image_walk(trainer, copy_piece, &cursor); /* copies do not fail */
}

void image_copy_in(const struct trainer *trainer, const char *from)
{
    struct cursor cursor = {(char *)from, false}; /* only read */
    (void)image_walk(trainer, copy_piece, &cursor);
}
