/* train_plan.c - see train_plan.h. */
#include "runtime/config/train_plan.h"

#include <limits.h>
#include <string.h>
#include <strings.h>

#include "proto/base/buffer.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "runtime/plan/plan_cut.h"

static struct plan_options plan_of(const struct train_config *c)
{
    return (struct plan_options){
        .strategy = (enum strategy)c->strategy,
        .shape = {(int)c->micro_batch, (int)c->sequence_length},
        .dtype = DTYPE_F32,
        .param_dtype = train_config_dtype(c),
        .value_dtype = train_config_values(c),
        .reduce_dtype = train_config_reduce_dtype(c),
        .prefetch_forward = (int)c->prefetch,
        .prefetch_backward = (int)c->prefetch,
        .group_bytes = c->group_bytes,
        .keep_whole_bytes = c->keep_whole_below,
        .embedding_gradient = (enum embedding_gradient)c->embedding_gradient,
        .compression = {.kind = (enum compression)c->compression,
                        .ratio = c->compression == COMPRESSION_TOPK ? c->compression_ratio : 0,
                        .rank = c->compression == COMPRESSION_POWERSGD ? (int)c->compression_rank : 0,
                        .least = c->compression ? c->compression_least : 0,
                        .start = c->compression ? c->compression_start : 0,
                        .forgets = c->compression && !c->compression_feedback},
        .recompute = {(enum recompute)c->recompute,
                      c->recompute == RECOMPUTE_EVERY ? (int)c->recompute_every : 0},
        .optimizer_memory = c->optimizer_memory ? MEMORY_HOST : MEMORY_DEVICE,
        .average_decay = c->ema_decay,
        .clip = c->clip_norm > 0,
        .check = train_config_checks(c),
        .train = true,
        .optimizer = {.kind = (enum optimizer)c->optimizer,
                      .momentum = c->momentum,
                      .dampening = c->dampening,
                      .nesterov = c->nesterov},
        .kernels = kernels_cpu_values(train_config_values(c)),
    };
}

static bool is_word(char *const *list, const char *word)
{
    return list && list[0] && !list[1] && !strcmp(list[0], word);
}

static bool makes_parts(const char *const *names, int parts)
{
    int named = 1;
    for (int i = 0; names && names[i]; i++)
        named++;
    return names && named == parts;
}

int train_plan_cut(const struct train_config *c, const struct plan_options *options, struct train_cut *found,
                   struct model *model, struct muster_error *err)
{
    const bool even = is_word(c->mesh_cut, "even"), chosen = !c->mesh_cut || is_word(c->mesh_cut, "auto");
    const int stages = (int)c->mesh_pipeline, parts = stages * (options->chunks > 1 ? options->chunks : 1);
    const bool kept = chosen && makes_parts(found->kept, parts);
    found->by = !chosen || stages == 1 ? TRAIN_CUT_SET
                : kept                 ? TRAIN_CUT_KEPT
                : found->seconds       ? TRAIN_CUT_MEASURED
                                       : TRAIN_CUT_COUNTED;
    const struct plan_cut cut = {.stages = stages,
                                 .chunks = options->chunks,
                                 .even = even,
                                 .names = kept             ? found->kept
                                          : chosen || even ? NULL
                                                           : (const char *const *)c->mesh_cut,
                                 .seconds = found->seconds};
    return plan_cut_model(model, options, &cut, err);
}

/* ---- mesh.schedule ---- */

/* PIPE_TABLE: it names none. PyTorch's spellings count, too. */
static enum pipe_schedule schedule_named(const char *text)
{
    int schedule = 0;
    while (schedule < PIPE_TABLE && strcasecmp(text, pipe_schedule_name((enum pipe_schedule)schedule)) != 0)
        schedule++;
    return strcasecmp(text, "Interleaved1F1B") ? (enum pipe_schedule)schedule : PIPE_INTERLEAVED;
}

static int refuse_chunks(const struct train_config *c, struct muster_error *err)
{
    if (c->mesh_pipeline == 1)
        return error_set(
            err, MUSTER_E_INVALID,
            "mesh.chunks %lld with mesh.pipeline 1: one stage has the whole model; use mesh.pipeline 2 "
            "or more",
            (long long)c->mesh_chunks);
    return error_set(err, MUSTER_E_INVALID,
                     "mesh.chunks %lld needs mesh.schedule: interleaved, not %s; chunks of a batch are its "
                     "micro-batches, training.micro_batch",
                     (long long)c->mesh_chunks, c->mesh_schedule);
}

