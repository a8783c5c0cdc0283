/* plan_advice.c - see plan.h. Changes are tried one by one and in pairs, each by planning it. */
#include "runtime/plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"
#include "runtime/plan/plan_cost.h"

enum { CHANGES_MAX = 24, TRIES_MAX = CHANGES_MAX * CHANGES_MAX, ADVICES = 3, TEXT_SIZE = 64 };

/* One setting with another value. Two changes of the same kind exclude each other. */
struct change {
    enum {
        CHANGE_STRATEGY,
        CHANGE_ATTENTION, /* from a library's to the table's own, which needs less workspace */
        CHANGE_OPTIMIZER, /* moments and averages in the other memory */
        CHANGE_COPIES,    /* no copies of the state in the host's memory */
        CHANGE_RECOMPUTE,
        CHANGE_MICRO_BATCH,
        CHANGE_PREFETCH,
        CHANGE_WHOLE,
        CHANGE_CHUNK,
        CHANGE_EMBEDDING,
        CHANGE_KINDS
    } kind;
    int value, extra;
    char text[TEXT_SIZE]; /* "training.recompute: all" */
};

/* One or two changes that fit. */
struct advice {
    const struct change *first, *second; /* second: NULL if there is one */
    double step_s;
    int64_t to_host; /* bytes that move to the host's memory; below 0: from there */
    bool beyond;     /* it needs more of the other memory than there is */
};

int64_t plan_bytes_of(const struct plan *plan, enum plan_memory memory)
{
    const int64_t device = plan->arena_bytes[MEMORY_DEVICE] + plan->arena_bytes[MEMORY_COMM],
                  host = plan->arena_bytes[MEMORY_PINNED] + plan->arena_bytes[MEMORY_HOST];
    return memory == PLAN_MEMORY_DEVICE ? device : memory == PLAN_MEMORY_HOST ? host : device + host;
}

int64_t plan_bytes(const struct plan *plan)
{
    return plan_bytes_of(plan, PLAN_MEMORY_ALL);
}

int plan_holders(const struct plan *plan, const struct param_group *group, int *copy)
{
    const struct plan_options *o = &plan->options;
    const struct mesh_line stages = plan_tie_line(o->mesh, group->stages, o->rank);
    const struct mesh_line equal =
        mesh_line(o->mesh, group->shard_size > 1 ? AXIS_REPLICATE : AXIS_DATA, o->rank);
    *copy = stages.place * equal.size + equal.place;
    return stages.size * equal.size;
}

int64_t plan_saved_bytes(const struct model *model, const struct plan *plan)
{
    int64_t bytes = 0;
    for (int p = 0; p < model->param_count; p++) {
        const struct param_group *g = &plan->groups[plan->places[p].group];
        const int entries[] = {g->master >= 0 ? g->master : g->param, g->moment1, g->moment2, g->average};
        const int64_t start = plan->places[p].offset, end = start + param_elements(&model->params[p]),
                      first = start > g->shard_start ? start : g->shard_start,
                      last = end < g->shard_start + g->shard ? end : g->shard_start + g->shard;
        int copy;
        if (!g->local || g->stored != STORED_PLAIN || last <= first || model_is_base(model, p))
            continue;
        for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
            if (entries[i] >= 0)
                bytes += (last - first) * dtype_size(plan->entries[entries[i]].dtype) /
                         plan_holders(plan, g, &copy);
    }
    for (int g = 0; g < plan->group_count; g++)
        if (plan->groups[g].local && plan->groups[g].feedback >= 0)
            bytes += plan->entries[plan->groups[g].feedback].bytes;
    return bytes;
}

/* ---- changes ---- */

static struct change *add_change(struct change *changes, int *count, struct change change)
{
    if (*count == CHANGES_MAX)
        return NULL;
    changes[*count] = change;
    return &changes[(*count)++];
}

static void list_strategies(const struct plan_options *o, struct change *changes, int *count)
{
    /* From full replicas to full shards: each strategy keeps less memory than the strategy before. */
    const enum strategy order[] = {STRATEGY_NO_SHARD, STRATEGY_SHARD_OPTIM, STRATEGY_SHARD_GRAD_OP,
                                   STRATEGY_FULL_SHARD};
    bool less = false;
    for (size_t i = 0; i < sizeof order / sizeof *order && mesh_size(o->mesh) > 1; i++) {
        struct change change = {.kind = CHANGE_STRATEGY, .value = (int)order[i]};
        (void)snprintf(change.text, sizeof change.text, "training.strategy: %s", strategy_name(order[i]));
        if (less || (o->strategy == STRATEGY_HYBRID_SHARD && order[i] == STRATEGY_FULL_SHARD))
            (void)add_change(changes, count, change);
        less |= order[i] == o->strategy;
    }
}

