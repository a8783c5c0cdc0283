/* plan_suggest.c - see plan_suggest.h. Meshes are listed with a lower bound of their step, from the times of
 * single layers, and with a lower bound of their bytes. They are planned in the order of the bound, until the
 * bound of the next mesh is above the tenth fastest step: no later mesh can be among the ten.
 *
 * 1f1b is as fast as gpipe, and keeps less. So gpipe is tried with recomputation except in the last
 * micro-batch alone. */
#include "runtime/plan/plan_suggest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"
#include "runtime/plan/plan_cut.h"
#include "runtime/plan/plan_stages.h"

enum { CHUNKS_TRIED = 8 /* parts of a stage: 2, 4, 8 */ };

struct mesh_candidate {
    struct plan_options options;
    double least_s;
    int64_t least_bytes;
    int number; /* in the order of listing */
};

/* Seconds of the calls of each layer for a micro-batch of one size. */
struct layer_seconds {
    int batch;
    double *forward, *back, *again; /* [layer_count]; again: recomputation */
};

struct suggest_search {
    struct model *model;
    const struct plan_options *base;
    const struct suggest_request *request;
    struct mesh_candidate *list;
    int count, capacity;
    struct layer_seconds seconds; /* for the size that was needed last */
    uint64_t *seen;               /* [param_count] room for measure_parts */
    struct suggest_result *result;
    int64_t smallest;            /* bytes of the smallest planned mesh; 0: none */
    struct muster_error refused; /* the first mesh that could not be planned */
    struct muster_error *err;
};

/* ---- bounds ---- */

/* Fills the seconds for a size of micro-batches, from a plan of one rank. */
static int find_seconds(struct suggest_search *s, int batch)
{
    const int layers = s->model->layer_count;
    struct plan_options options = *s->base;
    struct plan plan;
    if (s->seconds.batch == batch)
        return 0;
    s->seconds.batch = 0;
    memset(s->seconds.forward, 0, 3 * (size_t)layers * sizeof(double));
    options.mesh = (struct mesh)MESH(1, 1, 1);
    options.rank = options.world_size = 0;
    options.strategy = STRATEGY_NO_SHARD;
    options.schedule = PIPE_1F1B;
    options.chunks = options.micro_batches = 1;
    options.shape.B = batch;
    options.recompute = (struct recompute_options){RECOMPUTE_ALL, 0};
    options.embedding_gradient = EMBEDDING_AUTO;
    const struct plan_cut whole = {.stages = 1};
    if (plan_cut_model(s->model, &options, &whole, s->err) < 0 ||
        plan_build(s->model, &options, &plan, s->err) < 0)
        return -1;
    scope_free double *seconds = mem_calloc((size_t)plan.op_count, sizeof *seconds);
    int result = seconds ? plan_op_seconds(s->model, &plan, s->request->rates, seconds, s->err)
                         : error_set(s->err, MUSTER_E_NOMEM, "no memory for the times of a plan");
    for (int i = 0; !result && i < plan.op_count; i++) {
        const struct schedule_op *op = &plan.ops[i];
        if (op->kind == OP_BACKWARD)
            s->seconds.back[op->layer] += seconds[i];
        else if (op->kind == OP_FORWARD)
            (op->mode == LAYER_RECOMPUTE ? s->seconds.again : s->seconds.forward)[op->layer] += seconds[i];
    }
    plan_free(&plan);
    s->seconds.batch = result ? 0 : batch;
    return result;
}

/* Needs of a part, in one micro-batch: seconds, and bytes that its backward reads. elements: of the trained
 * parameters of the stage whose first part it is. */
struct part_needs {
    double forward, back, again;
    int64_t elements, saved;
};

/* seen: [param_count] room, bits of stages. */
static void measure_parts(const struct suggest_search *s, const struct plan_options *o, uint64_t *seen,
                          struct part_needs *parts)
{
    const struct model *model = s->model;
    memset(parts, 0, (size_t)model->parts * sizeof *parts);
    memset(seen, 0, (size_t)model->param_count * sizeof *seen);
    for (int l = 0; l < model->layer_count; l++) {
        const struct layer_desc *layer = &model->layers[l];
        const int stage = plan_stage_of(o->mesh, layer->part);
        struct part_needs *part = &parts[layer->part];
        struct layer_sizes sizes = {0};
        plan_layer_sizes(o, layer, LAYER_TRAIN, &sizes);
        part->forward += s->seconds.forward[l];
        part->back += layer->lookup ? 0 : s->seconds.back[l]; /* or its rows are exchanged */
        part->again += s->seconds.again[l];
        part->saved += s->seconds.back[l] > 0 && !layer->recompute ? sizes.saved : 0;
        for (int i = 0; i < layer->param_count; i++) {
            const struct param_desc *param = &model->params[layer->param[i]];
            if (param->trainable && !param->statistic && !(seen[layer->param[i]] >> stage & 1))
                parts[stage].elements += param_elements(param);
            seen[layer->param[i]] |= UINT64_C(1) << stage;
        }
    }
}

