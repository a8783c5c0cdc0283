/* api_trainer.c - muster_trainer.h: trainers are opened and closed, plans printed, values set. */
#include "runtime/api/api_trainer.h"

#include <math.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "proto/processor/processor.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/hook.h"
#include "runtime/config/train_settings.h"
#include "runtime/device/host_threads.h"
#include "runtime/model/program_internal.h"
#include "runtime/world/agree.h"
#include "runtime/world/world.h"

/* ---- the model of one trainer ---- */

/* The bounds of the numbers of each input. */
static void find_bounds(struct muster_trainer *t)
{
    for (int l = 0; l < t->model.layer_count; l++) {
        const struct program *p = t->model.layers[l].config;
        for (int s = 0; s < p->step_count; s++) {
            const struct operation_settings *settings = &p->steps[s].settings;
            int64_t *vocabulary = &t->vocabulary[settings->input];
            if (!p->steps[s].op->batch)
                continue;
            t->compared[settings->input] |= p->steps[s].op->loss;
            if (p->steps[s].op->loss && settings->classes && settings->vocabulary <= API_CLASSES) {
                t->classes = settings->vocabulary;
                t->labels = settings->input;
                t->classes_of_samples = p->values[p->steps[s].in[0]].sample;
            }
            if (!*vocabulary || settings->vocabulary < *vocabulary)
                *vocabulary = settings->vocabulary;
        }
    }
}

int64_t api_numbers(const struct muster_trainer *t, int input)
{
    const struct batch_input *desc = &t->model.inputs[input];
    return desc->lengths  ? (int64_t)t->plan.shape.T + 1
           : desc->places ? t->plan.shape.T
                          : t->vocabulary[input];
}

static int own_model(struct muster_trainer *t, const struct model *model, struct muster_error *err)
{
    size_t params = (size_t)model->param_count * sizeof *model->params,
           layers = (size_t)model->layer_count * sizeof *model->layers;
    t->model = *model;
    t->model.params = mem_calloc(params, 1);
    t->model.layers = mem_calloc(layers, 1);
    if (!t->model.params || !t->model.layers)
        return error_set(err, MUSTER_E_NOMEM, "no memory for model %s", model->name);
    memcpy(t->model.params, model->params, params);
    memcpy(t->model.layers, model->layers, layers);
    find_bounds(t);
    return 0;
}

int api_read(struct muster_trainer *t, struct muster_model *model, const char *const *settings,
             struct muster_error *err)
{
    const struct model *complete = api_model_complete(model, err);
    if (!complete)
        return -1;
    t->shared = api_model_retain(model);
    return own_model(t, complete, err) < 0 ? -1 : train_settings_read(settings, "training", &t->config, err);
}

int api_make_plan(struct muster_trainer *t, const struct train_place *place, struct muster_error *err)
{
    if (train_plan_options(&t->config, place, &t->cut.found, &t->model, &t->plan, &t->table, err) < 0)
        return -1;
    t->plan.checkpoint_bytes = api_staging_bytes(t);
    return 0;
}

/* Collective, with a world. */
static int look_for_cut(struct muster_trainer *t, struct muster_world *world, struct muster_error *err)
{
    scope_buffer notes = {0};
    if (!t->rank)
        api_folder_cut(t->config.checkpoint_dir, &notes);
    return api_cut_look(t, world, &notes, err);
}

int api_prepare(struct muster_trainer *t, struct muster_model *model, const char *const *settings,
                const struct train_place *place, struct muster_error *err)
{
    if (api_read(t, model, settings, err) < 0 || (api_cut_looks(t) && look_for_cut(t, NULL, err) < 0))
        return -1;
    return api_make_plan(t, place, err);
}

void api_release(struct muster_trainer *t)
{
    api_ready_end(t);
    recover_copies_destroy(t->copies);
    muster_kept_free(t->earlier);
    checkpoint_kept_free(&t->kept);
    mem_free(take_pointer(&t->nccl_lines));
    hook_destroy(t->hook); /* no checkpoint is on its way */
    trainer_destroy(t->trainer);
    train_config_free(&t->config);
    pipe_table_free(&t->table);
    api_cut_free(&t->cut);
    mem_free(t->model.params);
    mem_free(t->model.layers);
    mem_free(t->folder);
    mem_free(t->class_rows);
    mem_free(t->opened);
    mem_free(t->drawn);
    train_settings_free(t->notes);
    muster_model_free(t->shared);
}

struct train_batch api_batch(const struct muster_trainer *t)
{
    return train_config_batch(&t->config, t->rank, t->world_size);
}

