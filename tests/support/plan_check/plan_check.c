/* plan_check.c - proves a plan's memory and order. It takes nothing from the builder but the touched memory
 * of each operation: overlap is looked for in bytes of the arenas, order is derived from streams and waits
 * anew.
 *
 * Two steps are followed, one after the other: operation o of the second has position op_count + o. Between
 * them everything is waited for but the carried operations. Every later pair of steps is like this one. */
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "runtime/plan/plan_internal.h"
#include "tests/support/plan_check/plan_check.h"

/* A run of bytes of one arena between two neighbouring buffer bounds, and who touched it last. */
struct cell {
    struct plan_clock read, write;
};
struct checker {
    const struct plan *plan;
    struct plan_clock *clocks; /* [2 * op_count] the finished operations when an op begins, and itself */
    struct cell *cells;
    int *first_cell, *last_cell; /* cells of each entry, inclusive */
    struct muster_error *err;
};

static const struct plan_clock never = {{-1, -1, -1, -1, -1, -1, -1, -1, -1, -1}};
_Static_assert(STREAM_COUNT == 10, "a number for each stream above");

/* ---- order ---- */

static int check_waits(struct checker *c, int index)
{
    const struct schedule_op *op = &c->plan->ops[index];
    if ((unsigned)op->kind >= OP_KIND_COUNT || (unsigned)op->stream >= STREAM_COUNT || op->wait_count < 0 ||
        op->wait_count > OP_WAITS)
        return error_set(c->err, MUSTER_E_STATE, "op %d: kind %d, stream %d or %d waits are out of range",
                         index, (int)op->kind, (int)op->stream, op->wait_count);
    for (int i = 0; i < op->wait_count; i++) {
        int wait = op->wait[i];
        if (wait < 0 || wait >= c->plan->op_count || wait == index)
            return error_set(c->err, MUSTER_E_STATE, "op %d waits for op %d of %d", index, wait,
                             c->plan->op_count);
        if (wait > index && !c->plan->ops[wait].carried)
            return error_set(c->err, MUSTER_E_STATE,
                             "op %d waits for op %d, which is neither before it nor carried", index, wait);
        if (c->plan->ops[wait].stream == op->stream)
            return error_set(c->err, MUSTER_E_STATE, "op %d waits for op %d of its own stream", index, wait);
        if (!c->plan->ops[wait].signal)
            return error_set(c->err, MUSTER_E_STATE, "op %d waits for op %d, which does not signal", index,
                             wait);
    }
    return 0;
}

/* Gathers, and the last operations of their stream, so that the operations before them can be waited for. */
static int check_carried(struct checker *c)
{
    bool begun = false;
    for (int o = 0; o < c->plan->op_count; o++) {
        const struct schedule_op *op = &c->plan->ops[o];
        bool gather = op->kind == OP_COMM && op->comm.kind == COMM_ALL_GATHER &&
                      op->stream == STREAM_GATHER && op->group >= 0;
        begun |= op->carried;
        if ((op->carried && !gather) || (begun && op->stream == STREAM_GATHER && !op->carried))
            return error_set(c->err, MUSTER_E_STATE, "op %d is %s", o,
                             op->carried ? "carried and no gather" : "behind carried ones but not carried");
    }
    return 0;
}

static void clock_merge(struct plan_clock *clock, const struct plan_clock *other)
{
    for (int s = 0; s < STREAM_COUNT; s++)
        if (other->reached[s] > clock->reached[s])
            clock->reached[s] = other->reached[s];
}

/* One step; first: the position of its first op. */
static void follow_order(struct checker *c, struct plan_clock *streams, int first)
{
    const int count = c->plan->op_count;
    for (int o = 0; o < count; o++) {
        const struct schedule_op *op = &c->plan->ops[o];
        struct plan_clock *clock = &c->clocks[first + o];
        *clock = streams[op->stream];
        for (int i = 0; i < op->wait_count; i++) {
            int wait = op->wait[i] < o ? first + op->wait[i] : first - count + op->wait[i];
            if (wait >= 0) /* before the first step there is nothing to wait for */
                clock_merge(clock, &c->clocks[wait]);
        }
        clock->reached[op->stream] = first + o;
        streams[op->stream] = *clock;
    }
}

