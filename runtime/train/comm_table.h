/* comm_table.h - makes the comms that a plan's schedule needs, after all ranks agreed that they have the same
 * schedule. */
#ifndef MUSTER_RUNTIME_TRAIN_COMM_TABLE_H
#define MUSTER_RUNTIME_TRAIN_COMM_TABLE_H

#include "runtime/executor/executor.h"

struct comm_table_options {
    const struct comm_ops *ops;
    const struct comm_delay_options *delay; /* not NULL: comm_delay with these figures, and no peers */
    struct comm_options comm; /* options of the comm over all ranks; its key is the prefix of all keys */
    const struct plan *plan;
    struct device_stream *stream; /* for the comparison of the plans */
};

/* Collective. A world of one without delay has no comms. */
int comm_table_create(struct comm_table *table, const struct comm_table_options *options,
                      struct muster_error *err);
void comm_table_destroy(struct comm_table *table); /* accepts a zeroed one */
/* Makes every waiting and later operation fail at once. */
void comm_table_abort(struct comm_table *table);
/* Nanoseconds spent inside operations so far, sum of all comms. */
int64_t comm_table_busy_ns(const struct comm_table *table);

#endif
