/* order_internal.h - a device that runs nothing. For each stream it keeps the work that is done before the
 * next piece begins, and it holds the arguments of calls against the plan. */
#ifndef MUSTER_TESTS_EXECUTOR_ORDER_INTERNAL_H
#define MUSTER_TESTS_EXECUTOR_ORDER_INTERNAL_H

#include "runtime/executor/executor_internal.h"

/* ---- sets of pieces of work: an operation in a generation, of which each run has one or two ---- */

extern int order_words; /* their length */

uint64_t *order_set_new(int count);
void order_set_add(uint64_t *set, const uint64_t *other);
void order_set_put(uint64_t *set, int piece);
bool order_set_has(const uint64_t *set, int piece);
/* A piece of `of` that `set` lacks; -1: none. */
int order_set_lacks(const uint64_t *set, const uint64_t *of);

/* ---- the device ---- */

struct device_stream {
    enum stream_id id;
    uint64_t *done; /* before the next piece */
};
struct device_event {
    uint64_t *done;
    struct device_event *next;
};

enum { ORDER_MICROS = 8 }; /* most in an evaluation */

extern struct order_state {
    const struct plan *plan;
    struct executor *executor;
    struct device_stream streams[STREAM_COUNT];
    struct device_event *events;
    uint64_t *before; /* [pieces]: the work done before a piece */
    uint64_t *came;   /* the pieces that were enqueued */
    int *last;        /* [op_count]: the operation's latest piece; -1: none */
    int generation;   /* pieces that are enqueued now have it */
    bool gathered;    /* the run before has made the next one's first gathers */
    bool first;       /* the run's first gathers are being enqueued */
    int op;           /* that is being enqueued */
    int micros;       /* this run's; 0: a step */
    const char *losses;
    int taken, emptied; /* losses */
    int guarded;        /* the group that the guard was asked for last; -1: none since the operation began */
    struct executor_mark *marks; /* [op_count + 1]; NULL: the run is not traced */
} order;

extern const char *order_what; /* the case, for failures */
extern const struct device_ops order_device;
extern const struct comm_ops order_comms;
extern const struct kernels order_kernels;

/* The operation's piece in this generation. */
int order_piece_of(int op);
/* Whether this run leaves it out. */
bool order_left_out(const struct schedule_op *op);
/* Freed with the case. */
struct device_event *order_event_create(struct device *device, struct muster_error *err);
void order_guard_wait(void *context, int group);
/* A comm of the table: an address that nobody reads. Each axis has one a stream; after them come the ties'.
 */
struct comm *order_comm_of(int number);

#endif
