/* cut_step.c - see cut_step.h. */
#include "tests/unit/train/recover/cut_step.h"

#include <pthread.h>

#include "proto/base/error.h"
#include "runtime/plan/plan.h"
#include "runtime/train/trainer_state.h"

static _Thread_local const struct trainer *cut;
static _Thread_local enum cut_at cut_at;

static void fail_device(void *argument)
{
    const struct trainer *trainer = argument;
    struct muster_error error = {0};
    (void)error_set(&error, MUSTER_E_PEER, "rank %d is cut off by the test", trainer->rank);
    trainer->ops->fail(trainer->device, &error);
}

static bool is_place(const struct comm_op *op)
{
    const int64_t count = cut_at == CUT_IN_NORM ? 1 : 4 + PLAN_VOTES;
    return cut && op->kind == COMM_ALL_REDUCE && op->dtype == DTYPE_F64 && op->count == count;
}

static int issue(struct comm *comm, const struct comm_op *op, const void *send, void *recv,
                 struct device_stream *stream, struct muster_error *err)
{
    if (comm_shm()->issue(comm, op, send, recv, stream, err))
        return -1;
    if (!is_place(op))
        return 0;
    struct trainer *trainer = (struct trainer *)cut;
    cut = NULL;
    return trainer->ops->launch(stream, fail_device, trainer);
}

static struct comm_ops ops;

static void make_ops(void)
{
    ops = *comm_shm();
    ops.issue = issue;
}

const struct comm_ops *cut_comm(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    return pthread_once(&once, make_ops) ? NULL : &ops;
}

void cut_next_step(const struct trainer *trainer, enum cut_at at)
{
    cut = trainer;
    cut_at = at;
}
