/* plan_group.c - cuts parameters into param groups, lays them out in flat buffers, and cuts this rank's
 * shard by parameter class.
 *
 * A piece is the smallest unit that stays together: the parameters of one unit that are equally trainable
 * and used by the same parts of the model. Pieces that successive layers use merge up to group_bytes. A piece
 * that is used from several places (tied embeddings, also across stages) stays alone, so that its long
 * lifetime keeps no other memory. Parameters that every rank keeps whole are pieces apart, which merge with
 * each other only; so are running statistics. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "runtime/plan/plan_internal.h"

enum { GROUP_ALIGNMENT = 64 }; /* bytes */

struct piece {
    int unit, first_layer, first_param;
    uint64_t parts; /* bits of the parts of the model that use it */
    bool trainable, whole, statistic, alone;
    enum stored stored;
    int64_t bytes;
    int group;
};

/* How a parameter is used. */
struct use {
    int first_layer, piece;
    uint64_t parts;
};

static void collect_uses(const struct plan_builder *b, struct use *uses)
{
    const struct model *model = b->model;
    for (int p = 0; p < model->param_count; p++)
        uses[p] = (struct use){.first_layer = -1, .piece = -1};
    for (int l = 0; l < model->layer_count; l++) {
        for (int i = 0; i < model->layers[l].param_count; i++) {
            struct use *use = &uses[model->layers[l].param[i]];
            if (use->first_layer < 0)
                use->first_layer = l;
            use->parts |= UINT64_C(1) << model->layers[l].part;
        }
    }
}

static bool several(uint64_t bits)
{
    return bits & (bits - 1);
}

static bool kept_whole(const struct plan_builder *b, int param)
{
    const struct param_desc *desc = &b->model->params[param];
    return b->shard_ranks > 1 &&
           (desc->statistic || param_elements(desc) * b->param < b->options->keep_whole_bytes);
}

static int piece_of(const struct plan_builder *b, const struct use *use, int param, struct piece *pieces,
                    int *count)
{
    const struct param_desc *desc = &b->model->params[param];
    const bool whole = kept_whole(b, param);
    for (int i = *count - 1; i >= 0; i--)
        if (pieces[i].unit == desc->unit && pieces[i].trainable == desc->trainable &&
            pieces[i].whole == whole && pieces[i].statistic == !!desc->statistic &&
            pieces[i].stored == desc->stored && pieces[i].parts == use->parts)
            return i;
    pieces[*count] = (struct piece){
        .unit = desc->unit,
        .parts = use->parts,
        .first_layer = use->first_layer,
        .first_param = param,
        .trainable = desc->trainable,
        .whole = whole,
        .statistic = desc->statistic != PARAM_LEARNED,
        .stored = desc->stored,
        .alone = several(use->parts),
        .group = -1,
    };
    return (*count)++;
}

/* A piece whose users are not one run of layers is a group of its own. */
static void mark_scattered(const struct plan_builder *b, const struct use *uses, struct piece *pieces,
                           int *last_user)
{
    for (int l = 0; l < b->model->layer_count; l++) {
        const struct layer_desc *layer = &b->model->layers[l];
        for (int i = 0; i < layer->param_count; i++) {
            int piece = uses[layer->param[i]].piece;
            if (last_user[piece] >= 0 && last_user[piece] < l - 1 && !pieces[piece].whole)
                pieces[piece].alone = true;
            last_user[piece] = l;
        }
    }
}

static int compare_pieces(const void *left, const void *right)
{
    const struct piece *a = *(const struct piece *const *)left, *b = *(const struct piece *const *)right;
    if (a->first_layer != b->first_layer)
        return a->first_layer < b->first_layer ? -1 : 1;
    return a->first_param < b->first_param ? -1 : a->first_param > b->first_param;
}

static int64_t target_bytes(const struct plan_builder *b)
{
    if (b->options->group_bytes > 0)
        return b->options->group_bytes;
    int64_t target = model_parameters(b->model) * b->param / 8;
    const int64_t least = 64 << 10, most = 48 << 20;
    return target < least ? least : target > most ? most : target;
}

/* Gives every piece a group: neighbours merge while they fit. Returns the number of groups. */
static int merge_pieces(const struct plan_builder *b, struct piece *const *order, int count)
{
    int64_t target = target_bytes(b);
    int groups = 0;
    struct {
        bool begun;
        int group;
        uint64_t parts;
        int64_t filled;
    } open[8 * STORED_KIND_COUNT] = {0}; /* indexed by t below */
    for (int i = 0; i < count; i++) {
        struct piece *piece = order[i];
        if (piece->alone) {
            piece->group = groups++;
            continue;
        }
        int t = piece->trainable + 2 * piece->whole + 4 * piece->statistic + 8 * (int)piece->stored;
        if (!open[t].begun || open[t].parts != piece->parts || open[t].filled + piece->bytes > target) {
            open[t].begun = true;
            open[t].group = groups++;
            open[t].parts = piece->parts;
            open[t].filled = 0;
        }
        piece->group = open[t].group;
        open[t].filled += piece->bytes;
    }
    return groups;
}