static void list_recomputations(const struct plan_options *o, struct change *changes, int *count)
{
    if (o->recompute.kind == RECOMPUTE_ALL)
        return;
    (void)add_change(changes, count,
                     (struct change){CHANGE_RECOMPUTE, RECOMPUTE_ALL, 0, "training.recompute: all"});
    for (int every = 2; every <= 4; every++) {
        struct change change = {.kind = CHANGE_RECOMPUTE, .value = RECOMPUTE_EVERY, .extra = every};
        (void)snprintf(change.text, sizeof change.text, "training.recompute: every, recompute_every: %d",
                       every);
        if (o->recompute.kind != RECOMPUTE_EVERY || every < o->recompute.every)
            (void)add_change(changes, count, change);
    }
}

/* Memory of the optimizer alone may be in either place, where the other is short. */
static void list_optimizer(const struct plan_options *o, enum plan_memory memory, struct change *changes,
                           int *count)
{
    if (memory == PLAN_MEMORY_HOST && o->optimizer_memory == MEMORY_HOST)
        (void)add_change(
            changes, count,
            (struct change){CHANGE_OPTIMIZER, MEMORY_DEVICE, 0, "training.optimizer_memory: device"});
    if (memory == PLAN_MEMORY_DEVICE && o->optimizer_memory == MEMORY_DEVICE)
        (void)add_change(
            changes, count,
            (struct change){CHANGE_OPTIMIZER, MEMORY_HOST, 0, "training.optimizer_memory: host"});
}

/* Rows take memory of their own where they are larger than the full gradient that they replace. */
static void list_embedding(const struct model *model, const struct plan *plan, struct change *changes,
                           int *count)
{
    bool lookup = false, rows = false;
    for (int l = 0; l < model->layer_count; l++)
        lookup |= model->layers[l].lookup != 0;
    for (int o = 0; o < plan->op_count; o++)
        rows |= plan->ops[o].kind == OP_ROWS;
    const enum embedding_gradient other = rows ? EMBEDDING_DENSE : EMBEDDING_ROWS;
    struct change change = {.kind = CHANGE_EMBEDDING, .value = (int)other};
    (void)snprintf(change.text, sizeof change.text, "training.embedding_gradient: %s",
                   embedding_gradient_name(other));
    if (lookup && mesh_size(plan->options.mesh) > 1)
        (void)add_change(changes, count, change);
}

static int list_changes(const struct model *model, const struct plan *plan, enum plan_memory memory,
                        struct change *changes)
{
    const struct plan_options *o = &plan->options;
    int count = 0;
    list_strategies(o, changes, &count);
    list_optimizer(o, memory, changes, &count);
    if (memory != PLAN_MEMORY_DEVICE && plan->copies >= 0)
        (void)add_change(changes, &count, (struct change){CHANGE_COPIES, 0, 0, "training.memory_copies: 0"});
    if (o->kernels && o->kernels->attention_by)
        (void)add_change(changes, &count, (struct change){CHANGE_ATTENTION, 0, 0, "training.attention: own"});
    list_recomputations(o, changes, &count);
    list_embedding(model, plan, changes, &count);
    for (int batch = o->shape.B - 1; batch >= 1; batch--) {
        struct change change = {.kind = CHANGE_MICRO_BATCH, .value = batch};
        (void)snprintf(change.text, sizeof change.text, "training.micro_batch: %d", batch);
        if (o->shape.B % batch == 0) /* more micro-batches, the same global batch */
            (void)add_change(changes, &count, change);
    }
    if (o->prefetch_forward > 1 || o->prefetch_backward > 1)
        (void)add_change(changes, &count, (struct change){CHANGE_PREFETCH, 1, 0, "training.prefetch: 1"});
    const int64_t own = o->kernels && o->kernels->chunk_bytes ? o->kernels->chunk_bytes : 64 << 20;
    const int64_t chunk = o->chunk_bytes ? o->chunk_bytes : own;
    /* Smaller chunks make products smaller, which still have many rows. */
    for (int mb = 256; mb >= 8; mb /= 2) {
        if (mb << 20 >= chunk)
            continue;
        struct change change = {.kind = CHANGE_CHUNK, .value = mb << 20};
        (void)snprintf(change.text, sizeof change.text, "training.head_chunk: %dM", mb);
        (void)add_change(changes, &count, change);
    }
    if (o->keep_whole_bytes > 0)
        (void)add_change(changes, &count,
                         (struct change){CHANGE_WHOLE, 0, 0, "training.keep_whole_below: 0"});
    return count;
}