/* A table for other stages or parts than those of the settings. */
static int compare_table(const struct train_config *c, const struct pipe_table *table,
                         struct muster_error *err)
{
    if (table->ranks != c->mesh_pipeline)
        return error_set(err, MUSTER_E_INVALID, "schedule %s has %d ranks, and mesh.pipeline is %lld",
                         c->mesh_schedule, table->ranks, (long long)c->mesh_pipeline);
    if (table->parts % table->ranks)
        return error_set(err, MUSTER_E_INVALID,
                         "schedule %s has %d parts, which is no multiple of its %d ranks", c->mesh_schedule,
                         table->parts, table->ranks);
    return 0;
}

static int read_table(const char *path, int parts, int layers, struct pipe_table *table,
                      struct muster_error *err)
{
    enum { FILE_LIMIT = 64 << 20 };
    scope_buffer text = {0};
    if (io_read_file(path, FILE_LIMIT, &text, err) < 0)
        return -1;
    return pipe_table_read(path, text.data ? text.data : "", parts, layers, table, err);
}

static int take_table(const struct train_config *c, int layers, struct pipe_table *table,
                      struct muster_error *err)
{
    const int64_t parts = c->mesh_chunks * c->mesh_pipeline;
    const int known = io_exists(c->mesh_schedule, NULL);
    if (parts > PIPE_PARTS)
        return error_set(
            err, MUSTER_E_LIMIT, "mesh.chunks %lld x mesh.pipeline %lld are %lld parts; use at most %d",
            (long long)c->mesh_chunks, (long long)c->mesh_pipeline, (long long)parts, PIPE_PARTS);
    if (known == 0)
        return error_set(
            err, MUSTER_E_INVALID,
            "mesh.schedule: '%s' is none of 1f1b, gpipe and interleaved, and there is no such file",
            c->mesh_schedule);
    return read_table(c->mesh_schedule, (int)parts, layers, table, err) < 0 ? -1
                                                                            : compare_table(c, table, err);
}

int train_plan_prove_schedule(const char *path, char *text, size_t size, struct muster_error *err)
{
    struct pipe_table table = {0};
    if (read_table(path, 0, 0, &table, err) < 0)
        return -1;
    (void)pipe_table_text(&table, text, size);
    pipe_table_free(&table);
    return 0;
}

static int choose_schedule(const struct train_config *c, int layers, struct plan_options *options,
                           struct pipe_table *table, struct muster_error *err)
{
    options->schedule = schedule_named(c->mesh_schedule);
    const bool several = options->schedule >= PIPE_INTERLEAVED && c->mesh_pipeline > 1;
    if (c->mesh_chunks > 1 && !several)
        return refuse_chunks(c, err);
    options->chunks = c->mesh_chunks ? (int)c->mesh_chunks : several ? 2 : 1;
    if (options->schedule != PIPE_TABLE)
        return 0;
    if (take_table(c, layers, table, err) < 0)
        return -1;
    options->chunks = table->parts / table->ranks;
    options->table = table;
    return 0;
}

int train_plan_options(const struct train_config *c, const struct train_place *place, struct train_cut *cut,
                       struct model *model, struct plan_options *plan, struct pipe_table *table,
                       struct muster_error *err)
{
    struct plan_options options = plan_of(c);
    options.rank = place->rank;
    options.world_size = place->world_size;
    if (model->max_positions && c->sequence_length > model->max_positions)
        return error_set(err, MUSTER_E_INVALID,
                         "training.sequence_length %lld is above the %d positions of model %s",
                         (long long)c->sequence_length, model->max_positions, model->name);
    if (param_patterns_freeze(model, c->frozen, err) < 0)
        return error_wrap(err, "training.frozen");
    if (param_patterns_decay(model, (enum param_decay)c->decay, c->no_decay, err) < 0)
        return error_wrap(err, "training.no_decay");
    const struct mesh_wish wish = {options.strategy, c->mesh_pipeline, c->replicas, place->world_size,
                                   place->local_size};
    if (choose_schedule(c, model->layer_count, &options, table, err) < 0 ||
        train_plan_cut(c, &options, cut, model, err) < 0 || mesh_choose(&wish, &options.mesh, err) < 0)
        return -1;
    const struct train_batch batch = train_config_batch(c, place->rank, place->world_size);
    const int64_t micro_batches = train_batch_micro_batches(&batch);
    options.micro_batches = micro_batches > INT_MAX ? INT_MAX : (int)micro_batches; /* refused by the plan */
    options.chunk_bytes = c->head_chunk;
    options.state_copies = c->memory_copies && place->world_size > 1 ? TRAIN_STATE_COPIES : 0;
    *plan = options;
    return 0;
}
