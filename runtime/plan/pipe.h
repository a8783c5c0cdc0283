/* pipe.h - the order in which the ranks of a pipeline call the parts of a model, as a table. Pure.
 *
 * A model is cut into parts. Part g is on rank g % ranks of the pipeline, unless a table from text has
 * another order. A call is the forward or the backward of a part for a micro-batch. A backward may be split
 * into its gradients of inputs and its gradients of weights. Transfers follow from the calls. */
#ifndef MUSTER_RUNTIME_PLAN_PIPE_H
#define MUSTER_RUNTIME_PLAN_PIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/include/muster_error.h"

/* The order of the micro-batches on the ranks of a pipeline. symbol, name. */
#define PIPE_SCHEDULES(X)                                                                                    \
    X(PIPE_1F1B, "1f1b")   /* a stage keeps as many micro-batches as there are stages to the end */          \
    X(PIPE_GPIPE, "gpipe") /* all go forward, then back from the last micro-batch */                         \
    X(PIPE_INTERLEAVED,                                                                                      \
      "interleaved")       /* 1f1b with several parts a rank: runs of micro-batches go through each part */  \
    X(PIPE_TABLE, "table") /* plan_options.table */
enum pipe_schedule {
#define PIPE_SCHEDULE_ENUM(symbol, name) symbol,
    PIPE_SCHEDULES(PIPE_SCHEDULE_ENUM)
#undef PIPE_SCHEDULE_ENUM
        PIPE_SCHEDULE_COUNT
};
const char *pipe_schedule_name(enum pipe_schedule schedule);

enum { PIPE_PARTS = 64, PIPE_CALLS = 1 << 22 }; /* most parts and calls of a table */
enum pipe_phase {
    PIPE_FORWARD,
    PIPE_BACKWARD,
    PIPE_INPUT,  /* gradients of inputs alone */
    PIPE_WEIGHT, /* gradients of weights alone, after PIPE_INPUT */
    PIPE_PHASES
};
struct pipe_call {
    uint8_t phase, part;
    int micro;
};
struct pipe_table {
    int ranks, parts, micros;
    uint8_t rank_of[PIPE_PARTS]; /* by part */
    int first[PIPE_PARTS + 1];   /* calls of rank r: from first[r] to below first[r + 1] */
    struct pipe_call *calls;
    bool forward_only;
};

/* The table of a schedule, but for PIPE_TABLE. chunks: parts of a rank, for PIPE_INTERLEAVED; else 1. Any
 * number of micro-batches is possible. ranks * chunks is at most PIPE_PARTS. */
int pipe_table_make(enum pipe_schedule schedule, int ranks, int chunks, int micros, bool train,
                    struct pipe_table *table, struct muster_error *err);
/* Reads the text of torch.distributed.pipelining: a line a rank, calls between commas ("0F0,0F1,0B0"; I: of
 * inputs, W: of weights; an empty cell: no call). Cells of transfers are passed over. name: for messages.
 * parts: of the model; 0: as the table has. layers: of the model, which has no more parts; 0: not known. The
 * table is proved, too. */
int pipe_table_read(const char *name, const char *text, int parts, int layers, struct pipe_table *table,
                    struct muster_error *err);
void pipe_table_free(struct pipe_table *table); /* accepts a zeroed table */

bool pipe_is_loop(const struct pipe_table *table);  /* part g is on rank g % ranks */
bool pipe_is_split(const struct pipe_table *table); /* has calls of PIPE_INPUT and PIPE_WEIGHT */

/* The time that a call takes: 1, a whole backward 2. */
int pipe_ticks(enum pipe_phase phase);
/* Fills end[], by index of a call: when it ends in pipe_ticks, where a transfer takes nothing.
 * MUSTER_E_INVALID: a deadlock; the message names the calls of its circle. */
int pipe_table_times(const struct pipe_table *table, int *end, struct muster_error *err);
/* "4 ranks, 8 parts, 16 micro-batches: nothing waits for ever; idle 15.8%, ..." Returns text. */
const char *pipe_table_text(const struct pipe_table *table, char *text, size_t size);

#endif
