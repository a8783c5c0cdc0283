/* comm_delay.c - a comm without peers whose operations take a chosen time: see comm.h. */
#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "runtime/comm/comm_internal.h"
#include "runtime/comm/comm_reduce.h"

struct delay_comm {
    struct comm comm;
    struct comm_delay_options delay;
    struct instant busy_until; /* end of the operation before; used by the stream's thread only */
    struct futex_word aborted;
};

static struct delay_comm *of(struct comm *comm)
{
    return (struct delay_comm *)comm; /* comm is its first member */
}

static int delay_run(struct comm *comm, const struct comm_call *call, struct muster_error *err)
{
    struct delay_comm *d = of(comm);
    struct instant now = clock_now(NULL);
    struct instant start = d->busy_until.ns > now.ns ? d->busy_until : now;
    double cost = (double)comm_received_bytes(&call->op, comm->size) * d->delay.ns_per_byte;
    d->busy_until = instant_add(start, d->delay.latency_ns + (int64_t)cost);
    comm_mirror(&call->op, comm->rank, comm->size, call->send, call->recv);
    while (!atomic_load(&d->aborted.value)) {
        if (instant_reached(clock_now(NULL), d->busy_until))
            return 0;
        (void)futex_wait(&d->aborted, 0, d->busy_until, FUTEX_PRIVATE); /* looked at again above */
    }
    char text[COMM_TEXT];
    return error_set(err, MUSTER_E_CANCELLED, "%s: the comm was aborted", comm_op_text(text, &call->op));
}

struct comm *comm_delay_create(const struct comm_options *options, const struct comm_delay_options *delay,
                               struct muster_error *err)
{
    if (comm_check_ranks(options, "a delay comm", COMM_RANKS_MAX, err))
        return NULL;
    if (delay->latency_ns < 0 || !(delay->ns_per_byte >= 0)) {
        (void)error_set(err, MUSTER_E_INVALID,
                        "a delay comm of %lld ns and %g ns per byte: neither may be below 0",
                        (long long)delay->latency_ns, delay->ns_per_byte);
        return NULL;
    }
    struct delay_comm *d = mem_calloc(1, sizeof *d);
    if (!d) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a comm");
        return NULL;
    }
    comm_init(&d->comm, options, delay_run);
    d->delay = *delay;
    return &d->comm;
}

static struct comm *delay_create(const struct comm_options *options, struct muster_error *err)
{
    const struct comm_delay_options none = {0};
    return comm_delay_create(options, &none, err);
}

static void destroy(struct comm *comm)
{
    mem_free(comm);
}

/* The other ranks mirror this one: they have the same color, so the new comm is like the old one. */
static struct comm *split(struct comm *comm, int color, int key, const char *name, struct muster_error *err)
{
    (void)color, (void)key;
    const struct comm_options options = comm_part_options(comm, comm->rank, comm->size, name);
    return comm_delay_create(&options, &of(comm)->delay, err);
}

static void abort_waiting(struct comm *comm)
{
    atomic_store(&of(comm)->aborted.value, 1);
    futex_wake(&of(comm)->aborted, FUTEX_PRIVATE);
}

const struct comm_ops *comm_delay(void)
{
    static const struct comm_ops ops = {
        .abi = COMM_ABI,
        .size = sizeof ops,
        .name = "delay",
        .create = delay_create,
        .destroy = destroy,
        .split = split,
        .issue = comm_call_issue,
        .run = comm_call_run,
        .status = comm_status_begin,
        .busy_ns = comm_busy_ns,
        .abort = abort_waiting,
    };
    return &ops;
}