static uint64_t stages_of(const struct plan_builder *b, uint64_t parts)
{
    uint64_t stages = 0;
    for (int part = 0; part < b->model->parts; part++)
        if (parts >> part & 1)
            stages |= UINT64_C(1) << plan_stage_of(b->options->mesh, part);
    return stages;
}

static void start_group(struct plan_builder *b, int index, const struct piece *piece, int shard_size)
{
    struct param_group *group = &b->plan->groups[index];
    const uint64_t stages = stages_of(b, piece->parts);
    *group = (struct param_group){
        .trainable = piece->trainable,
        .whole = piece->whole,
        .statistic = piece->statistic,
        .stored = piece->stored,
        .stages = stages,
        .shard_size = shard_size,
        .local = stages >> b->place.at[SIDE_PIPELINE] & 1,
        .param = -1,
        .master = -1,
        .grad = -1,
        .moment1 = -1,
        .moment2 = -1,
        .average = -1,
    };
}

/* Lays the parameters of one group out, in the order of their index. */
static void fill_group(struct plan_builder *b, int index, const struct use *uses, const struct piece *pieces,
                       int *next)
{
    struct plan *plan = b->plan;
    struct param_group *group = &plan->groups[index];
    int align = GROUP_ALIGNMENT / (b->param < b->reduce ? b->param : b->reduce);
    group->first_param = *next;
    for (int p = 0; p < b->model->param_count; p++) {
        if (pieces[uses[p].piece].group != index)
            continue;
        plan->places[p] = (struct param_place){index, group->elements};
        plan->group_params[(*next)++] = p;
        group->elements += plan_round_up(param_room(&b->model->params[p], b->options->kernels), align);
        group->param_count++;
    }
    const char *first = b->model->params[plan->group_params[group->first_param]].name;
    if (group->param_count == 1)
        (void)snprintf(group->name, sizeof group->name, "%s", first);
    else /* a name that is too long is truncated: it is for display only */
        (void)snprintf(group->name, sizeof group->name, "%.50s+%d", first, group->param_count - 1);
    const int parts = group->whole ? b->shard_ranks : group->shard_size;
    const int64_t unit = stored_unit(group->stored);
    group->padded = plan_round_up(group->elements, (unit > align ? unit : align) * parts);
    group->shard = group->padded / group->shard_size;
    bool cut = b->reshard || group->trainable;
    group->resident = !b->reshard || group->shard_size == 1;
    group->shard_start = cut ? group->shard * (group->shard_size > 1 ? b->place.at[SIDE_SHARD] : 0) : 0;
}

static void make_groups(struct plan_builder *b, const struct use *uses, struct piece *pieces,
                        struct piece **order, int count)
{
    struct plan *plan = b->plan;
    for (int i = 0; i < count; i++)
        order[i] = &pieces[i];
    qsort(order, (size_t)count, sizeof *order, compare_pieces);
    int groups = merge_pieces(b, order, count), next = 0;
    plan->groups = mem_calloc((size_t)groups, sizeof *plan->groups);
    b->groups = mem_calloc((size_t)groups, sizeof *b->groups);
    if (!plan->groups || !b->groups) {
        b->failed = error_set(b->err, MUSTER_E_NOMEM, "no memory for %d param groups", groups);
        return;
    }
    plan->group_count = groups;
    for (int i = count - 1; i >= 0; i--) {
        const bool cut = (b->reshard || order[i]->trainable) && !order[i]->whole;
        start_group(b, order[i]->group, order[i], cut ? b->shard_ranks : 1);
    }
    for (int g = 0; g < groups; g++)
        fill_group(b, g, uses, pieces, &next);
}

/* Lists the ties in the order of the groups, which is the same on every stage. */
static void list_ties(struct plan_builder *b)
{
    struct plan *plan = b->plan;
    for (int g = 0; b->options->train && g < plan->group_count; g++) {
        const struct param_group *group = &plan->groups[g];
        if (!group->trainable || !plan_is_tied(group) || plan_tie(plan, group) >= 0)
            continue;
        if (plan->tie_count == PLAN_TIES) {
            b->failed =
                error_set(b->err, MUSTER_E_LIMIT,
                          "parameters are shared by more than %d sets of pipeline stages, the last one "
                          "of %s; cut the model into fewer stages",
                          PLAN_TIES, group->name);
            return;
        }
        plan->ties[plan->tie_count++] = group->stages;
    }
}

int64_t plan_held_bytes(const struct plan *plan, const struct param_group *group, int64_t elements)
{
    return group->stored != STORED_PLAIN ? stored_bytes(group->stored, elements)
                                         : elements * dtype_size(plan->options.param_dtype);
}

int plan_first_stage(const struct param_group *group)
{
    return __builtin_ctzll(group->stages);
}