/* A stage goes forward for the first time after all earlier parts, and its last backward comes before theirs.
 */
static double least_seconds(const struct plan_options *o, const struct part_needs *parts)
{
    const int stages = o->mesh.side[SIDE_PIPELINE], m = o->micro_batches;
    const int again = o->recompute.kind == RECOMPUTE_ALL           ? m
                      : o->recompute.kind == RECOMPUTE_EXCEPT_LAST ? m - 1
                                                                   : 0;
    double most = 0, around = 0;
    for (int stage = 0; stage < stages; stage++) {
        double busy = 0;
        for (int part = stage; part < stages * o->chunks; part += stages)
            busy += m * (parts[part].forward + parts[part].back) + again * parts[part].again;
        most = around + busy > most ? around + busy : most;
        around += parts[stage].forward + parts[stage].back;
    }
    return most;
}

/* Calls of forward whose activations a stage holds at some time. */
static int most_calls(const struct plan_options *o, int stage)
{
    const int stages = o->mesh.side[SIDE_PIPELINE], m = o->micro_batches;
    const int calls = o->schedule == PIPE_GPIPE ? m : stages - stage;
    return calls < m ? calls : m;
}

static int64_t least_bytes(const struct plan_options *o, enum plan_memory counted,
                           const struct part_needs *parts)
{
    const int stages = o->mesh.side[SIDE_PIPELINE], shards = o->mesh.side[SIDE_SHARD];
    const bool sharded = o->strategy != STRATEGY_NO_SHARD,
               resident = !sharded || o->strategy == STRATEGY_SHARD_OPTIM;
    const int real = dtype_size(o->dtype), param = dtype_size(o->param_dtype);
    const bool counts_moments = counted == PLAN_MEMORY_ALL || o->optimizer_memory == MEMORY_DEVICE;
    const int moments = counts_moments ? optimizer_moments(&o->optimizer) : 0;
    int64_t most = 0;
    for (int stage = 0; stage < stages; stage++) {
        const int64_t elements = parts[stage].elements, mine = sharded ? elements / shards : elements;
        const bool keeps = o->recompute.kind == RECOMPUTE_NONE && o->chunks == 1;
        const int64_t bytes = (resident ? elements : mine) * param +
                              mine * real * (1 + moments + (param < real)) +
                              (keeps ? parts[stage].saved * most_calls(o, stage) : 0);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* ---- listing ---- */

static int list_mesh(struct suggest_search *s, const struct plan_options *options)
{
    struct part_needs parts[PIPE_PARTS];
    const struct plan_cut cut = {.stages = options->mesh.side[SIDE_PIPELINE], .chunks = options->chunks};
    if (s->count == s->capacity) {
        const int larger = s->capacity ? 2 * s->capacity : 256;
        void *list = mem_realloc(s->list, (size_t)larger, sizeof *s->list);
        if (!list)
            return error_set(s->err, MUSTER_E_NOMEM, "no memory to list %d meshes", larger);
        s->list = list;
        s->capacity = larger;
    }
    if (plan_cut_model(s->model, options, &cut, s->err) < 0)
        return -1;
    measure_parts(s, options, s->seen, parts);
    s->list[s->count] =
        (struct mesh_candidate){.options = *options,
                                .least_s = least_seconds(options, parts),
                                .least_bytes = least_bytes(options, s->request->counted, parts),
                                .number = s->count};
    s->count++;
    return 0;
}

static int list_recomputations(struct suggest_search *s, struct plan_options o)
{
    static const enum recompute kinds[] = {RECOMPUTE_NONE, RECOMPUTE_ALL};
    if (o.schedule == PIPE_GPIPE) {
        o.recompute = (struct recompute_options){RECOMPUTE_EXCEPT_LAST, 0};
        return list_mesh(s, &o);
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        o.recompute = (struct recompute_options){kinds[i], 0};
        if (list_mesh(s, &o) < 0)
            return -1;
    }
    return 0;
}

static int list_schedules(struct suggest_search *s, struct plan_options o)
{
    const int stages = o.mesh.side[SIDE_PIPELINE],
              most = s->model->layer_count < PIPE_PARTS ? s->model->layer_count : PIPE_PARTS;
    o.schedule = PIPE_1F1B;
    o.chunks = 1;
    if (list_recomputations(s, o) < 0)
        return -1;
    if (stages == 1)
        return 0;
    o.schedule = PIPE_GPIPE;
    if (list_recomputations(s, o) < 0)
        return -1;
    o.schedule = PIPE_INTERLEAVED;
    for (o.chunks = 2; o.chunks <= CHUNKS_TRIED && stages * o.chunks <= most; o.chunks *= 2)
        if (list_recomputations(s, o) < 0)
            return -1;
    return 0;
}

static int list_strategies(struct suggest_search *s, struct plan_options o, int stages, int data)
{
    static const enum strategy kinds[] = {STRATEGY_NO_SHARD, STRATEGY_SHARD_OPTIM, STRATEGY_SHARD_GRAD_OP,
                                          STRATEGY_FULL_SHARD};
    for (size_t i = 0; i < (data > 1 ? sizeof kinds / sizeof *kinds : 1); i++) {
        o.strategy = kinds[i];
        o.mesh = (struct mesh)MESH(stages, 1, data);
        if (list_schedules(s, o) < 0)
            return -1;
    }
    o.strategy = STRATEGY_HYBRID_SHARD;
    for (int replicas = 2; replicas < data; replicas++) {
        if (data % replicas)
            continue;
        o.mesh = (struct mesh)MESH(stages, replicas, data / replicas);
        if (list_schedules(s, o) < 0)
            return -1;
    }
    return 0;
}

/* Micro-batches of 1, 2, 4, ... samples, and of all that a rank has. */
static int list_batches(struct suggest_search *s, int batch)
{
    const int world = s->request->world_size,
              most = s->model->layer_count < PIPE_PARTS ? s->model->layer_count : PIPE_PARTS;
    for (int stages = 1; stages <= most && stages <= world; stages++) {
        const int data = world / stages;
        const int64_t all = (s->request->global_batch + data - 1) / data; /* samples of one rank in a step */
        const bool power = (batch & (batch - 1)) == 0;
        struct plan_options o = *s->base;
        if (world % stages || batch > all || (!power && batch != all) || data > s->request->global_batch)
            continue;
        if ((all + batch - 1) / batch > INT32_MAX)
            continue;
        o.rank = o.world_size = 0;
        o.shape.B = batch;
        o.micro_batches = (int)((all + batch - 1) / batch);
        if (list_strategies(s, o, stages, data) < 0)
            return -1;
    }
    return 0;
}

/* Whether a rank of some mesh may have micro-batches of this size. */
static bool is_tried(const struct suggest_search *s, int64_t batch)
{
    const int world = s->request->world_size;
    if (batch <= s->request->global_batch && (batch & (batch - 1)) == 0)
        return true;
    for (int data = 1; data <= world; data++)
        if (world % data == 0 && (s->request->global_batch + data - 1) / data == batch)
            return true;
    return false;
}

static int list_meshes(struct suggest_search *s)
{
    enum { BATCH_MOST = 1 << 16 };
    const int64_t most = s->request->global_batch < BATCH_MOST ? s->request->global_batch : BATCH_MOST;
    for (int batch = 1; batch <= most; batch++) {
        if (!is_tried(s, batch))
            continue;
        if (find_seconds(s, batch) < 0 || list_batches(s, batch) < 0)
            return -1;
    }
    return 0;
}

/* ---- planning ---- */

static int by_bound(const void *left, const void *right)
{
    const struct mesh_candidate *a = left, *b = right;
    if (a->least_s != b->least_s)
        return a->least_s < b->least_s ? -1 : 1;
    return a->number - b->number;
}

/* Keeps the fastest; of equal ones the first that was listed. */
static void keep_best(struct suggest_result *r, const struct suggestion *found, const int *number,
                      int *numbers)
{
    int at = r->count < SUGGESTIONS ? r->count : SUGGESTIONS;
    while (at > 0 && (found->step_s < r->best[at - 1].step_s ||
                      (found->step_s == r->best[at - 1].step_s && *number < numbers[at - 1]))) {
        if (at < SUGGESTIONS) {
            r->best[at] = r->best[at - 1];
            numbers[at] = numbers[at - 1];
        }
        at--;
    }
    if (at == SUGGESTIONS)
        return;
    r->best[at] = *found;
    numbers[at] = *number;
    r->count += r->count < SUGGESTIONS;
}

/* Plans, proves and predicts a mesh. 0: it fits; 1: it does not, or cannot be planned; -1: no memory. */
static int try_mesh(struct suggest_search *s, const struct mesh_candidate *candidate,
                    struct suggestion *found)
{
    const struct plan_options *o = &candidate->options;
    const struct plan_cut cut = {.stages = o->mesh.side[SIDE_PIPELINE], .chunks = o->chunks};
    struct plan_stages stages = {0};
    scope_free struct plan_stages_cost *cost = mem_calloc(1, sizeof *cost);
    struct muster_error err = {0};
    int failed = cost ? plan_cut_model(s->model, o, &cut, &err)
                      : error_set(&err, MUSTER_E_NOMEM, "no memory to predict a mesh");
    failed = failed || plan_stages_build(s->model, o, &stages, &err) < 0 ||
             plan_stages_run(s->model, &stages, s->request->rates, cost, &err) < 0;
    *found = (struct suggestion){.options = *o};
    for (int stage = 0; !failed && stage < stages.count; stage++) {
        const int64_t bytes = plan_bytes_of(&stages.plans[stage], s->request->counted);
        found->bytes = bytes > found->bytes ? bytes : found->bytes;
        found->node_bytes += plan_node_bytes(&stages.plans[stage], s->request->rates);
    }
    plan_stages_free(&stages);
    if (failed && err.code == MUSTER_E_NOMEM) {
        (void)error_set(s->err, err.code, "%s", err.text);
        return -1;
    }
    if (failed) {
        s->result->stuck += err.code == MUSTER_E_STATE;
        s->refused = s->refused.code ? s->refused : err;
        return 1;
    }
    if (candidate->least_bytes > found->bytes || candidate->least_s > cost->step_s * (1 + 1e-9)) {
        s->result->above_bound++;
        return 1;
    }
    found->step_s = cost->step_s;
    found->idle = cost->idle;
    s->result->planned++;
    if (!s->smallest || found->bytes < s->smallest)
        s->smallest = found->bytes;
    return s->request->memory && found->bytes > s->request->memory;
}

static int refuse_all(struct suggest_search *s)
{
    char limit[32], needed[32], by_host[96] = "";
    const struct mesh_candidate *least = NULL;
    const struct suggest_request *q = s->request;
    struct suggestion found;
    for (int i = 0; i < s->count; i++)
        if (!least || s->list[i].least_bytes < least->least_bytes)
            least = &s->list[i];
    if (least && try_mesh(s, least, &found) < 0)
        return -1;
    if (!s->smallest)
        return error_set(
            s->err, MUSTER_E_INVALID,
            "no mesh of %d ranks takes a batch of %lld samples with this model and these settings%s%s",
            s->request->world_size, (long long)s->request->global_batch,
            s->refused.code ? "; the fastest: " : "", s->refused.text);
    const int64_t smallest = s->smallest;
    if (q->counted == PLAN_MEMORY_DEVICE && least->options.optimizer_memory == MEMORY_DEVICE) {
        struct mesh_candidate beside = *least;
        beside.options.optimizer_memory = MEMORY_HOST;
        beside.least_bytes = 0;
        const int result = try_mesh(s, &beside, &found);
        if (result < 0)
            return -1;
        if (result == 0)
            (void)snprintf(by_host, sizeof by_host,
                           ", or training.optimizer_memory: host, with which a mesh needs %s",
                           text_format_bytes(needed, sizeof needed, found.bytes)); /* fits */
    }
    return error_set(
        s->err, MUSTER_E_LIMIT,
        "none of %d meshes of %d ranks fits into %s a rank; the smallest that was planned needs %s: use "
        "more ranks, or shorter sequences%s",
        s->count, q->world_size, text_format_bytes(limit, sizeof limit, q->memory),
        text_format_bytes(needed, sizeof needed, smallest), by_host);
}

static int plan_in_order(struct suggest_search *s)
{
    int numbers[SUGGESTIONS];
    struct suggest_result *r = s->result;
    const struct suggest_request *q = s->request;
    if (s->count)
        qsort(s->list, (size_t)s->count, sizeof *s->list, by_bound);
    for (int i = 0; i < s->count; i++) {
        const struct mesh_candidate *candidate = &s->list[i];
        struct suggestion found;
        const bool full = r->count == SUGGESTIONS;
        if (!q->exhaustive && full && candidate->least_s > r->best[SUGGESTIONS - 1].step_s)
            break;
        if (!q->exhaustive && q->memory && candidate->least_bytes > q->memory)
            continue;
        const int result = try_mesh(s, candidate, &found);
        if (result < 0)
            return -1;
        if (result == 0)
            keep_best(r, &found, &candidate->number, numbers);
    }
    return r->count ? 0 : refuse_all(s);
}

int plan_suggest(struct model *model, const struct plan_options *base, const struct suggest_request *request,
                 struct suggest_result *result, struct muster_error *err)
{
    const size_t layers = (size_t)model->layer_count;
    scope_free double *seconds = mem_calloc(3 * layers, sizeof *seconds);
    scope_free uint64_t *seen = mem_calloc((size_t)model->param_count, sizeof *seen);
    *result = (struct suggest_result){0};
    if (!seconds || !seen)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the times of %zu layers", layers);
    struct suggest_search s = {.model = model,
                               .base = base,
                               .request = request,
                               .seconds = {0, seconds, seconds + layers, seconds + 2 * layers},
                               .seen = seen,
                               .result = result,
                               .err = err};
    int failed = list_meshes(&s);
    result->meshes = s.count;
    failed = failed || plan_in_order(&s) < 0 ? -1 : 0;
    mem_free(s.list);
    return failed;
}
