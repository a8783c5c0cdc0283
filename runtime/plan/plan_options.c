/* plan_options.c - refuses options that no plan can have; the error names the setting to change. */
#include "proto/base/error.h"
#include "runtime/plan/plan_internal.h"

enum { PREFETCH_LIMIT = 64, MICRO_BATCH_LIMIT = 1 << 16, CALL_LIMIT = 1 << 18, TOKEN_LIMIT = 1 << 30 };

/* A table that was read from a file belongs to a number of stages, parts and micro-batches. */
static int check_table(const struct model *model, const struct plan_options *o, struct muster_error *err)
{
    const struct pipe_table *t = o->table;
    const int stages = o->mesh.side[SIDE_PIPELINE];
    if (!t || t->forward_only)
        return error_set(err, MUSTER_E_INVALID, "schedule table of a pipeline, and no table");
    if (t->ranks != stages || t->parts != model->parts)
        return error_set(
            err, MUSTER_E_INVALID,
            "the schedule has %d ranks and %d parts, but the mesh %d stages and model %s %d parts: "
            "set mesh.pipeline and mesh.chunks, or use another schedule",
            t->ranks, t->parts, stages, model->name, model->parts);
    if (t->micros != o->micro_batches && o->train)
        return error_set(err, MUSTER_E_INVALID,
                         "the schedule has %d micro-batches, and a step has %d: set training.global_batch or "
                         "training.micro_batch, or use another schedule",
                         t->micros, o->micro_batches);
    if (pipe_is_split(t))
        return error_set(
            err, MUSTER_E_UNSUPPORTED,
            "the schedule splits backwards into inputs (I) and weights (W), which would cost 1.5 "
            "of one: use a schedule with whole backwards (B)");
    if (!pipe_is_loop(t))
        return error_set(err, MUSTER_E_UNSUPPORTED,
                         "the schedule places the parts in another way than part g on rank g %% %d: use a "
                         "schedule that goes round the ranks",
                         stages);
    return 0;
}

static int check_parts(const struct model *model, const struct plan_options *o, struct muster_error *err)
{
    const int stages = o->mesh.side[SIDE_PIPELINE], chunks = o->chunks > 1 ? o->chunks : 1;
    if ((unsigned)o->schedule >= PIPE_SCHEDULE_COUNT)
        return error_set(err, MUSTER_E_INVALID, "schedule %d of a pipeline is unknown", (int)o->schedule);
    if ((int64_t)stages * chunks > PIPE_PARTS)
        return error_set(err, MUSTER_E_LIMIT, "%d pipeline stages of %d parts; use at most %d parts", stages,
                         chunks, PIPE_PARTS);
    if (chunks > 1 && o->schedule != PIPE_INTERLEAVED && o->schedule != PIPE_TABLE)
        return error_set(err, MUSTER_E_INVALID, "%d parts on each stage need schedule interleaved, not %s",
                         chunks, pipe_schedule_name(o->schedule));
    if (stages * chunks != model->parts && chunks == 1)
        return error_set(err, MUSTER_E_INVALID, "the mesh has %d pipeline stages but model %s is cut into %d",
                         stages, model->name, model->parts);
    if (stages * chunks != model->parts)
        return error_set(err, MUSTER_E_INVALID,
                         "the mesh has %d pipeline stages of %d parts but model %s is cut into %d", stages,
                         chunks, model->name, model->parts);
    return o->schedule == PIPE_TABLE ? check_table(model, o, err) : 0;
}

static int check_mesh(const struct model *model, const struct plan_options *o, struct muster_error *err)
{
    const struct mesh mesh = o->mesh;
    const int ranks = mesh_size(mesh), world = o->world_size ? o->world_size : ranks;
    const int stages = mesh.side[SIDE_PIPELINE], replicas = mesh.side[SIDE_REPLICATE],
              shards = mesh.side[SIDE_SHARD];
    char text[MESH_TEXT];
    if (ranks == 0)
        return error_set(err, MUSTER_E_INVALID,
                         "mesh %d x %d x %d (pipeline, replicate, shard): every side is at least 1", stages,
                         replicas, shards);
    for (int side = SIDE_SHARD + 1; side < SIDE_COUNT; side++)
        if (mesh.side[side] > 1)
            return error_set(err, MUSTER_E_UNSUPPORTED, "mesh: %s %d, and no plan uses this side; use 1",
                             mesh_side_name((enum mesh_side)side), mesh.side[side]);
    if (ranks != world)
        return error_set(err, MUSTER_E_INVALID, "the mesh (%s) has %d ranks but the world has %d",
                         mesh_text(mesh, text, sizeof text), ranks, world);
    if (o->rank < 0 || o->rank >= world)
        return error_set(err, MUSTER_E_INVALID, "rank %d is not in a world of %d", o->rank, world);
    if (check_parts(model, o, err) < 0)
        return -1;
    if (replicas > 1 && shards > 1 && o->strategy != STRATEGY_HYBRID_SHARD)
        return error_set(err, MUSTER_E_INVALID,
                         "mesh with replicate %d and shard %d needs HYBRID_SHARD, not %s", replicas, shards,
                         strategy_name(o->strategy));
    if (replicas > 1 && o->strategy != STRATEGY_HYBRID_SHARD && o->strategy != STRATEGY_NO_SHARD)
        return error_set(err, MUSTER_E_INVALID,
                         "%s shards over `shard`, which is 1 while replicate is %d; swap them",
                         strategy_name(o->strategy), replicas);
    return 0;
}