static int derive_order(struct checker *c)
{
    struct plan_clock streams[STREAM_COUNT];
    for (int s = 0; s < STREAM_COUNT; s++)
        streams[s] = never;
    for (int o = 0; o < c->plan->op_count; o++)
        if (check_waits(c, o) < 0)
            return -1;
    if (check_carried(c) < 0)
        return -1;
    follow_order(c, streams, 0);
    struct plan_clock finished = never;
    for (int o = 0; o < c->plan->op_count; o++)
        if (!c->plan->ops[o].carried)
            clock_merge(&finished, &c->clocks[o]);
    for (int s = 0; s < STREAM_COUNT; s++)
        clock_merge(&streams[s], &finished);
    follow_order(c, streams, c->plan->op_count);
    return 0;
}

/* ---- memory ---- */

static int check_entry(const struct checker *c, int index)
{
    const struct plan_entry *entry = &c->plan->entries[index];
    if ((unsigned)entry->memory >= MEMORY_CLASS_COUNT || entry->bytes <= 0 || entry->bytes % 256 ||
        entry->offset < 0 || entry->offset % 256)
        return error_set(c->err, MUSTER_E_STATE, "buffer %d: %lld bytes at %lld of class %d", index,
                         (long long)entry->bytes, (long long)entry->offset, (int)entry->memory);
    if (entry->offset + entry->bytes > c->plan->arena_bytes[entry->memory])
        return error_set(c->err, MUSTER_E_STATE, "buffer %d ends at %lld, behind its arena of %lld bytes",
                         index, (long long)(entry->offset + entry->bytes),
                         (long long)c->plan->arena_bytes[entry->memory]);
    if ((entry->first_op < 0) != (entry->last_op < 0) || entry->first_op > entry->last_op ||
        entry->last_op >= c->plan->op_count)
        return error_set(c->err, MUSTER_E_STATE, "buffer %d lives from op %d to %d of %d", index,
                         entry->first_op, entry->last_op, c->plan->op_count);
    return 0;
}

static bool alive_together(const struct plan_entry *a, const struct plan_entry *b)
{
    if (a->first_op < 0 || b->first_op < 0)
        return true;
    return a->first_op <= b->last_op && b->first_op <= a->last_op;
}

