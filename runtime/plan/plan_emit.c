/* plan_emit.c - appending entries and operations; waits follow from the buffers that an operation touches.
 *
 * The order of the array is the execution order with a single stream. An operation waits for the last
 * conflicting access of the other streams, unless streams and earlier waits order the two already.
 *  */
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "runtime/plan/plan_internal.h"

static const struct plan_clock never = {{-1, -1, -1, -1, -1, -1, -1, -1, -1, -1}};
_Static_assert(STREAM_COUNT == 10, "a number for each stream above");

static void clock_merge(struct plan_clock *clock, const struct plan_clock *other)
{
    for (int s = 0; s < STREAM_COUNT; s++)
        if (other->reached[s] > clock->reached[s])
            clock->reached[s] = other->reached[s];
}

/* Makes room for one more element in two arrays that grow together. */
static bool grow(void **first, size_t first_size, void **second, size_t second_size, int count, int *capacity)
{
    if (count < *capacity)
        return true;
    int larger = *capacity ? *capacity * 2 : 64;
    void *a = mem_realloc(*first, (size_t)larger, first_size);
    if (a)
        *first = a;
    void *b = mem_realloc(*second, (size_t)larger, second_size);
    if (b)
        *second = b;
    *capacity = larger;
    return a && b;
}

static void fail_without_memory(struct plan_builder *b)
{
    b->failed =
        error_set(b->err, MUSTER_E_NOMEM, "no memory for a plan of more than %d buffers and %d operations",
                  b->plan->entry_count, b->plan->op_count);
}

static bool room_for_entry(struct plan_builder *b)
{
    struct plan *plan = b->plan;
    if (!b->failed && !grow((void **)&plan->entries, sizeof *plan->entries, (void **)&b->entry_states,
                            sizeof *b->entry_states, plan->entry_count, &b->entry_capacity))
        fail_without_memory(b);
    return !b->failed;
}

static bool room_for_op(struct plan_builder *b)
{
    struct plan *plan = b->plan;
    if (!b->failed && !grow((void **)&plan->ops, sizeof *plan->ops, (void **)&b->clocks, sizeof *b->clocks,
                            plan->op_count, &b->op_capacity))
        fail_without_memory(b);
    return !b->failed;
}

/* Makes room for entry 0, which exists even if a later phase fails. */
void plan_reserve(struct plan_builder *b)
{
    (void)room_for_entry(b);
}

int plan_add_entry(struct plan_builder *b, const struct plan_entry *entry)
{
    struct plan *plan = b->plan;
    if (!room_for_entry(b))
        return 0;
    struct plan_entry *added = &plan->entries[plan->entry_count];
    *added = *entry;
    added->bytes = plan_round_up(entry->bytes, 256);
    b->entry_states[plan->entry_count] =
        (struct plan_entry_state){.read = never, .write = never, .released = -1, .holder = -1};
    return plan->entry_count++;
}

/* Saved and work memory have statistics too; most of it is values. */
static bool holds_values(enum plan_kind kind)
{
    return kind == PLAN_OUT || kind == PLAN_DOUT || kind == PLAN_EDGE || kind == PLAN_WIDE ||
           kind == PLAN_SAVED || kind == PLAN_WORK;
}

int plan_add_buffer(struct plan_builder *b, enum plan_kind kind, enum memory_class memory, int64_t bytes)
{
    struct plan_entry entry = {
        .kind = kind,
        .memory = memory,
        .dtype = holds_values(kind) ? b->options->value_dtype : b->options->dtype,
        .group = -1,
        .layer = -1,
        .micro = -1,
        .slot = -1,
        .bytes = bytes,
        .first_op = -1,
        .last_op = -1,
    };
    return plan_add_entry(b, &entry);
}

int plan_add_transient(struct plan_builder *b, enum plan_kind kind, int layer, int micro, int64_t bytes)
{
    if (bytes == 0)
        return -1;
    int entry = plan_add_buffer(b, kind, MEMORY_DEVICE, bytes);
    b->plan->entries[entry].layer = layer;
    b->plan->entries[entry].micro = micro;
    b->entry_states[entry].transient = true;
    return entry;
}

struct schedule_op plan_op(enum op_kind kind, enum stream_id stream)
{
    struct schedule_op op = {
        .kind = kind,
        .stream = stream,
        .layer = -1,
        .micro = -1,
        .group = -1,
        .out = -1,
        .dout = -1,
        .saved = -1,
        .work = -1,
        .batch = -1,
        .from = -1,
        .to = -1,
        .feedback = -1,
        .dense = -1,
        .factor = -1,
        .right = -1,
        .forward_micro = -1,
    };
    for (int i = 0; i < LAYER_GROUPS; i++)
        op.used_group[i] = op.weight[i] = op.grad[i] = -1;
    for (int i = 0; i < LAYER_SOURCES; i++)
        op.in[i] = op.din[i] = -1;
    return op;
}

/* Finds the last op of every stream that must be finished; -1: none. */
static void find_needs(const struct plan_builder *b, int after, const struct plan_access *accesses, int count,
                       struct plan_clock *need)
{
    *need = never;
    if (after >= 0)
        need->reached[b->plan->ops[after].stream] = after;
    for (int i = 0; i < count; i++) {
        const struct plan_entry_state *state = &b->entry_states[accesses[i].entry];
        clock_merge(need, &state->write);
        if (accesses[i].write)
            clock_merge(need, &state->read);
    }
}

/* Turns needs into as few waits as possible. */
static void add_waits(struct plan_builder *b, struct schedule_op *op, const struct plan_clock *need,
                      struct plan_clock *clock)
{
    *clock = b->stream_clock[op->stream];
    for (int s = 0; s < STREAM_COUNT; s++) {
        int wanted = need->reached[s];
        bool covered = wanted <= clock->reached[s];
        for (int other = 0; !covered && other < STREAM_COUNT; other++)
            if (other != s && need->reached[other] >= 0)
                covered = b->clocks[need->reached[other]].reached[s] >= wanted;
        if (covered)
            continue;
        op->wait[op->wait_count++] = wanted;
        b->plan->ops[wanted].signal = true;
    }
    for (int i = 0; i < op->wait_count; i++)
        clock_merge(clock, &b->clocks[op->wait[i]]);
}

int plan_emit(struct plan_builder *b, const struct schedule_op *op, int after)
{
    struct plan *plan = b->plan;
    if (!room_for_op(b))
        return 0;
    int index = plan->op_count;
    struct schedule_op *added = &plan->ops[index];
    *added = *op;
    added->when = b->when;
    struct plan_access accesses[PLAN_ACCESSES];
    int count = plan_op_accesses(plan, added, accesses);
    struct plan_clock need, clock;
    find_needs(b, after, accesses, count, &need);
    add_waits(b, added, &need, &clock);
    clock.reached[added->stream] = index;
    b->clocks[index] = b->stream_clock[added->stream] = clock;
    for (int i = 0; i < count; i++) {
        struct plan_entry_state *state = &b->entry_states[accesses[i].entry];
        (accesses[i].write ? &state->write : &state->read)->reached[added->stream] = index;
    }
    plan->op_count++;
    return index;
}

void plan_emit_comm(struct plan_builder *b, const struct schedule_op *like, enum comm_kind kind,
                    enum dtype dtype, int64_t count)
{
    struct schedule_op op = *like;
    op.comm.kind = kind;
    op.comm.dtype = dtype;
    op.comm.reduction = REDUCE_SUM;
    op.comm.count = count;
    op.bytes = count * dtype_size(dtype);
    plan_emit(b, &op, -1);
}