static int check_shape(const struct model *model, const struct plan_options *o, struct muster_error *err)
{
    if (o->shape.B < 1 || o->shape.T < 1 || (int64_t)o->shape.B * o->shape.T > TOKEN_LIMIT)
        return error_set(err, MUSTER_E_INVALID,
                         "micro-batch of %d x %d tokens: both are at least 1 and their product at most %d",
                         o->shape.B, o->shape.T, TOKEN_LIMIT);
    if (model->max_positions > 0 && o->shape.T > model->max_positions)
        return error_set(err, MUSTER_E_INVALID, "sequence length %d is above the %d positions of model %s",
                         o->shape.T, model->max_positions, model->name);
    if (o->micro_batches < 1 || o->micro_batches > MICRO_BATCH_LIMIT)
        return error_set(err, MUSTER_E_INVALID, "%d micro-batches in a step; use 1 to %d", o->micro_batches,
                         MICRO_BATCH_LIMIT);
    if ((int64_t)o->micro_batches * model->layer_count > CALL_LIMIT)
        return error_set(
            err, MUSTER_E_LIMIT,
            "%d micro-batches of %d layers are more than %d layer calls in a step; use larger micro-batches",
            o->micro_batches, model->layer_count, CALL_LIMIT);
    return 0;
}

static int check_optimizer(const struct optimizer_options *o, struct muster_error *err)
{
    if ((unsigned)o->kind >= OPTIMIZER_COUNT)
        return error_set(err, MUSTER_E_INVALID, "optimizer %d is unknown", (int)o->kind);
    if (o->kind != OPTIMIZER_SGD && (o->momentum != 0 || o->dampening != 0 || o->nesterov))
        return error_set(err, MUSTER_E_INVALID,
                         "momentum, dampening and nesterov are SGD's; Adam's are beta1 and beta2");
    if (!(o->momentum >= 0 && o->momentum < 1))
        return error_set(err, MUSTER_E_INVALID, "SGD's momentum is %g; use 0 to below 1", o->momentum);
    if (o->nesterov && (o->momentum == 0 || o->dampening != 0))
        return error_set(err, MUSTER_E_INVALID,
                         "nesterov needs a momentum and no dampening; they are %g and %g", o->momentum,
                         o->dampening);
    return 0;
}

bool plan_is_narrow(enum dtype dtype)
{
    return dtype == DTYPE_BF16 || dtype == DTYPE_F16;
}

/* Layers read gathered parameters as they are, in the type of the kernels' values. */
static int check_value_type(const struct plan_options *o, struct muster_error *err)
{
    const bool narrow = plan_is_narrow(o->value_dtype);
    const enum dtype value = narrow ? o->value_dtype : o->dtype;
    if (narrow && o->param_dtype != o->value_dtype)
        return error_set(
            err, MUSTER_E_UNSUPPORTED,
            "values of %s with parameters of %s: layers read gathered parameters as they are; use "
            "training.values: fp32, or training.dtype: %s",
            dtype_name(value), dtype_name(o->param_dtype), o->value_dtype == DTYPE_F16 ? "fp16" : "bf16");
    if (o->kernels && o->kernels->value != value)
        return error_set(err, MUSTER_E_UNSUPPORTED, "values of %s: kernels %s compute in %s",
                         dtype_name(value), o->kernels->name, dtype_name(o->kernels->value));
    return 0;
}

static int check_dtypes(const struct plan_options *o, struct muster_error *err)
{
    if (o->dtype != DTYPE_F32 && o->dtype != DTYPE_F64)
        return error_set(err, MUSTER_E_UNSUPPORTED, "parameters of dtype %d; plans are for f32 and f64",
                         (int)o->dtype);
    const enum dtype moved[] = {o->param_dtype, o->reduce_dtype};
    for (int i = 0; i < 2; i++)
        if (!plan_is_narrow(moved[i]) && moved[i] != DTYPE_F32 && moved[i] != o->dtype)
            return error_set(err, MUSTER_E_UNSUPPORTED, "%s of dtype %s; use bf16, f16 or %s",
                             i ? "reductions" : "parameters", dtype_name(moved[i]), dtype_name(o->dtype));
    return check_value_type(o, err);
}

