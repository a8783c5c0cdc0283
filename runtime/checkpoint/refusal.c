/* refusal.c - see refusal.h. */
#include "runtime/checkpoint/refusal.h"

#include <string.h>

#include "proto/base/error.h"

enum refusal refusal_of(int error_code)
{
    switch (error_code) {
    case MUSTER_OK:
        return REFUSAL_NONE;
    case MUSTER_E_INVALID:
    case MUSTER_E_NOT_FOUND:
        return REFUSAL_DAMAGED;
    case MUSTER_E_REFUSED:
    case MUSTER_E_UNSUPPORTED:
    case MUSTER_E_LIMIT:
        return REFUSAL_UNFIT;
    default:
        return REFUSAL_UNREADABLE;
    }
}

/* Gives one rank's error to every rank. */
static int share_text(struct trainer *trainer, bool mine, struct muster_error *why, struct muster_error *err)
{
    double values[1 + MUSTER_ERROR_TEXT] = {0};
    values[0] = mine ? why->code : 0;
    for (int i = 0; mine && why->text[i]; i++)
        values[1 + i] = (unsigned char)why->text[i];
    if (trainer_reduce(trainer, values, 1 + MUSTER_ERROR_TEXT, err) < 0)
        return -1;
    why->code = (int)values[0];
    for (int i = 0; i < MUSTER_ERROR_TEXT; i++)
        why->text[i] = (char)(unsigned char)values[1 + i];
    return 0;
}

int refusal_share(struct trainer *trainer, int rank, int world_size, struct muster_error *why,
                  enum refusal *worst, struct muster_error *err)
{
    const enum refusal kind = refusal_of(why->code);
    double value =
        kind ? (double)kind * world_size + (world_size - 1 - rank) : 0; /* lowest rank of the worst */
    if (trainer_maximum(trainer, &value, 1, err) < 0)
        return -1;
    *worst = (enum refusal)((int64_t)value / world_size);
    if (!*worst)
        return 0;
    const int whose = world_size - 1 - (int)((int64_t)value % world_size);
    if (share_text(trainer, rank == whose, why, err) < 0)
        return -1;
    if (rank != whose)
        (void)error_wrap(why, "rank %d", whose); /* always returns -1 */
    return 0;
}