/* own: room for a table. */
static void apply(const struct change *change, struct plan_options *o, struct kernels *own)
{
    switch (change->kind) {
    case CHANGE_ATTENTION:
        *own = *o->kernels;
        own->attention_by = NULL;
        o->kernels = own;
        break;
    case CHANGE_STRATEGY:
        o->strategy = (enum strategy)change->value;
        o->mesh.side[SIDE_SHARD] *= o->mesh.side[SIDE_REPLICATE]; /* no strategy in this list has replicas */
        o->mesh.side[SIDE_REPLICATE] = 1;
        break;
    case CHANGE_OPTIMIZER:
        o->optimizer_memory = (enum memory_class)change->value;
        break;
    case CHANGE_COPIES:
        o->state_copies = 0;
        break;
    case CHANGE_RECOMPUTE:
        o->recompute = (struct recompute_options){(enum recompute)change->value, change->extra};
        break;
    case CHANGE_MICRO_BATCH:
        o->micro_batches *= o->shape.B / change->value;
        o->shape.B = change->value;
        break;
    case CHANGE_CHUNK:
        o->chunk_bytes = change->value;
        break;
    case CHANGE_EMBEDDING:
        o->embedding_gradient = (enum embedding_gradient)change->value;
        break;
    case CHANGE_WHOLE:
        o->keep_whole_bytes = 0;
        break;
    default: /* CHANGE_PREFETCH */
        o->prefetch_forward = o->prefetch_backward = change->value;
        break;
    }
}

/* ---- trying ---- */

/* Whether the changed plan fits, and its step; a plan that cannot be built does not fit. */
static bool try_changes(const struct model *model, const struct plan *plan, struct advice *advice,
                        const struct plan_room *room)
{
    struct plan_options options = plan->options;
    struct plan changed;
    struct plan_cost cost;
    struct kernels own;
    apply(advice->first, &options, &own);
    if (advice->second)
        apply(advice->second, &options, &own);
    if (plan_build(model, &options, &changed, NULL) < 0)
        return false;
    const int64_t host = plan_bytes_of(&changed, PLAN_MEMORY_HOST),
                  other =
                      room->memory == PLAN_MEMORY_HOST ? plan_bytes_of(&changed, PLAN_MEMORY_DEVICE) : host;
    advice->beyond = room->memory != PLAN_MEMORY_ALL && room->other > 0 && other > room->other;
    const bool fits = plan_bytes_of(&changed, room->memory) <= room->bytes &&
                      (room->another || !advice->beyond) &&
                      plan_predict(model, &changed, room->rates, &cost, NULL) == 0;
    plan_free(&changed);
    advice->step_s = fits ? cost.step_s : 0;
    advice->to_host = options.optimizer_memory == plan->options.optimizer_memory
                          ? 0
                          : host - plan_bytes_of(plan, PLAN_MEMORY_HOST);
    return fits;
}

static int by_time(const void *left, const void *right)
{
    const struct advice *a = left, *b = right;
    if ((a->to_host > 0) != (b->to_host > 0)) /* the prediction does not see the bus */
        return a->to_host > 0 ? 1 : -1;
    if (a->step_s != b->step_s)
        return a->step_s < b->step_s ? -1 : 1;
    return a->first < b->first ? -1 : a->first > b->first;
}

/* Single changes, and pairs only of changes that do not fit alone. Returns how many fit, sorted by time; the
 * last that is shown moves memory to the host, where that fits. */
static int find_advice(const struct model *model, const struct plan *plan, const struct plan_room *room,
                       const struct change *changes, int count, struct advice *found)
{
    bool alone[CHANGES_MAX];
    int fitting = 0;
    /* Micro-batches and chunks come in falling order: the largest that fits is enough. */
    bool smaller_fits[CHANGE_KINDS] = {false};
    for (int i = 0; i < count; i++) {
        const bool falling = changes[i].kind == CHANGE_MICRO_BATCH || changes[i].kind == CHANGE_CHUNK;
        alone[i] = smaller_fits[changes[i].kind];
        if (alone[i])
            continue;
        found[fitting] = (struct advice){.first = &changes[i]};
        alone[i] = try_changes(model, plan, &found[fitting], room);
        smaller_fits[changes[i].kind] = falling && alone[i];
        fitting += alone[i];
    }
    for (int i = 0; fitting < ADVICES && i < count; i++)
        for (int j = i + 1; j < count; j++) {
            found[fitting] = (struct advice){.first = &changes[i], .second = &changes[j]};
            if (!alone[i] && !alone[j] && changes[i].kind != changes[j].kind)
                fitting += try_changes(model, plan, &found[fitting], room);
        }
    qsort(found, (size_t)fitting, sizeof *found, by_time);
    for (int i = ADVICES; i < fitting; i++)
        if (found[i].to_host > 0) {
            found[ADVICES - 1] = found[i];
            break;
        }
    return fitting;
}