int64_t api_samples(const struct muster_trainer *t)
{
    const struct train_batch batch = api_batch(t);
    return train_batch_samples(&batch);
}

int64_t muster_trainer_row(const struct muster_trainer *t, int64_t sample)
{
    const struct train_batch batch = api_batch(t);
    return sample >= 0 && sample < train_batch_samples(&batch) ? train_batch_row(&batch, sample) : -1;
}

/* ---- opening and closing ---- */

enum kernels_products api_choose_products(struct muster_trainer *t)
{
    static const enum kernels_products by[] = {KERNELS_AUTO, KERNELS_OPENBLAS,
                                               KERNELS_ONEDNN}; /* TRAIN_PRODUCTS_... */
    const struct train_config *c = &t->config;
    struct muster_error err = {0};
    if (t->plan.value_dtype != DTYPE_F32)
        return KERNELS_OPENBLAS; /* none of them multiplies values of 16 bits */
    if (c->matmul_precision == TRAIN_MATMUL_BF16)
        return KERNELS_BF16;
    if (train_config_dtype(c) == DTYPE_F32 || !t->found.device.ops->host_memory)
        return by[c->products];
    if (train_config_dtype(c) == DTYPE_F16)
        t->products_not = "products of fp16 are for GPUs alone";
    else if (c->matmul_precision != TRAIN_MATMUL_AUTO)
        t->products_not = "training.matmul_precision is set";
    else if (c->products == TRAIN_PRODUCTS_OPENBLAS)
        t->products_not = "training.products is openblas";
    else if (kernels_cpu_by(KERNELS_BF16, &err))
        return KERNELS_BF16;
    else
        t->products_not = err.code == MUSTER_E_NOT_FOUND ? "libdnnl is missing or of an unknown version"
                          : err.code == MUSTER_E_STATE
                              ? "ONEDNN_MAX_CPU_ISA or DNNL_MAX_CPU_ISA bounds libdnnl"
                              : "it has neither AVX512-BF16 nor AMX for libdnnl";
    return by[c->products];
}

static void advice_rates(void *trainer, struct plan_rates *rates)
{
    api_rates(trainer, rates);
}

/* Steps that can fail on this rank alone, before any rank waits for another. */
static int prepare(struct muster_trainer *t, struct muster_world *world, struct trainer_options *options,
                   char address[WORLD_ADDRESS], struct muster_error *err)
{
    const struct train_place place = {options->rank, options->world_size, options->local_world_size};
    if (api_make_plan(t, &place, err) < 0 || checkpoint_kept_make(&t->kept, err) < 0 ||
        api_open_command(t, err) < 0)
        return -1;
    if (world && world_address(world, address, err) < 0)
        return -1;
    const struct train_config *c = &t->config;
    options->plan = t->plan;
    options->address = world ? address : NULL;
    options->threads = c->threads ? (int)c->threads : host_threads(place.local_size);
    options->timeout_ns = (int64_t)(c->timeout_s * (double)NS_PER_S);
    options->memory_limit = c->memory_limit;
    options->seed = (uint64_t)c->seed;
    options->draws_late = world_has_past(world);
    options->loss_scale = train_config_loss_scale(c);
    options->stop_on_nonfinite = c->on_nonfinite == TRAIN_NONFINITE_STOP;
    options->sync_errors = c->sync_errors;
    options->graphs = c->cuda_graphs;
    options->tf32 = c->matmul_precision == TRAIN_MATMUL_TF32;
    options->cudnn = c->attention == TRAIN_ATTENTION_CUDNN;
    t->threads = options->threads;
    if (api_device_find(t, options->local_rank, &t->found, err))
        return -1;
    options->rates = advice_rates;
    options->room = api_libraries_room;
    options->context = t;
    options->products = t->products = api_choose_products(t);
    options->values = t->plan.value_dtype;
    api_ready_begin(t);
    return 0;
}

