/* plan_gather.c - assigns gathers to slots and to points in the schedule.
 *
 * Every use of a sharded group is known, so slots are a cache with perfect foresight. A group stays in its
 * slot until the slot is needed, and the group with the furthest next use is evicted. So the last groups of
 * the forward pass are still in slots when backward begins, without a gather at the turn. A class with as
 * many slots as groups is gathered once a step. Among the slots that could be refilled now, slots whose
 * content was used long enough ago come first, so that foresight never costs overlap.
 *
 * Pacing: with prefetch depth d, gather n may begin when the layer call that first uses gather n - d begins.
 * So d gathers are ahead of compute; with d = 0 a gather waits until it is needed. */
#include <limits.h>
#include <stdlib.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "runtime/plan/plan_internal.h"

/* ---- size classes ---- */

/* Largest first; a group that fills at least half of a class's slot belongs to it (all of it where every
 * group keeps its own slot). */
static void classify(struct plan_builder *b)
{
    const struct plan *plan = b->plan;
    b->classes = mem_calloc((size_t)plan->group_count, sizeof *b->classes);
    if (!b->classes) {
        b->failed =
            error_set(b->err, MUSTER_E_NOMEM, "no memory for the slots of %d groups", plan->group_count);
        return;
    }
    for (int g = 0; g < plan->group_count; g++)
        b->groups[g].slot_class = -1;
    for (;;) {
        int64_t largest = 0;
        bool whole = false;
        enum stored stored = STORED_PLAIN;
        for (int g = 0; g < plan->group_count; g++)
            if (plan->groups[g].local && b->groups[g].slot_class < 0 && plan->groups[g].padded > largest) {
                largest = plan->groups[g].padded;
                whole = plan->groups[g].whole;
                stored = plan->groups[g].stored;
            }
        if (largest == 0)
            return;
        struct slot_class *class = &b->classes[b->class_count];
        class->elements = largest;
        class->whole = whole;
        class->stored = stored;
        for (int g = 0; g < plan->group_count; g++) {
            if (!plan->groups[g].local || b->groups[g].slot_class >= 0 || plan->groups[g].whole != whole ||
                plan->groups[g].stored != stored || plan->groups[g].padded * (b->keep ? 1 : 2) < largest)
                continue;
            b->groups[g].slot_class = b->class_count;
            class->groups++;
            class->reduced_groups += plan->groups[g].trainable && plan_has_full_gradient(b, g) &&
                                     (!plan_narrow_gradients(b) || plan_rounds(b, g));
        }
        b->class_count++;
    }
}

/* The most groups of a class that one layer uses. */
static int most_at_once(const struct plan_builder *b, int class)
{
    int most = 0;
    for (int l = 0; l < b->model->layer_count; l++) {
        int count = 0;
        for (int i = 0; b->layers[l].local && i < b->layers[l].group_count; i++)
            count += b->groups[b->layers[l].group[i]].slot_class == class;
        most = count > most ? count : most;
    }
    return most;
}

static void add_slot(struct plan_builder *b, int class, int number)
{
    struct slot_class *c = &b->classes[class];
    const bool stored = c->stored != STORED_PLAIN;
    int entry = plan_add_buffer(b, PLAN_GATHER_SLOT, MEMORY_COMM,
                                stored ? stored_bytes(c->stored, c->elements) : c->elements * b->param);
    b->plan->entries[entry].dtype = stored ? DTYPE_U8 : b->options->param_dtype;
    b->plan->entries[entry].slot = number;
    if (c->gather_count++ == 0)
        c->gather_first = entry;
}

static int depth_of(const struct plan_builder *b, enum step_phase phase)
{
    return phase == PHASE_FORWARD ? b->options->prefetch_forward : b->options->prefetch_backward;
}

void plan_slot_classes(struct plan_builder *b)
{
    classify(b);
    if (!b->reshard)
        return;
    int depth = depth_of(b, PHASE_FORWARD), number = 0;
    if (b->options->train && depth_of(b, PHASE_BACKWARD) > depth)
        depth = depth_of(b, PHASE_BACKWARD);
    for (int c = 0; c < b->class_count; c++) {
        int count = most_at_once(b, c) + depth;
        if (b->keep || count > b->classes[c].groups)
            count = b->classes[c].groups;
        for (int i = 0; i < count && !b->classes[c].whole; i++)
            add_slot(b, c, number++);
    }
}

