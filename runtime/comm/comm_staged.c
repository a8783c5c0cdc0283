/* comm_staged.c - see comm_staged.h. */
#include "runtime/comm/comm_staged.h"

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/comm/comm_internal.h"

enum { STAGE_BYTES = 2 << 20 }; /* for data to send, and as many for received data */

/* The host's side, which a comm shares with its splits. */
struct staged_host {
    const struct comm_ops *ops;
    const struct device_ops *device_ops;
    struct device *device;
    int users;
};

struct staged_comm {
    struct comm comm;
    struct staged_host *host;
    struct comm *inner;
    struct device_arena stage; /* pinned: data to send, then received data */
};

static struct staged_comm *staged_of(struct comm *comm)
{
    return (struct staged_comm *)comm; /* comm is its first member */
}

/* ---- one operation ---- */

/* Blocks of `count` elements, one for each rank or one alone, that are brought to the host and back. */
struct staged_blocks {
    int send, recv;
    bool brings_recv, takes_recv;
};

static struct staged_blocks blocks_of(const struct comm_op *op, int rank, int size)
{
    const bool to_all = op->kind == COMM_ALL_GATHER || op->kind == COMM_ALL_TO_ALL;
    const bool root = op->root == rank;
    switch (op->kind) {
    case COMM_BROADCAST:
        return (struct staged_blocks){.recv = 1, .brings_recv = root, .takes_recv = !root};
    case COMM_SEND:
        return (struct staged_blocks){.send = 1};
    case COMM_RECV:
        return (struct staged_blocks){.recv = 1, .takes_recv = true};
    case COMM_BARRIER:
        return (struct staged_blocks){0};
    default:
        return (struct staged_blocks){.send = comm_sends_blocks(op->kind) ? size : 1,
                                      .recv = to_all ? size : 1,
                                      .brings_recv = op->accumulate,
                                      .takes_recv = true};
    }
}

/* Elements first..first+n-1 of each block, between the device and the stage. */
static int move_blocks(const struct staged_comm *c, const struct comm_call *call, int blocks, char *stage,
                       char *memory, int64_t first, int64_t n, bool out)
{
    const int64_t size = dtype_size(call->op.dtype);
    for (int b = 0; b < blocks; b++) {
        char *there = memory + (b * call->op.count + first) * size, *here = stage + b * n * size;
        if (n && c->comm.device_ops->copy(call->stream, out ? there : here, out ? here : there, n * size))
            return -1;
    }
    return 0;
}

/* The deadline is that of the collectives: earlier work of the stream may wait for peers, too. */
static int wait_for_stream(const struct staged_comm *c, const struct comm_call *call,
                           struct muster_error *err)
{
    return c->comm.device_ops->sync(call->stream, instant_add(clock_now(NULL), c->comm.timeout_ns), err);
}

static int run_piece(const struct staged_comm *c, const struct comm_call *call, int64_t first, int64_t n,
                     struct muster_error *err)
{
    const struct staged_blocks blocks = blocks_of(&call->op, c->comm.rank, c->comm.size);
    struct comm_op op = call->op;
    char *send = c->stage.base, *recv = send + STAGE_BYTES;
    op.count = n;
    if (move_blocks(c, call, blocks.send, send, (char *)(uintptr_t)call->send, first, n, false) ||
        move_blocks(c, call, blocks.brings_recv ? blocks.recv : 0, recv, call->recv, first, n, false))
        return c->comm.device_ops->poll_error(c->comm.device, err);
    if (wait_for_stream(c, call, err) || c->host->ops->run(c->inner, &op, send, recv, err))
        return -1;
    if (move_blocks(c, call, blocks.takes_recv ? blocks.recv : 0, recv, call->recv, first, n, true))
        return c->comm.device_ops->poll_error(c->comm.device, err);
    return 0;
}

/* Between two pieces the stage is read by the stream: the next piece waits for it before the host writes. */
static int run_staged(struct comm *comm, const struct comm_call *call, struct muster_error *err)
{
    const struct staged_comm *c = staged_of(comm);
    const struct staged_blocks blocks = blocks_of(&call->op, comm->rank, comm->size);
    const int most = blocks.send > blocks.recv ? blocks.send : blocks.recv;
    if (!call->stream)
        return error_set(err, MUSTER_E_UNSUPPORTED,
                         "comm %s cannot run an operation without a stream of device %s: issue it",
                         comm->name, comm->device_ops->name);
    if (!most)
        return wait_for_stream(c, call, err) ? -1 : c->host->ops->run(c->inner, &call->op, NULL, NULL, err);
    const int64_t chunk = STAGE_BYTES / dtype_size(call->op.dtype) / most;
    int64_t first = 0;
    do { /* without elements, too: the others are to see it */
        const int64_t left = call->op.count - first;
        if (run_piece(c, call, first, left < chunk ? left : chunk, err))
            return -1;
        first += chunk;
    } while (first < call->op.count);
    return 0;
}

/* ---- a group ---- */

/* A place in an order of all transfers between the ranks. */
static int64_t staged_place(const struct comm *comm, const struct comm_op *op)
{
    const int from = op->kind == COMM_SEND ? comm->rank : op->root,
              to = op->kind == COMM_SEND ? op->root : comm->rank;
    const int64_t low = from < to ? from : to, high = from < to ? to : from;
    return (low * comm->size + high) * 2 + (from > to);
}

