/* comm_text.h - texts of operations and of errors between ranks, the same for every kind of comm. */
#ifndef MUSTER_RUNTIME_COMM_COMM_TEXT_H
#define MUSTER_RUNTIME_COMM_COMM_TEXT_H

#include "runtime/comm/comm.h"

struct comm_call;

/* "all_gather of 100 f32", "broadcast of 3 i32 from rank 2"; returns out. */
enum { COMM_TEXT = 128 };
const char *comm_op_text(char out[COMM_TEXT], const struct comm_op *op);
/* "all_gather #7 (all_gather of 100 f32) of comm x"; returns out. */
enum { COMM_CALL_TEXT = 288 };
const char *comm_call_text(char out[COMM_CALL_TEXT], const struct comm_call *call, uint64_t sequence);

/* Ranks to name in an error; zeroed: none. */
struct comm_ranks {
    int count;
    char text[128];
};
void comm_ranks_add(struct comm_ranks *ranks, int rank);
/* "0, 3", after eight of them "..."; "?" for none. */
const char *comm_ranks_text(const struct comm_ranks *ranks);

/* The operation issued by one rank. */
struct comm_issued {
    int rank;
    uint64_t sequence;
    const struct comm_op *op;
};

/* All fill err and return -1: mismatched operations; ranks that did not arrive in time; an abort here. */
int comm_differ(const char *comm, struct comm_issued a, struct comm_issued b, struct muster_error *err);
int comm_late(const struct comm_call *call, uint64_t sequence, const struct comm_ranks *missing,
              struct muster_error *err);
int comm_aborted(const struct comm_call *call, uint64_t sequence, struct muster_error *err);

#endif