static bool has_kind(const struct advice *a, int kind)
{
    return (int)a->first->kind == kind || (a->second && (int)a->second->kind == kind);
}

/* The cost of an advice, by prediction where that sees it; returns whether it printed a time. */
static bool write_effect(const struct plan_room *room, const struct advice *a, double step_s,
                         struct buffer *out)
{
    char moved[32], has[32];
    const double slower = step_s > 0 ? 100 * (a->step_s / step_s - 1) : 0;
    if (a->to_host > 0) {
        (void)buffer_printf(out, " (the optimizer reads and writes %s of the host's memory in each step",
                            text_format_bytes(moved, sizeof moved, a->to_host));
        if (a->beyond)
            (void)buffer_printf(out, "; %s are available here",
                                text_format_bytes(has, sizeof has, room->other));
        (void)buffer_text(out, ")");
    } else if (a->to_host < 0)
        (void)buffer_printf(out, " (%s more of the device's memory)",
                            text_format_bytes(moved, sizeof moved, -a->to_host));
    else if (has_kind(a, CHANGE_COPIES)) /* the prediction does not see them */
        (void)buffer_text(out, " (a lost rank's state is then a checkpoint's)");
    else if (has_kind(a, CHANGE_ATTENTION)) /* as little as which library computes it */
        (void)buffer_text(out, " (attention by muster's kernels)");
    else if (has_kind(a, CHANGE_CHUNK)) /* the prediction does not see how large a product is */
        (void)buffer_text(out, " (its smaller products cost some time)");
    else if (step_s > 0 && fabs(slower) < 0.5)
        (void)buffer_text(out, " (as fast)");
    else if (step_s > 0) {
        (void)buffer_printf(out, " (about %+.0f%% time)", slower);
        return true;
    }
    return false;
}

static void write_advice(const struct model *model, const struct plan *plan, const struct plan_room *room,
                         const struct advice *found, int fitting, struct buffer *out)
{
    const int shown = fitting < ADVICES ? fitting : ADVICES;
    struct plan_cost cost;
    bool timed = false;
    double step_s = plan_predict(model, plan, room->rates, &cost, NULL) ? 0 : cost.step_s;
    (void)buffer_text(out, shown ? "it fits with" : "use more ranks, or a smaller model or sequence");
    for (int i = 0; i < shown; i++) {
        const struct advice *a = &found[i];
        (void)buffer_printf(out, "%s %s%s%s",
                            i == 0          ? ""
                            : i + 1 < shown ? ","
                                            : " or",
                            a->first->text, a->second ? " and " : "", a->second ? a->second->text : "");
        timed |= write_effect(room, a, step_s, out);
    }
    if (timed) {
        (void)buffer_text(out, ", ");
        plan_rates_text(room->rates, out);
    }
}

int plan_fits(const struct model *model, const struct plan *plan, const struct plan_room *given,
              struct muster_error *err)
{
    const struct plan_rates nominal = plan_rates_nominal(1);
    struct plan_room own_room = *given;
    const struct plan_room *room = &own_room;
    const int64_t wanted = plan_bytes_of(plan, room->memory), limit = room->bytes;
    char need[32], have[32], of_stage[32] = "";
    if (wanted <= limit)
        return 0;
    if (plan->options.mesh.side[SIDE_PIPELINE] > 1)
        (void)snprintf(of_stage, sizeof of_stage, ", of stage %d",
                       mesh_place_of(plan->options.mesh, plan->options.rank).at[SIDE_PIPELINE]); /* fits */
    own_room.rates = given->rates ? given->rates : &nominal;
    struct change changes[CHANGES_MAX];
    scope_free struct advice *found = mem_calloc(TRIES_MAX + 1, sizeof *found);
    scope_buffer text = {0};
    if (found) {
        const int count = list_changes(model, plan, room->memory, changes);
        write_advice(model, plan, room, found, find_advice(model, plan, room, changes, count, found), &text);
    }
    return error_set(err, MUSTER_E_LIMIT,
                     "the plan needs %s (%lld bytes)%s on rank %d%s, but %s (%lld bytes) %s; %s",
                     text_format_bytes(need, sizeof need, wanted), (long long)wanted,
                     room->memory == PLAN_MEMORY_DEVICE ? " of the device's memory"
                     : room->memory == PLAN_MEMORY_HOST ? " of the host's memory"
                                                        : "",
                     plan->options.rank, of_stage, text_format_bytes(have, sizeof have, limit),
                     (long long)limit, room->is, text.data && !text.failed ? text.data : "use more ranks");
}