static int by_place(const void *left, const void *right)
{
    const struct plan_entry *a = *(const struct plan_entry *const *)left;
    const struct plan_entry *b = *(const struct plan_entry *const *)right;
    if (a->memory != b->memory)
        return a->memory < b->memory ? -1 : 1;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

static int check_overlap(struct checker *c, const struct plan_entry **order)
{
    int64_t reached[MEMORY_CLASS_COUNT] = {0};
    const struct plan *plan = c->plan;
    for (int e = 0; e < plan->entry_count; e++)
        order[e] = &plan->entries[e];
    qsort(order, (size_t)plan->entry_count, sizeof *order, by_place);
    for (int i = 0; i < plan->entry_count; i++) {
        const struct plan_entry *a = order[i];
        int64_t end = a->offset + a->bytes;
        reached[a->memory] = end > reached[a->memory] ? end : reached[a->memory];
        for (int j = i + 1; j < plan->entry_count; j++) {
            const struct plan_entry *b = order[j];
            if (b->memory != a->memory || b->offset >= end)
                break;
            if (alive_together(a, b))
                return error_set(c->err, MUSTER_E_STATE,
                                 "buffers %d (%s) and %d (%s) are alive together and overlap at %lld",
                                 (int)(a - plan->entries), plan_kind_name(a->kind), (int)(b - plan->entries),
                                 plan_kind_name(b->kind), (long long)b->offset);
        }
    }
    for (int m = 0; m < MEMORY_CLASS_COUNT; m++)
        if (reached[m] != plan->arena_bytes[m])
            return error_set(c->err, MUSTER_E_STATE, "arena %d has %lld bytes but buffers end at %lld", m,
                             (long long)plan->arena_bytes[m], (long long)reached[m]);
    return 0;
}

struct bound {
    int memory;
    int64_t at;
};

static int by_bound(const void *left, const void *right)
{
    const struct bound *a = left, *b = right;
    if (a->memory != b->memory)
        return a->memory < b->memory ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

static int find_bound(const struct bound *bounds, int count, int memory, int64_t at)
{
    const struct bound wanted = {memory, at};
    const struct bound *found = bsearch(&wanted, bounds, (size_t)count, sizeof *bounds, by_bound);
    return (int)(found - bounds);
}

/* Cuts all arenas at the buffers' bounds, so that overlap becomes equality of cells. */
static void cut_cells(struct checker *c, struct bound *bounds)
{
    const struct plan *plan = c->plan;
    int count = 0, kept = 0;
    for (int e = 0; e < plan->entry_count; e++) {
        const struct plan_entry *entry = &plan->entries[e];
        bounds[count++] = (struct bound){(int)entry->memory, entry->offset};
        bounds[count++] = (struct bound){(int)entry->memory, entry->offset + entry->bytes};
    }
    qsort(bounds, (size_t)count, sizeof *bounds, by_bound);
    for (int i = 0; i < count; i++)
        if (kept == 0 || by_bound(&bounds[kept - 1], &bounds[i]) != 0)
            bounds[kept++] = bounds[i];
    for (int i = 0; i < kept; i++)
        c->cells[i] = (struct cell){never, never};
    for (int e = 0; e < plan->entry_count; e++) {
        const struct plan_entry *entry = &plan->entries[e];
        c->first_cell[e] = find_bound(bounds, kept, (int)entry->memory, entry->offset);
        c->last_cell[e] = find_bound(bounds, kept, (int)entry->memory, entry->offset + entry->bytes) - 1;
    }
}

/* ---- accesses ---- */

static int check_ordered(const struct checker *c, int position, int entry, const struct plan_clock *before)
{
    const int count = c->plan->op_count, op = position % count;
    for (int s = 0; s < STREAM_COUNT; s++) {
        const int other = before->reached[s];
        if (other > c->clocks[position].reached[s])
            return error_set(c->err, MUSTER_E_STATE,
                             "op %d (%s, %s) touches buffer %d without waiting for op %d (%s, %s)%s", op,
                             stream_name(c->plan->ops[op].stream), op_kind_name(c->plan->ops[op].kind), entry,
                             other % count, stream_name((enum stream_id)s),
                             op_kind_name(c->plan->ops[other % count].kind),
                             other < count && position >= count ? " of the step before" : "");
    }
    return 0;
}

static int check_access(struct checker *c, int position, const struct plan_access *access)
{
    const struct plan *plan = c->plan;
    const int op = position % plan->op_count;
    if (access->entry >= plan->entry_count)
        return error_set(c->err, MUSTER_E_STATE, "op %d uses buffer %d of %d", op, access->entry,
                         plan->entry_count);
    const struct plan_entry *entry = &plan->entries[access->entry];
    if (entry->first_op >= 0 && (op < entry->first_op || op > entry->last_op))
        return error_set(c->err, MUSTER_E_STATE,
                         "op %d (%s) uses buffer %d (%s), which lives from op %d to %d", op,
                         op_kind_name(plan->ops[op].kind), access->entry, plan_kind_name(entry->kind),
                         entry->first_op, entry->last_op);
    enum stream_id stream = plan->ops[op].stream;
    for (int i = c->first_cell[access->entry]; i <= c->last_cell[access->entry]; i++) {
        struct cell *cell = &c->cells[i];
        if (check_ordered(c, position, access->entry, &cell->write) < 0 ||
            (access->write && check_ordered(c, position, access->entry, &cell->read) < 0))
            return -1;
        (access->write ? &cell->write : &cell->read)->reached[stream] = position;
    }
    return 0;
}

static int check_accesses(struct checker *c)
{
    for (int position = 0; position < 2 * c->plan->op_count; position++) {
        struct plan_access accesses[PLAN_ACCESSES];
        int count = plan_op_accesses(c->plan, &c->plan->ops[position % c->plan->op_count], accesses);
        for (int i = 0; i < count; i++)
            if (check_access(c, position, &accesses[i]) < 0)
                return -1;
    }
    return 0;
}

/* ---- pacing ---- */

static bool is_gather(const struct plan *plan, int o)
{
    const struct schedule_op *op = &plan->ops[o];
    return op->kind == OP_COMM && op->comm.kind == COMM_ALL_GATHER && op->stream == STREAM_GATHER &&
           plan->entries[op->to].kind == PLAN_GATHER_SLOT;
}

/* The first call from op `from` on that uses a slot. */
static int first_use(const struct plan *plan, int slot, int from)
{
    for (int o = from; o < plan->op_count; o++) {
        if (plan->ops[o].kind == OP_CAST && plan->ops[o].from == slot)
            return o;
        for (int i = 0; i < plan->ops[o].group_count; i++)
            if (plan->ops[o].weight[i] == slot)
                return o;
    }
    return plan->op_count;
}

/* The carried gathers first, as if they were made at the beginning of the step. Returns how many. */
static int list_gathers(const struct plan *plan, int *gathers, int *first_uses, int *carried)
{
    int count = 0;
    *carried = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < plan->op_count; i++) {
            if (!is_gather(plan, i) || plan->ops[i].carried != (pass == 0))
                continue;
            gathers[count] = i;
            first_uses[count++] = first_use(plan, plan->ops[i].to, pass == 0 ? 0 : i + 1);
            *carried += pass == 0;
        }
    return count;
}

/* Gathers that may run during a layer call and are used by a later call. first_uses: of the gathers in order.
 */
static int check_pacing(const struct checker *c, int *gathers, int *first_uses)
{
    const struct plan *plan = c->plan;
    const struct plan_options *o = &plan->options;
    int carried, begin = 0, most = 0;
    int depth =
        o->prefetch_backward > o->prefetch_forward && o->train ? o->prefetch_backward : o->prefetch_forward;
    const int count = list_gathers(plan, gathers, first_uses, &carried);
    for (int i = 0; i < plan->op_count; i++) {
        if (plan->ops[i].kind != OP_FORWARD && plan->ops[i].kind != OP_BACKWARD &&
            plan->ops[i].kind != OP_ROWS)
            continue;
        int ahead = 0;
        while (begin < count && first_uses[begin] <= i)
            begin++;
        for (int g = begin; g < count; g++) {
            if (g >= carried && c->clocks[gathers[g]].reached[STREAM_COMPUTE] >= i)
                break; /* nor may any later gather in the stream */
            ahead += first_uses[g] > i;
        }
        /* nor do gathers for the next step begin during a call of this step */
        for (int g = 0; g < carried; g++)
            if (c->clocks[gathers[g]].reached[STREAM_COMPUTE] < i)
                return error_set(c->err, MUSTER_E_STATE,
                                 "op %d, a gather for the next step, may run beside op %d", gathers[g], i);
        most = ahead > most ? ahead : most;
        if (ahead > depth)
            return error_set(c->err, MUSTER_E_STATE,
                             "%d gathers are ahead of op %d; the prefetch depth is %d", ahead, i, depth);
    }
    if (most != plan->gathers_in_flight)
        return error_set(c->err, MUSTER_E_STATE, "%d gathers are in flight but the plan has %d", most,
                         plan->gathers_in_flight);
    return 0;
}

int plan_check(const struct model *model, const struct plan *plan, struct muster_error *err)
{
    size_t ops = (size_t)plan->op_count, entries = (size_t)plan->entry_count;
    scope_free struct plan_clock *clocks = mem_calloc(ops * 2, sizeof *clocks);
    scope_free struct cell *cells = mem_calloc(entries * 2, sizeof *cells);
    scope_free struct bound *bounds = mem_calloc(entries * 2, sizeof *bounds);
    scope_free const struct plan_entry **order = mem_calloc(entries, sizeof *order);
    scope_free int *numbers = mem_calloc(entries * 2 + ops * 2, sizeof *numbers);
    if (!clocks || !cells || !bounds || !order || !numbers)
        return error_set(err, MUSTER_E_NOMEM, "no memory to check a plan of %zu operations", ops);
    struct checker c = {.plan = plan, .clocks = clocks, .cells = cells, .err = err};
    c.first_cell = numbers;
    c.last_cell = numbers + entries;
    if (derive_order(&c) < 0)
        return -1;
    for (int e = 0; e < plan->entry_count; e++)
        if (check_entry(&c, e) < 0)
            return -1;
    if (check_overlap(&c, order) < 0)
        return -1;
    cut_cells(&c, bounds);
    if (check_accesses(&c) < 0 || check_pacing(&c, numbers + 2 * entries, numbers + 2 * entries + ops) < 0)
        return -1;
    return plan_check_content(model, plan, err);
}
