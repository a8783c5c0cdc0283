/* comm_table.c - see comm_table.h. */
#include "runtime/train/comm_table.h"

#include <stdio.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/comm/comm_text.h"

/* The ranks whose hashes differ from rank 0's, as text. */
static int name_differing(const uint64_t *hashes, int count, struct muster_error *err)
{
    struct comm_ranks ranks = {0};
    for (int rank = 1; rank < count; rank++) {
        if (hashes[rank] != hashes[0])
            comm_ranks_add(&ranks, rank);
    }
    if (!ranks.count)
        return 0;
    return error_set(
        err, MUSTER_E_REFUSED,
        "the schedule of rank %s differs from rank 0's; give every rank the same model, strategy "
        "and batch configuration and the same build",
        comm_ranks_text(&ranks));
}

static int compare_plans(struct comm_table *table, const struct comm_table_options *options,
                         struct muster_error *err)
{
    int count = options->comm.size;
    uint64_t mine = options->plan->hash;
    scope_free uint64_t *all = mem_calloc((size_t)count, sizeof *all);
    if (!all)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the plan hashes of %d ranks", count);
    const struct comm_op op = {.kind = COMM_ALL_GATHER, .dtype = DTYPE_U8, .count = sizeof mine};
    if (table->ops->issue(table->control, &op, &mine, all, options->stream, err) ||
        options->comm.device_ops->sync(options->stream, INSTANT_NEVER, err))
        return error_wrap(err, "comparing the plans of all ranks");
    return name_differing(all, count, err);
}

/* Color (which comm of the axis) and key (rank in it). */
static void axis_place(enum mesh_axis axis, const struct plan *plan, int *color, int *key)
{
    struct mesh mesh = plan->options.mesh;
    struct mesh_place at = mesh_place_of(mesh, plan->options.rank);
    *color = 0;
    *key = plan->options.rank;
    if (axis == AXIS_SHARD) {
        *color = at.stage * mesh.replicate + at.replica;
        *key = at.shard;
    } else if (axis == AXIS_REPLICATE) {
        *color = at.stage * mesh.shard + at.shard;
        *key = at.replica;
    }
}

static int axis_size(enum mesh_axis axis, struct mesh mesh)
{
    return axis == AXIS_SHARD ? mesh.shard : axis == AXIS_REPLICATE ? mesh.replicate : mesh_size(mesh);
}

static struct comm *make_comm(struct comm_table *table, const struct comm_table_options *options,
                              enum mesh_axis axis, enum stream_id stream, struct muster_error *err)
{
    char name[64];
    int color, key;
    axis_place(axis, options->plan, &color, &key);
    (void)snprintf(name, sizeof name, "%s-%s", axis_name(axis), stream_name(stream));
    if (!options->delay)
        return table->ops->split(table->control, color, key, name, err);
    struct comm_options comm = options->comm; /* mirrors of this rank need no split */
    comm.rank = key;
    comm.size = axis_size(axis, options->plan->options.mesh);
    comm.key = name;
    return comm_delay_create(&comm, options->delay, err);
}

static int make_all(struct comm_table *table, const struct comm_table_options *options,
                    struct muster_error *err)
{
    for (int i = 0; i < options->plan->op_count; i++) {
        const struct schedule_op *op = &options->plan->ops[i];
        if (op->kind != OP_COMM || table->comm[op->axis][op->stream])
            continue;
        struct comm *comm = make_comm(table, options, op->axis, op->stream, err);
        if (!comm)
            return error_wrap(err, "comm for axis %s on stream %s", axis_name(op->axis),
                              stream_name(op->stream));
        table->comm[op->axis][op->stream] = comm;
    }
    return 0;
}

int comm_table_create(struct comm_table *table, const struct comm_table_options *options,
                      struct muster_error *err)
{
    *table = (struct comm_table){.ops = options->delay ? comm_delay() : options->ops};
    if (options->comm.size == 1 && !options->delay)
        return 0;
    table->control = options->delay ? comm_delay_create(&options->comm, options->delay, err)
                                    : table->ops->create(&options->comm, err);
    if (!table->control || compare_plans(table, options, err) || make_all(table, options, err)) {
        comm_table_destroy(table);
        return -1;
    }
    return 0;
}

/* The comm over all ranks, then those of the table; NULL if there is none. */
enum { COMM_SLOTS = 1 + AXIS_COUNT * STREAM_COUNT };
static struct comm *comm_at(const struct comm_table *table, int slot)
{
    return slot == 0 ? table->control : table->comm[(slot - 1) / STREAM_COUNT][(slot - 1) % STREAM_COUNT];
}

void comm_table_destroy(struct comm_table *table)
{
    for (int slot = COMM_SLOTS - 1; slot >= 0; slot--) {
        if (comm_at(table, slot))
            table->ops->destroy(comm_at(table, slot));
    }
    *table = (struct comm_table){0};
}

void comm_table_abort(struct comm_table *table)
{
    for (int slot = 0; slot < COMM_SLOTS; slot++) {
        if (comm_at(table, slot))
            table->ops->abort(comm_at(table, slot));
    }
}

int64_t comm_table_busy_ns(const struct comm_table *table)
{
    int64_t busy = 0;
    for (int slot = 0; slot < COMM_SLOTS; slot++) {
        if (comm_at(table, slot))
            busy += table->ops->busy_ns(comm_at(table, slot));
    }
    return busy;
}
