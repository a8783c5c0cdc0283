/* world_comm.c - see world_internal.h. */
#include "runtime/world/world_internal.h"

#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/device/device_cpu.h"
#include "runtime/world/agree.h"

enum { PIECE_BYTES = 1 << 20 };
static const char key[] = "world";

struct world_comm {
    const struct device_ops *device_ops;
    const struct comm_ops *comm_ops;
    struct device *device;
    struct device_arena piece;
    struct comm *comm;
};

GUARD_DEFINE(world_comm, struct world_comm *, world_comm_destroy);

static int open_device(struct world_comm *c, const struct world_comm_options *o, struct muster_error *err)
{
    c->device_ops = device_cpu();
    c->device = c->device_ops->open(o->local_rank, 1, err);
    return !c->device || c->device_ops->arena_create(c->device, MEMORY_COMM, PIECE_BYTES, &c->piece, err);
}

struct world_comm *world_comm_create(const struct world_comm_options *o, struct muster_error *err)
{
    struct muster_error local = {0};
    struct muster_error *e = err ? err : &local; /* the others are told even if the caller ignores it */
    const struct agree_options everybody = {
        .store = o->store, .key = key, .rank = o->rank, .size = o->size, .timeout_ns = o->timeout_ns};
    GUARD(guard_world_comm) struct world_comm *c = mem_calloc(1, sizeof *c);
    int failed = c ? open_device(c, o, e) : error_set(e, MUSTER_E_NOMEM, "no memory for collectives");
    if (agree(&everybody, failed, e))
        return NULL;
    const struct comm_options options = {.rank = o->rank,
                                         .size = o->size,
                                         .store = o->store,
                                         .key = key,
                                         .timeout_ns = o->timeout_ns,
                                         .device = c->device,
                                         .device_ops = c->device_ops,
                                         .arenas = &c->piece,
                                         .arena_count = 1,
                                         .address = o->address};
    c->comm_ops = o->local_size < o->size ? comm_tcp() : comm_shm();
    c->comm = c->comm_ops->create(&options, e);
    return c->comm ? take_pointer(&c) : NULL;
}

void world_comm_destroy(struct world_comm *c)
{
    if (!c)
        return;
    if (c->comm)
        c->comm_ops->destroy(c->comm);
    if (c->device) {
        if (c->piece.base)
            c->device_ops->arena_destroy(c->device, &c->piece);
        c->device_ops->close(c->device);
    }
    mem_free(c);
}

void world_comm_abort(struct world_comm *c)
{
    c->comm_ops->abort(c->comm);
}

int world_comm_run(struct world_comm *c, const struct comm_op *op, void *data, struct muster_error *err)
{
    int64_t size = dtype_size(op->dtype), done = 0;
    do { /* also for nothing at all: that others hold something is found out */
        struct comm_op piece = *op;
        if (piece.count > PIECE_BYTES / size)
            piece.count = PIECE_BYTES / size;
        if (op->count - done < piece.count)
            piece.count = op->count - done;
        char *at = (char *)data + done * size;
        if (piece.count)
            memcpy(c->piece.base, at, (size_t)(piece.count * size));
        if (c->comm_ops->run(c->comm, &piece, c->piece.base, c->piece.base, err))
            return -1;
        if (piece.count)
            memcpy(at, c->piece.base, (size_t)(piece.count * size));
        done += piece.count;
    } while (done < op->count);
    return 0;
}
