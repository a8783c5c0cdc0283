/* comm_call.c - state common to every comm object: its options and the ring of calls that were issued and
 * have not finished, so that issuing allocates nothing. */
#include <stdio.h>

#include "proto/base/error.h"
#include "runtime/comm/comm_internal.h"

void comm_init(struct comm *comm, const struct comm_options *options, comm_run *run)
{
    comm->rank = options->rank;
    comm->size = options->size;
    (void)snprintf(comm->name, sizeof comm->name, "%s", options->key ? options->key : "alone");
    comm->timeout_ns = options->timeout_ns;
    comm->device = options->device;
    comm->device_ops = options->device_ops;
    comm->run = run;
}

struct comm_options comm_part_options(const struct comm *comm, int rank, int size, const char *key)
{
    return (struct comm_options){.rank = rank,
                                 .size = size,
                                 .key = key,
                                 .timeout_ns = comm->timeout_ns,
                                 .device = comm->device,
                                 .device_ops = comm->device_ops};
}

/* kind, dtype and count in one word, so that another thread reads what belongs together. */
static uint64_t seen_pack(const struct comm_op *op)
{
    return (uint64_t)op->kind << 56 | (uint64_t)op->dtype << 48 | ((uint64_t)op->count & (UINT64_MAX >> 16));
}

static struct comm_seen seen_unpack(uint64_t word)
{
    return (struct comm_seen){.kind = (enum comm_kind)(word >> 56),
                              .dtype = (enum dtype)(word >> 48 & 0xff),
                              .count = (int64_t)(word & (UINT64_MAX >> 16))};
}

void comm_note_issued(struct comm *comm, const struct comm_op *op)
{
    atomic_store(&comm->last_issued, seen_pack(op));
    atomic_fetch_add(&comm->issued, 1);
}

void comm_note_finished(struct comm *comm, const struct comm_op *op)
{
    atomic_store(&comm->last_finished, seen_pack(op));
    atomic_fetch_add(&comm->finished, 1);
}

static int finish_call(const struct comm_call *call, struct muster_error *err)
{
    struct comm *comm = call->comm;
    struct instant start = clock_now(NULL);
    int failed = comm->run(comm, call, err);
    atomic_fetch_add(&comm->busy_ns, instant_diff_ns(clock_now(NULL), start));
    if (failed) {
        (comm->device_ops->fail)(comm->device, err);
    } else {
        comm_note_finished(comm, &call->op);
    }
    return failed;
}

static void run_call(void *argument)
{
    struct comm_call *call = argument;
    struct comm *comm = call->comm;
    struct muster_error err = {0};
    (void)finish_call(call, &err); /* the device has its error */
    atomic_fetch_add(&comm->moved.value, 1);
    futex_wake(&comm->moved, FUTEX_PRIVATE);
}

int comm_call_issue(struct comm *comm, const struct comm_op *op, const void *send, void *recv,
                    struct device_stream *stream, struct muster_error *err)
{
    if (comm_check(op, comm->rank, comm->size, send, recv, err) ||
        comm->device_ops->poll_error(comm->device, err))
        return -1;
    uint64_t sequence = atomic_load(&comm->issued);
    for (;;) {
        uint32_t seen = atomic_load(&comm->moved.value);
        if (sequence - atomic_load(&comm->finished) < COMM_CALLS)
            break;
        /* After a failure the stream drains without running our work, so check the device now and then. */
        (void)futex_wait(&comm->moved, seen, instant_add(clock_now(NULL), COMM_SLICE_NS), FUTEX_PRIVATE);
        if (comm->device_ops->poll_error(comm->device, err))
            return -1;
    }
    struct comm_call *call = &comm->calls[sequence % COMM_CALLS];
    *call = (struct comm_call){.comm = comm, .op = *op, .send = send, .recv = recv, .stream = stream};
    atomic_store(&comm->last_issued, seen_pack(op));
    atomic_store(&comm->issued, sequence + 1);
    if (!comm->device_ops->launch(stream, run_call, call))
        return 0;
    atomic_store(&comm->issued, sequence);
    if (comm->device_ops->poll_error(comm->device, err))
        return -1;
    return error_set(err, MUSTER_E_STATE, "the stream refused an operation without giving a reason");
}

int comm_call_run(struct comm *comm, const struct comm_op *op, const void *send, void *recv,
                  struct muster_error *err)
{
    if (comm_check(op, comm->rank, comm->size, send, recv, err) ||
        comm->device_ops->poll_error(comm->device, err))
        return -1;
    uint64_t issued = atomic_load(&comm->issued), finished = atomic_load(&comm->finished);
    if (issued != finished)
        return error_set(err, MUSTER_E_STATE,
                         "%llu operations of comm %s are still under way: sync their stream first",
                         (unsigned long long)(issued - finished), comm->name);
    const struct comm_call call = {.comm = comm, .op = *op, .send = send, .recv = recv};
    struct muster_error error = {0};
    atomic_store(&comm->last_issued, seen_pack(op));
    atomic_store(&comm->issued, issued + 1);
    if (!finish_call(&call, &error))
        return 0;
    if (err)
        *err = error;
    return -1;
}

int64_t comm_busy_ns(struct comm *comm)
{
    return atomic_load(&comm->busy_ns);
}

void comm_status_begin(struct comm *comm, struct comm_status *status)
{
    *status = (struct comm_status){.issued = atomic_load(&comm->issued),
                                   .finished = atomic_load(&comm->finished),
                                   .last_issued = seen_unpack(atomic_load(&comm->last_issued)),
                                   .last_finished = seen_unpack(atomic_load(&comm->last_finished))};
}

void comm_status_add(struct comm_status *status, int missing)
{
    if (status->missing_count < (int)(sizeof status->missing / sizeof *status->missing))
        status->missing[status->missing_count++] = missing;
}
