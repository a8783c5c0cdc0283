/* share.c - see share.h. */
#include "runtime/train/recover/share.h"

#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/train/recover/recover.h"
#include "runtime/train/trainer_state.h"

int share_bytes(struct trainer *trainer, enum comm_kind kind, int root, void *bytes, int64_t count,
                struct muster_error *err)
{
    const struct comm_op op = {.kind = kind, .dtype = DTYPE_U8, .root = root, .count = count};
    return trainer->comms.control ? trainer->comms.ops->run(trainer->comms.control, &op, bytes, bytes, err)
                                  : 0;
}

struct heading {
    struct trainer_counts counts;
    int64_t length;
};

int share_text(struct trainer *trainer, int root, const struct trainer_counts *counts,
               const struct buffer *text, struct buffer *theirs, struct muster_error *err)
{
    struct heading heading = {0};
    if (trainer->rank == root)
        heading = (struct heading){*counts, (int64_t)text->length};
    if (share_bytes(trainer, COMM_BROADCAST, root, &heading, sizeof heading, err) < 0)
        return -1;
    if (heading.length < 0 || heading.length > RECOVER_TEXT_LIMIT)
        return error_set(err, MUSTER_E_PROTOCOL, "rank %d has a text of %lld bytes about its state", root,
                         (long long)heading.length);
    scope_free char *bytes = mem_calloc((size_t)heading.length + 1, 1);
    if (!bytes)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the text of a state");
    if (trainer->rank == root && heading.length)
        memcpy(bytes, text->data, (size_t)heading.length);
    if (heading.length && share_bytes(trainer, COMM_BROADCAST, root, bytes, heading.length, err) < 0)
        return -1;
    trainer_set_counts(trainer, &heading.counts);
    theirs->length = 0;
    return buffer_append(theirs, bytes, (size_t)heading.length) < 0
               ? error_set(err, MUSTER_E_NOMEM, "no memory for the text of a state")
               : 0;
}
