/* comm_table.c - see comm_table.h. */
#include "runtime/train/comm_table.h"

#include <stdio.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/comm/comm_text.h"

/* The part of a rank's plan that the ranks exchange. */
struct plan_card {
    uint64_t hash, asked; /* plan.hash, plan.asked */
    uint64_t used;        /* bits of the pairs (axis, stream) that its operations use */
};
_Static_assert(AXIS_COUNT *STREAM_COUNT <= 64, "bits of plan_card.used");

static uint64_t pair_bit(int axis, int stream)
{
    return UINT64_C(1) << (axis * STREAM_COUNT + stream);
}

static struct plan_card card_of(const struct plan *plan)
{
    struct plan_card card = {.hash = plan->hash, .asked = plan->asked};
    for (int i = 0; i < plan->op_count; i++)
        if (plan->ops[i].kind == OP_COMM && plan->ops[i].axis != AXIS_TIED)
            card.used |= pair_bit((int)plan->ops[i].axis, (int)plan->ops[i].stream);
    return card;
}

static int refuse_differing(const struct comm_ranks *ranks, int first, struct muster_error *err)
{
    return error_set(
        err, MUSTER_E_REFUSED,
        "the schedule of rank %s differs from rank %d's; give every rank the same model, strategy "
        "and batch configuration and the same build",
        comm_ranks_text(ranks), first);
}

/* Checks that all ranks have the same options, and the ranks of a stage the same schedule. */
static int compare_cards(const struct plan_card *cards, struct mesh mesh, struct muster_error *err)
{
    const int count = mesh_size(mesh), of_stage = count / mesh.side[SIDE_PIPELINE];
    struct comm_ranks ranks = {0};
    for (int rank = 1; rank < count; rank++)
        if (cards[rank].asked != cards[0].asked)
            comm_ranks_add(&ranks, rank);
    if (ranks.count)
        return refuse_differing(&ranks, 0, err);
    for (int first = 0; first < count; first += of_stage) {
        for (int rank = first + 1; rank < first + of_stage; rank++)
            if (cards[rank].hash != cards[first].hash)
                comm_ranks_add(&ranks, rank);
        if (ranks.count)
            return refuse_differing(&ranks, first, err);
    }
    return 0;
}

/* used: pairs that any rank uses. */
static int compare_plans(struct comm_table *table, const struct comm_table_options *options, uint64_t *used,
                         struct muster_error *err)
{
    const struct mesh mesh = options->plan->options.mesh;
    const int count = options->comm.size;
    const struct plan_card mine = card_of(options->plan);
    scope_free struct plan_card *all = mem_calloc((size_t)count, sizeof *all);
    if (!all)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the plan hashes of %d ranks", count);
    const struct comm_op op = {.kind = COMM_ALL_GATHER, .dtype = DTYPE_U8, .count = sizeof mine};
    if (table->ops->issue(table->control, &op, &mine, all, options->stream, err) ||
        options->comm.device_ops->sync(options->stream, INSTANT_NEVER, err))
        return error_wrap(err, "comparing the plans of all ranks");
    for (int rank = 0; rank < count; rank++)
        *used |= all[rank].used;
    return compare_cards(all, mesh, err);
}

/* Collective: makes one comm for the ranks of a line. */
static struct comm *make_comm(struct comm_table *table, const struct comm_table_options *options,
                              struct mesh_line line, const char *name, struct muster_error *err)
{
    if (!options->delay)
        return table->ops->split(table->control, line.color, line.place, name, err);
    struct comm_options comm = options->comm; /* mirrors of this rank need no split */
    comm.rank = line.place;
    comm.size = line.size;
    comm.key = name;
    return comm_delay_create(&comm, options->delay, err);
}

/* Every rank takes part in a split. Stages that do not hold a tied parameter get a comm of their own, which
 * is not kept. */
static int make_tied(struct comm_table *table, const struct comm_table_options *options, int tie,
                     struct muster_error *err)
{
    const struct plan_options *plan = &options->plan->options;
    char name[64];
    struct mesh_line line = plan_tie_line(plan->mesh, options->plan->ties[tie], plan->rank);
    const bool member = line.size > 0;
    if (!member)
        line = (struct mesh_line){plan->world_size + plan->rank, 0, 1};
    (void)snprintf(name, sizeof name, "%s-%d", axis_name(AXIS_TIED), tie);
    struct comm *comm = make_comm(table, options, line, name, err);
    if (!comm)
        return error_wrap(err, "comm number %d for tied parameters", tie);
    if (member)
        table->tied[tie] = comm;
    else
        table->ops->destroy(comm);
    return 0;
}

/* The comm that another stream of this axis has already, where comms are serial: the comm over all ranks too.
 */
static struct comm *shared_comm(const struct comm_table *table, enum mesh_axis axis, struct mesh mesh)
{
    bool all = true; /* every rank decides alike */
    for (int rank = 0; rank < mesh_size(mesh) && all; rank++) {
        const struct mesh_line line = mesh_line(mesh, axis, rank);
        all = line.size == mesh_size(mesh) && line.place == rank;
    }
    if (!table->ops->serial)
        return NULL;
    if (all)
        return table->control;
    for (int stream = 0; stream < STREAM_COUNT; stream++)
        if (table->comm[axis][stream])
            return table->comm[axis][stream];
    return NULL;
}

/* Makes the comms in the same order on every rank, also for a pair that only another stage's schedule uses.
 */
static int make_all(struct comm_table *table, const struct comm_table_options *options, uint64_t used,
                    struct muster_error *err)
{
    const struct plan_options *plan = &options->plan->options;
    for (int pair = 0; pair < AXIS_COUNT * STREAM_COUNT; pair++) {
        const enum mesh_axis axis = (enum mesh_axis)(pair / STREAM_COUNT);
        const enum stream_id stream = (enum stream_id)(pair % STREAM_COUNT);
        char name[64];
        if (!(used & pair_bit((int)axis, (int)stream)))
            continue;
        struct comm *comm = shared_comm(table, axis, plan->mesh);
        if (comm) {
            table->comm[axis][stream] = comm;
            continue;
        }
        (void)snprintf(name, sizeof name, "%s-%s", axis_name(axis), stream_name(stream));
        comm = make_comm(table, options, mesh_line(plan->mesh, axis, plan->rank), name, err);
        if (!comm)
            return error_wrap(err, "comm for axis %s on stream %s", axis_name(axis), stream_name(stream));
        table->comm[axis][stream] = comm;
    }
    for (int tie = 0; tie < options->plan->tie_count; tie++)
        if (make_tied(table, options, tie, err))
            return -1;
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
    uint64_t used = 0;
    if (!table->control || compare_plans(table, options, &used, err) || make_all(table, options, used, err)) {
        comm_table_destroy(table);
        return -1;
    }
    return 0;
}

/* Slots: the comm over all ranks, then the other comms of the table; NULL: not made, or in an earlier slot.
 */
enum { COMM_PAIRS = AXIS_COUNT * STREAM_COUNT, COMM_SLOTS = 1 + COMM_PAIRS + PLAN_TIES };
static struct comm *comm_at(const struct comm_table *table, int slot)
{
    const int pair = slot - 1;
    struct comm *const *all = &table->comm[0][0];
    if (slot == 0)
        return table->control;
    for (int before = -1; before < pair && pair < COMM_PAIRS; before++)
        if (all[pair] == (before < 0 ? table->control : all[before]))
            return NULL;
    return pair < COMM_PAIRS ? table->comm[pair / STREAM_COUNT][pair % STREAM_COUNT]
                             : table->tied[pair - COMM_PAIRS];
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