static int check_compression(const struct plan_options *o, struct muster_error *err)
{
    const struct compression_options *c = &o->compression;
    if (c->kind == COMPRESSION_NONE)
        return 0;
    if ((unsigned)c->kind >= COMPRESSION_COUNT)
        return error_set(err, MUSTER_E_INVALID, "compression %d is unknown", (int)c->kind);
    if (c->kind == COMPRESSION_TOPK && !(c->ratio > 0 && c->ratio <= 1))
        return error_set(err, MUSTER_E_INVALID, "training.compression_ratio %g; use above 0 to 1", c->ratio);
    if (c->kind == COMPRESSION_POWERSGD && c->rank < 1)
        return error_set(err, MUSTER_E_INVALID, "training.compression_rank %d; use 1 or more", c->rank);
    if (c->least < 0 || c->start < 0)
        return error_set(err, MUSTER_E_INVALID, "training.compression_%s is %lld; use 0 or more",
                         c->least < 0 ? "least" : "start", (long long)(c->least < 0 ? c->least : c->start));
    if (o->strategy != STRATEGY_NO_SHARD && o->strategy != STRATEGY_HYBRID_SHARD)
        return error_set(
            err, MUSTER_E_INVALID,
            "training.compression needs replicas: %s has none; use training.strategy: NO_SHARD or "
            "HYBRID_SHARD, or training.compression: none",
            strategy_name(o->strategy));
    if (c->kind == COMPRESSION_POWERSGD && plan_is_narrow(o->reduce_dtype))
        return error_set(
            err, MUSTER_E_UNSUPPORTED,
            "training.compression powersgd with training.reduce_dtype %s: its factors are of %s; use "
            "training.reduce_dtype: fp32, training.compression: topk, or training.compression: none",
            o->reduce_dtype == DTYPE_F16 ? "fp16" : "bf16", dtype_name(o->dtype));
    return 0;
}

static int check_recompute(const struct recompute_options *o, struct muster_error *err)
{
    if ((unsigned)o->kind >= RECOMPUTE_COUNT)
        return error_set(err, MUSTER_E_INVALID, "recomputation %d is unknown", (int)o->kind);
    if ((o->kind == RECOMPUTE_EVERY) != (o->every >= 1))
        return error_set(err, MUSTER_E_INVALID,
                         "every %d-th layer is recomputed under %s; use 1 or more with `every`, else 0",
                         o->every, recompute_name(o->kind));
    return 0;
}

static int check_embedding(const struct plan_options *o, struct muster_error *err)
{
    if ((unsigned)o->embedding_gradient >= EMBEDDING_GRADIENT_COUNT)
        return error_set(err, MUSTER_E_INVALID, "embedding gradient %d is unknown",
                         (int)o->embedding_gradient);
    if (o->embedding_gradient != EMBEDDING_ROWS)
        return 0;
    if (o->mesh.side[SIDE_PIPELINE] > 1 || o->chunks > 1 || o->compression.kind != COMPRESSION_NONE)
        return error_set(
            err, MUSTER_E_UNSUPPORTED,
            "gradients of embeddings as rows with %d pipeline stages%s; they need one stage and no "
            "compression: use auto or dense",
            o->mesh.side[SIDE_PIPELINE], o->compression.kind == COMPRESSION_NONE ? "" : " and compression");
    if (o->kernels && !o->kernels->rows_add)
        return error_set(err, MUSTER_E_UNSUPPORTED,
                         "gradients of embeddings as rows: kernels %s cannot add them; use auto or dense",
                         o->kernels->name);
    return 0;
}

int plan_check_options(const struct model *model, const struct plan_options *o, struct muster_error *err)
{
    if ((unsigned)o->strategy >= STRATEGY_COUNT)
        return error_set(err, MUSTER_E_INVALID, "strategy %d is unknown", (int)o->strategy);
    if (check_mesh(model, o, err) < 0 || check_shape(model, o, err) < 0)
        return -1;
    if (check_dtypes(o, err) < 0)
        return -1;
    if (o->prefetch_forward < 0 || o->prefetch_forward > PREFETCH_LIMIT || o->prefetch_backward < 0 ||
        o->prefetch_backward > PREFETCH_LIMIT)
        return error_set(err, MUSTER_E_INVALID, "prefetch of %d forward and %d backward; use 0 to %d",
                         o->prefetch_forward, o->prefetch_backward, PREFETCH_LIMIT);
    if (o->group_bytes < 0 || o->keep_whole_bytes < 0)
        return error_set(err, MUSTER_E_INVALID, "%s is %lld; use 0 for the default or a size",
                         o->group_bytes < 0 ? "group_bytes" : "keep_whole_bytes",
                         (long long)(o->group_bytes < 0 ? o->group_bytes : o->keep_whole_bytes));
    if (check_optimizer(&o->optimizer, err) < 0 || check_recompute(&o->recompute, err) < 0)
        return -1;
    if (!(o->average_decay >= 0 && o->average_decay < 1))
        return error_set(err, MUSTER_E_INVALID,
                         "the decay of averaged parameters is %g; use 0 for none, or above 0 to below 1",
                         o->average_decay);
    if (check_embedding(o, err) < 0)
        return -1;
    if (o->optimizer_memory != MEMORY_DEVICE && o->optimizer_memory != MEMORY_HOST)
        return error_set(err, MUSTER_E_INVALID, "optimizer state in memory class %d; use device or host",
                         (int)o->optimizer_memory);
    return check_compression(o, err);
}