/* ---- assignment ---- */

struct slot {
    int class, gather; /* gather: the group in it; -1 none */
    int last_use;      /* step; -1 never */
};
struct assignment {
    struct slot *slots;
    int first, count;
    int *next;     /* [step * LAYER_GROUPS + i] step of the next use of that use's group; INT_MAX: none */
    int *upcoming; /* [group] its next use, the present step included */
    int *held;     /* [group] the slot that holds it; -1 */
};

/* Gradients that are exchanged as rows are formed without the parameters. */
static bool uses_weights(const struct plan_builder *b, const struct plan_step *step)
{
    return step->phase != PHASE_BACKWARD || !plan_sends_rows(b, step->layer, step->micro);
}

static void find_next_uses(const struct plan_builder *b, struct assignment *a)
{
    for (int g = 0; g < b->plan->group_count; g++) {
        a->upcoming[g] = INT_MAX;
        a->held[g] = -1;
    }
    for (int t = b->step_count - 1; t >= 0; t--) {
        const struct plan_layer *layer = &b->layers[b->steps[t].layer];
        for (int i = 0; uses_weights(b, &b->steps[t]) && i < layer->group_count; i++) {
            a->next[t * LAYER_GROUPS + i] = a->upcoming[layer->group[i]];
            a->upcoming[layer->group[i]] = t;
        }
    }
}

/* The better slot to refill for a gather that could begin when step `enabled` has finished. */
static bool better(const struct plan_builder *b, const struct assignment *a, const struct slot *left,
                   const struct slot *right, int enabled)
{
    bool left_ready = left->last_use <= enabled, right_ready = right->last_use <= enabled;
    if (left_ready != right_ready)
        return left_ready;
    int left_next = left->gather < 0 ? INT_MAX : a->upcoming[b->gathers[left->gather].group];
    int right_next = right->gather < 0 ? INT_MAX : a->upcoming[b->gathers[right->gather].group];
    if (left_next != right_next)
        return left_next > right_next;
    return left->last_use < right->last_use;
}

static int choose_slot(const struct plan_builder *b, const struct assignment *a, int group, int step,
                       int enabled)
{
    int best = -1;
    for (int s = 0; s < a->count; s++) {
        const struct slot *slot = &a->slots[s];
        if (slot->class != b->groups[group].slot_class)
            continue;
        if (slot->last_use == step ||
            (slot->gather >= 0 && a->upcoming[b->gathers[slot->gather].group] == step))
            continue;
        if (best < 0 || better(b, a, slot, &a->slots[best], enabled))
            best = s;
    }
    return best;
}

/* The step that must be finished before gather number `index`, first used by `step`, may begin. */
static int pace(const struct plan_builder *b, int index, int step)
{
    int depth = depth_of(b, b->steps[step].phase);
    if (depth == 0)
        return step - 1;
    return index < depth ? -1 : b->gathers[index - depth].first_step - 1;
}

static void assign_miss(struct plan_builder *b, struct assignment *a, int group, int step)
{
    int index = b->gather_count, enabled = pace(b, index, step);
    int chosen = choose_slot(b, a, group, step, enabled);
    struct slot *slot = &a->slots[chosen];
    int after = slot->last_use > enabled ? slot->last_use : enabled;
    if (index > 0 && b->gathers[index - 1].after_step > after)
        after = b->gathers[index - 1].after_step; /* one stream: never before the preceding gather */
    if (slot->gather >= 0)
        a->held[b->gathers[slot->gather].group] = -1;
    b->gathers[index] = (struct plan_gather){
        .group = group,
        .slot = a->first + chosen,
        .first_step = step,
        .enabled_step = enabled,
        .after_step = after,
        .op = -1,
    };
    b->gather_count++;
    slot->gather = index;
    a->held[group] = chosen;
}

