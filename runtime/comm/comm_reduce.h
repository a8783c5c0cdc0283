/* comm_reduce.h - sums and maxima over ranks, in rank order, so that the bits do not depend on timing. */
#ifndef MUSTER_RUNTIME_COMM_COMM_REDUCE_H
#define MUSTER_RUNTIME_COMM_COMM_REDUCE_H

#include "runtime/comm/comm.h"

enum { COMM_RANKS_MAX = 1024 }; /* limit for delay comms and NCCL comms */

/* Whether op's dtype can be reduced by op's reduction: f32, f64, bf16, f16 by sum, average and max; i32 by
 * sum and max. */
int comm_reduce_check(const struct comm_op *op, struct muster_error *err);

/* out[i] (+)= r(sources[0][i], ..., sources[size-1][i]) for i < count, of op's dtype. Elements are combined
 * in the order of the sources in the dtype's own arithmetic (16-bit floats: in float, rounded once at the
 * end); an average multiplies the sum by 1/size; integers wrap. out may be a source, or the part of
 * a source with the same indices. Runs on the calling thread and allocates nothing. */
void comm_reduce(const struct comm_op *op, int size, void *out, const void *const *sources, int64_t count);

/* The same in parts, for a sum that passes from rank to rank: begin, add for each further rank in rank order,
 * end, put. The bits equal comm_reduce's. `sum` has comm_sum_dtype(op->dtype): f32 for 16-bit floats,
 * else the dtype itself. Buffers do not overlap. */
enum dtype comm_sum_dtype(enum dtype dtype);
void comm_sum_begin(const struct comm_op *op, void *sum, const void *source, int64_t count);
void comm_sum_add(const struct comm_op *op, void *sum, const void *source, int64_t count);
/* Makes an average of a sum over `size` ranks; changes nothing for other reductions. */
void comm_sum_end(const struct comm_op *op, int size, void *sum, int64_t count);
/* out (+)= sum, rounded once. */
void comm_sum_put(const struct comm_op *op, void *out, const void *sum, int64_t count);

#endif