bool plan_is_tied(const struct param_group *group)
{
    return several(group->stages);
}

int plan_tie(const struct plan *plan, const struct param_group *group)
{
    for (int i = 0; i < plan->tie_count; i++)
        if (plan->ties[i] == group->stages)
            return i;
    return -1;
}

struct mesh_line plan_tie_line(struct mesh mesh, uint64_t stages, int rank)
{
    struct mesh_line line = mesh_line(mesh, AXIS_TIED, rank);
    const uint64_t own = UINT64_C(1) << line.place;
    line.place = __builtin_popcountll(stages & (own - 1));
    line.size = stages & own ? __builtin_popcountll(stages) : 0;
    return line;
}

struct mesh_line plan_comm_line(const struct plan *plan, const struct schedule_op *op)
{
    const struct plan_options *o = &plan->options;
    return op->axis == AXIS_TIED ? plan_tie_line(o->mesh, plan->groups[op->group].stages, o->rank)
                                 : mesh_line(o->mesh, op->axis, o->rank);
}

void plan_cut_groups(struct plan_builder *b)
{
    struct plan *plan = b->plan;
    size_t params = (size_t)b->model->param_count;
    plan->places = mem_calloc(params, sizeof *plan->places);
    plan->group_params = mem_calloc(params, sizeof *plan->group_params);
    scope_free struct use *uses = mem_calloc(params, sizeof *uses);
    scope_free struct piece *pieces = mem_calloc(params, sizeof *pieces);
    scope_free struct piece **order = mem_calloc(params, sizeof *order);
    scope_free int *last_user = mem_calloc(params, sizeof *last_user);
    if (!plan->places || !plan->group_params || !uses || !pieces || !order || !last_user)
        b->failed = error_set(b->err, MUSTER_E_NOMEM, "no memory to group %zu parameters", params);
    if (b->failed)
        return;
    collect_uses(b, uses);
    int count = 0;
    for (int p = 0; p < b->model->param_count; p++) {
        int piece = uses[p].piece = piece_of(b, &uses[p], p, pieces, &count);
        pieces[piece].bytes += param_elements(&b->model->params[p]) * b->param;
        if (uses[p].first_layer < pieces[piece].first_layer)
            pieces[piece].first_layer = uses[p].first_layer;
        last_user[p] = -1;
    }
    mark_scattered(b, uses, pieces, last_user);
    make_groups(b, uses, pieces, order, count);
    if (!b->failed)
        list_ties(b);
}

/* ---- segments ---- */

/* The run of the group's `index`-th parameter inside this rank's shard; false if there is none. */
static bool shard_run(const struct plan_builder *b, const struct param_group *group, int param,
                      int64_t *offset, int64_t *count)
{
    int64_t begin = b->plan->places[param].offset - group->shard_start;
    int64_t end = begin + param_elements(&b->model->params[param]);
    begin = begin > 0 ? begin : 0;
    end = end < group->shard ? end : group->shard;
    *offset = begin;
    *count = end - begin;
    return end > begin;
}

void plan_cut_segments(struct plan_builder *b)
{
    struct plan *plan = b->plan;
    plan->segments = mem_calloc((size_t)b->model->param_count, sizeof *plan->segments);
    if (!plan->segments) {
        b->failed = error_set(b->err, MUSTER_E_NOMEM, "no memory for %d segments", b->model->param_count);
        return;
    }
    for (int g = 0; g < plan->group_count; g++) {
        struct param_group *group = &plan->groups[g];
        group->first_segment = plan->segment_count;
        for (int i = 0; group->trainable && group->local && i < group->param_count; i++) {
            int param = plan->group_params[group->first_param + i];
            int class = b->model->params[param].parameter_class;
            int64_t offset, count;
            if (!shard_run(b, group, param, &offset, &count))
                continue;
            struct optimizer_segment *last =
                plan->segment_count > group->first_segment ? &plan->segments[plan->segment_count - 1] : NULL;
            /* A gap between two parameters of one class holds zeros and may be stepped with them. */
            if (last && last->parameter_class == class)
                last->count = offset + count - last->offset;
            else
                plan->segments[plan->segment_count++] = (struct optimizer_segment){offset, count, class};
        }
        group->segment_count = plan->segment_count - group->first_segment;
    }
}

void plan_group_gaps(struct plan_builder *b, int index,
                     void (*visit)(struct plan_builder *b, int group, int64_t offset, int64_t count))
{
    const struct plan *plan = b->plan;
    const struct param_group *group = &plan->groups[index];
    int64_t end = 0;
    for (int i = 0; i < group->param_count; i++) {
        int param = plan->group_params[group->first_param + i];
        int64_t offset = plan->places[param].offset;
        if (offset > end)
            visit(b, index, end, offset - end);
        end = offset + param_elements(&b->model->params[param]);
    }
    if (group->padded > end)
        visit(b, index, end, group->padded - end);
}