static void assign_all(struct plan_builder *b, struct assignment *a)
{
    find_next_uses(b, a);
    for (int t = 0; t < b->step_count; t++) {
        const struct plan_layer *layer = &b->layers[b->steps[t].layer];
        if (!uses_weights(b, &b->steps[t]))
            continue;
        for (int i = 0; i < layer->group_count; i++) {
            int group = layer->group[i];
            if (b->plan->groups[group].whole)
                continue; /* the group is always in memory */
            if (a->held[group] < 0)
                assign_miss(b, a, group, t);
            struct slot *slot = &a->slots[a->held[group]];
            slot->last_use = t;
            b->steps[t].gather[i] = slot->gather;
        }
        for (int i = 0; i < layer->group_count; i++)
            a->upcoming[layer->group[i]] = a->next[t * LAYER_GROUPS + i];
    }
}

void plan_assign_gathers(struct plan_builder *b)
{
    if (!b->reshard)
        return;
    struct assignment a = {.first = INT_MAX};
    for (int c = 0; c < b->class_count; c++) {
        a.count += b->classes[c].gather_count;
        if (b->classes[c].gather_count > 0 && b->classes[c].gather_first < a.first)
            a.first = b->classes[c].gather_first;
    }
    size_t uses = (size_t)b->step_count * LAYER_GROUPS;
    scope_free struct slot *slots = a.slots = mem_calloc((size_t)a.count, sizeof *slots);
    scope_free int *next = a.next = mem_calloc(uses, sizeof *next);
    scope_free int *upcoming = a.upcoming = mem_calloc((size_t)b->plan->group_count, sizeof *upcoming);
    scope_free int *held = a.held = mem_calloc((size_t)b->plan->group_count, sizeof *held);
    b->gathers = mem_calloc(uses, sizeof *b->gathers);
    if (!slots || !next || !upcoming || !held || !b->gathers) {
        b->failed = error_set(b->err, MUSTER_E_NOMEM, "no memory to plan the gathers of %d layer calls",
                              b->step_count);
        return;
    }
    for (int c = 0; c < b->class_count; c++)
        for (int i = 0; i < b->classes[c].gather_count; i++)
            slots[b->classes[c].gather_first - a.first + i] =
                (struct slot){.class = c, .gather = -1, .last_use = -1};
    assign_all(b, &a);
}

/* ---- emission ---- */

void plan_emit_gather(struct plan_builder *b, int index, int after, bool carried)
{
    struct plan_gather *gather = &b->gathers[index];
    const struct param_group *group = &b->plan->groups[gather->group];
    struct schedule_op op = plan_op(OP_COMM, STREAM_GATHER);
    op.axis = AXIS_SHARD;
    op.group = gather->group;
    op.from = group->param;
    op.to = gather->slot;
    op.bytes = plan_held_bytes(b->plan, group, group->shard);
    op.comm = (struct comm_op){.kind = COMM_ALL_GATHER,
                               .dtype = b->plan->entries[group->param].dtype,
                               .count = op.bytes / dtype_size(b->plan->entries[group->param].dtype)};
    op.carried = carried;
    gather->op = plan_emit(b, &op, after);
}

void plan_issue_gathers(struct plan_builder *b, int step)
{
    if (b->gathers_issued < b->gathers_carried)
        b->gathers_issued = b->gathers_carried;
    while (b->gathers_issued < b->gather_count && b->gathers[b->gathers_issued].after_step < step) {
        const int index = b->gathers_issued++, enabled = b->gathers[index].enabled_step;
        plan_emit_gather(b, index, enabled >= 0 ? b->steps[enabled].op : -1, false);
    }
}

/* A gather is ahead of a layer call if it may overlap the call and is used by later calls only. Carried
 * gathers may run from the beginning of the step. */
void plan_count_in_flight(struct plan_builder *b)
{
    int first = 0;
    for (int t = 0; t < b->step_count; t++) {
        int ahead = 0;
        while (first < b->gather_count && b->gathers[first].first_step <= t)
            first++;
        for (int g = first; g < b->gather_count; g++) {
            if (g >= b->gathers_carried &&
                b->clocks[b->gathers[g].op].reached[STREAM_COMPUTE] >= b->steps[t].op)
                break; /* later gathers of the stream may not begin either */
            ahead++;
        }
        if (ahead > b->plan->gathers_in_flight)
            b->plan->gathers_in_flight = ahead;
    }
}