static int open_trainer(struct muster_trainer *t, struct muster_world *world, struct muster_model *model,
                        const char *const *settings, struct muster_error *err)
{
    struct muster_error local = {0};
    struct muster_error *e = err ? err : &local; /* the other ranks get it even if the caller ignores it */
    char address[WORLD_ADDRESS];
    struct trainer_options options = {.world_size = 1, .local_world_size = 1};
    if (world) {
        options.rank = muster_world_rank(world);
        options.world_size = muster_world_size(world);
        options.local_rank = muster_world_local_rank(world);
        options.local_world_size = muster_world_local_size(world);
        options.store = world_store(world);
    }
    t->rank = options.rank;
    t->world_size = options.world_size;
    int failed = api_read(t, model, settings, e);
    if (!failed && api_cut_looks(t) &&
        (muster_world_agree(world, 0, e) < 0 || look_for_cut(t, world, e) < 0)) /* all ranks look, or none */
        return -1;
    failed = failed || prepare(t, world, &options, address, e);
    if (muster_world_agree(world, failed, e) < 0 || api_device_choose(t, world, &options, e) < 0)
        return -1;
    api_nccl_environment(t, &options);
    t->local_size = options.local_world_size;
    if (world)
        world_busy(world); /* until muster_trainer_stay */
    t->trainer = trainer_create(&t->model, &options, e);
    if (t->trainer && api_copies_open(t, e) == 0)
        return 0;
    if (world)
        world_ready(world);
    return -1;
}

int api_begin(struct muster_trainer *t, struct muster_error *err)
{
    const struct plateau_rule plateau = train_config_plateau(&t->config);
    evaluation_begin(&t->evaluation);
    plateau_begin(&plateau, t->config.learning_rate, &t->plateau);
    return api_note_plateau(t, err) < 0 ? -1 : api_note_cut(t, err);
}

struct muster_trainer *muster_trainer_open(struct muster_world *world, struct muster_model *model,
                                           const char *const *settings, struct muster_error *err)
{
    if (processor_check(err))
        return NULL;
    struct muster_trainer *t = mem_calloc(1, sizeof *t);
    if (!t) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a trainer");
        return NULL;
    }
    t->loaded_dtype = DTYPE_COUNT;
    t->saved_step = t->checkpoint_given_up = -1;
    t->stage = (struct api_stage){.number = -1, .found = -1};
    t->overrides = (struct api_overrides){NAN, NAN, NAN, NAN, NAN, NAN};
    t->next_targets = NAN;
    t->announced.first = -1;
    int failed = open_trainer(t, world, model, settings, err);
    if (!failed)
        failed = api_begin(t, err);
    if (failed < 0)
        muster_trainer_close(&t);
    return t;
}

void muster_trainer_close(struct muster_trainer **trainer)
{
    if (!trainer || !*trainer)
        return;
    api_stay_end(*trainer);
    api_saving_end(*trainer); /* it reads the trainer's memory */
    api_release(*trainer);
    mem_free(*trainer);
    *trainer = NULL;
}

/* ---- values ---- */

static const double most_count = 9007199254740992.; /* 2^53: counts above it are not exact in a double */

int muster_trainer_set(struct muster_trainer *t, const char *name, double value, struct muster_error *err)
{
    const struct {
        const char *name;
        double *value;
        double limit; /* the first value that is too large */
    } rows[] = {
        {"learning_rate", &t->overrides.learning_rate, HUGE_VAL},
        {"weight_decay", &t->overrides.weight_decay, HUGE_VAL},
        {"beta1", &t->overrides.beta1, 1},
        {"beta2", &t->overrides.beta2, 1},
        {"epsilon", &t->overrides.epsilon, HUGE_VAL},
        {"clip_norm", &t->overrides.clip_norm, HUGE_VAL},
    };
    if (value < 0 || isinf(value))
        return error_set(err, MUSTER_E_INVALID, "%s is %g, but must be finite and at least 0", name, value);
    if (!strcmp(name, "clip_norm") && value > 0 && !t->plan.clip)
        return error_set(
            err, MUSTER_E_INVALID,
            "clip_norm is %g, but the trainer was opened with training.clip_norm=0, and computes no "
            "norm",
            value);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].name, name)) {
            if (value >= rows[i].limit)
                return error_set(err, MUSTER_E_INVALID, "%s is %g, but must be below %g", name, value,
                                 rows[i].limit);
            *rows[i].value = value;
            return 0;
        }
    if (isnan(value) || value > most_count)
        return error_set(err, MUSTER_E_INVALID, "%s is %g, but must be a number from 0 to %g", name, value,
                         most_count);
    if (!strcmp(name, "stop"))
        t->stop = value != 0;
    else if (!strcmp(name, "checkpoint"))
        t->wants_checkpoint = value != 0;
    else if (!strcmp(name, "targets"))
        t->targets = (int64_t)value;
    else if (!strcmp(name, "next_targets"))
        t->next_targets = value;
    else
        return error_set(err, MUSTER_E_INVALID,
                         "'%s' cannot be set; there are learning_rate, weight_decay, beta1, beta2, epsilon, "
                         "clip_norm, stop, checkpoint, targets and next_targets",
                         name);
    return 0;
}