/* One by one: all ranks keep one order, so that none waits for ever. */
static int staged_exchange(struct comm *comm, const struct comm_transfer *transfers, int count,
                           struct device_stream *stream, struct muster_error *err)
{
    int order[COMM_TRANSFERS];
    if (count < 1 || count > COMM_TRANSFERS)
        return error_set(err, MUSTER_E_LIMIT, "a group of %d transfers; use 1 to %d", count, COMM_TRANSFERS);
    for (int i = 0; i < count; i++) {
        int at = i;
        for (; at > 0 &&
               staged_place(comm, &transfers[order[at - 1]].op) > staged_place(comm, &transfers[i].op);
             at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    for (int i = 0; i < count; i++) {
        const struct comm_transfer *t = &transfers[order[i]];
        if (comm_call_issue(comm, &t->op, t->send, t->recv, stream, err))
            return -1;
    }
    return 0;
}

/* ---- the object ---- */

static void drop_host(struct staged_host *host)
{
    if (!host || --host->users > 0)
        return;
    host->device_ops->close(host->device);
    mem_free(host);
}

static void staged_destroy(struct comm *comm)
{
    if (!comm)
        return;
    struct staged_comm *c = staged_of(comm);
    if (c->inner)
        c->host->ops->destroy(c->inner);
    if (c->stage.base)
        comm->device_ops->arena_destroy(comm->device, &c->stage);
    drop_host(c->host);
    mem_free(c);
}
GUARD_DEFINE(staged, struct comm *, staged_destroy);

static struct staged_host *make_host(const struct comm_ops *inner, struct muster_error *err)
{
    struct staged_host *host = mem_calloc(1, sizeof *host);
    if (!host) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a comm");
        return NULL;
    }
    *host = (struct staged_host){.ops = inner, .device_ops = device_cpu()};
    host->device = host->device_ops->open(0, 1, err);
    if (host->device)
        return host;
    mem_free(host);
    return NULL;
}

/* One without a comm beneath. */
static struct comm *make_staged(const struct comm_options *options, struct staged_host *host,
                                struct muster_error *err)
{
    struct staged_comm *c = mem_calloc(1, sizeof *c);
    if (!c) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a comm");
        return NULL;
    }
    comm_init(&c->comm, options, run_staged);
    c->host = host;
    host->users++;
    GUARD(guard_staged) struct comm *comm = &c->comm;
    if (comm->device_ops->arena_create(comm->device, MEMORY_PINNED, (int64_t)2 * STAGE_BYTES, &c->stage, err))
        return NULL;
    return take_pointer(&comm);
}

static struct comm *staged_create(const struct comm_ops *inner, const struct comm_options *options,
                                  struct muster_error *err)
{
    if (!options->device || !options->device_ops) {
        (void)error_set(err, MUSTER_E_INVALID, "a comm without a device");
        return NULL;
    }
    struct staged_host *host = make_host(inner, err);
    if (!host)
        return NULL;
    host->users++; /* until the comm has it */
    GUARD(guard_staged) struct comm *comm = make_staged(options, host, err);
    drop_host(host);
    if (!comm)
        return NULL;
    struct comm_options beneath = *options;
    beneath.device = host->device;
    beneath.device_ops = host->device_ops;
    beneath.arenas = NULL;
    beneath.arena_count = 0;
    staged_of(comm)->inner = inner->create(&beneath, err);
    return staged_of(comm)->inner ? take_pointer(&comm) : NULL;
}

static struct comm *staged_split(struct comm *comm, int color, int key, const char *name,
                                 struct muster_error *err)
{
    struct staged_comm *c = staged_of(comm);
    struct comm *inner = c->host->ops->split(c->inner, color, key, name, err);
    if (!inner)
        return NULL;
    const struct comm_options options = comm_part_options(comm, inner->rank, inner->size, name);
    struct comm *part = make_staged(&options, c->host, err);
    if (part)
        staged_of(part)->inner = inner;
    else
        c->host->ops->destroy(inner);
    return part;
}

static void staged_status(struct comm *comm, struct comm_status *status)
{
    struct comm_status beneath;
    comm_status_begin(comm, status);
    staged_of(comm)->host->ops->status(staged_of(comm)->inner, &beneath);
    for (int i = 0; i < beneath.missing_count; i++)
        comm_status_add(status, beneath.missing[i]);
}

static void staged_abort(struct comm *comm)
{
    staged_of(comm)->host->ops->abort(staged_of(comm)->inner);
}

static struct comm *create_shm(const struct comm_options *options, struct muster_error *err)
{
    return staged_create(comm_shm(), options, err);
}

static struct comm *create_node(const struct comm_options *options, struct muster_error *err)
{
    return staged_create(comm_node(), options, err);
}

static struct comm *create_tcp(const struct comm_options *options, struct muster_error *err)
{
    return staged_create(comm_tcp(), options, err);
}

#define STAGED_OPS(text, make)                                                                               \
    {                                                                                                        \
        .abi = COMM_ABI, .size = sizeof(struct comm_ops), .name = (text), .create = (make),                  \
        .destroy = staged_destroy, .split = staged_split, .issue = comm_call_issue,                          \
        .exchange = staged_exchange, .run = comm_call_run, .status = staged_status, .busy_ns = comm_busy_ns, \
        .abort = staged_abort                                                                                \
    }

const struct comm_ops *comm_staged(const struct comm_ops *inner)
{
    static const struct comm_ops shm = STAGED_OPS("host", create_shm), tcp = STAGED_OPS("tcp", create_tcp),
                                 node = STAGED_OPS("node", create_node);
    return inner == comm_tcp() ? &tcp : inner == comm_node() ? &node : &shm;
}
