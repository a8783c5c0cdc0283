/* model_dump - trains a model from files and writes down the results, for gpt_torch_test.py,
 * llama_torch_test.py, cnn_torch_test.py and resnet_torch_test.py to compare.
 *
 *     model_dump FOLDER
 *
 * FOLDER/config holds a line of an architecture and its numbers:
 *     gpt2 layers channels heads vocab positions
 *     llama layers channels heads kv_heads head_size hidden vocab positions tied attention_bias epsilon theta
 *           scaling factor low high original
 *     simple_cnn channels height width classes
 *     text_classifier vocabulary channels hidden classes positions
 *     text_encoder vocabulary layers channels heads hidden classes positions
 *     files PATH (a folder with config.json, whose parameters take the place of FOLDER/params; with adapters
 * these are FOLDER/params all the same) resnet channels height width classes stages blocks filters absent
 * (samples at the end of each step that are not there) each followed by "lora RANK ALPHA TARGET..." on the
 * same line, or by nothing; and a line of the run: dtype ranks strategy micro_batches samples T steps lr
 * weight_decay beta1 beta2 epsilon clip_norm, optimizer (enum) momentum dampening nesterov decay (enum), and
 * two patterns of names,
 * "-" for none: frozen, not decayed; then the dtypes that parameters and gradients move in (f32, bf16, f16)
 * and the loss scale with f16 (0: dynamic); and a line of a pipeline, or nothing: stages of `ranks` ranks
 * each, parts of a stage, schedule. dtype is f32 (the fast kernels), onednn (the same with products by
 * oneDNN), bf16 (with products of bf16), f64 (the reference), v-bf16 or v-f16 (values of 16 bits), cuda or
 * tf32 (a GPU's), cu-bf16 or cu-f16 (its values of 16 bits), nc-bf16 or nc-f16 (the same over NCCL).
 * FOLDER/params: every parameter in the model's order, of the dtype. FOLDER/tokens and FOLDER/targets:
 * (steps, samples, T) i32, of simple_cnn and resnet pictures, f32, and labels; of the models of texts also
 * FOLDER/lengths, (steps, samples) as their targets, and FOLDER/types where tokens have types; with
 * FOLDER/positions, (steps, samples, T) i32, documents lie in rows (model_pack); ranks (threads of this
 * process) and micro-batches share the samples of a step. Written by rank 0: FOLDER/grads (the first step's,
 * same order), FOLDER/losses (f64, one a step), FOLDER/norms (f64), FOLDER/evaluated (f64: the loss of the
 * first step's first micro-batch of rank 0 after the training), FOLDER/names (a line a parameter: name,
 * elements), FOLDER/trained; of classifiers FOLDER/logits before the training, (samples, classes) of the
 * kernels' dtype, of rank 0's first micro-batch. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "rendezvous/store/kv_memory.h"
#include "runtime/device/device_module.h"
#include "runtime/files/files.h"
#include "runtime/model/architectures.h"
#include "runtime/model/param_patterns.h"
#include "runtime/model/program_internal.h"
#include "runtime/plan/plan_cut.h"
#include "runtime/train/trainer.h"
#include "tests/support/rank_threads.h"

struct settings {
    char architecture[16], dtype[8], strategy[32], path[400];
    struct files *files; /* of path; NULL: none */
    struct gpt2_config gpt2;
    struct llama_config llama;
    struct simple_cnn_config cnn;
    struct text_classifier_config classifier;
    struct text_encoder_config encoder;
    struct resnet_config resnet;
    int absent;
    struct lora lora; /* rank 0: none */
    int ranks, micro_batches, samples, T, steps;
    struct trainer_step_values values;
    struct optimizer_options optimizer;
    enum param_decay decay;
    char frozen[64], spared[64], param_dtype[8], reduce_dtype[8];
    struct loss_scale_options loss_scale;
    int stages, chunks;
    enum pipe_schedule schedule;
};

/* Every file is read and written as a whole. */
static int transfer(const char *folder, const char *name, bool write, void *data, size_t bytes,
                    struct muster_error *err)
{
    char path[512];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return error_set(err, MUSTER_E_LIMIT, "%s is too long a path", folder);
    scope_fclose FILE *file = fopen(path, write ? "wb" : "rb");
    if (!file)
        return error_errno(err, "%s", path);
    size_t done = write ? fwrite(data, 1, bytes, file) : fread(data, 1, bytes, file);
    if (done != bytes || (write && fflush(file)))
        return error_set(err, MUSTER_E_IO, "%s: %zu of %zu bytes", path, done, bytes);
    return 0;
}

/* On the same line: the rank and alpha of adapters, and their targets. */
static int read_adapters(FILE *file, struct settings *s)
{
    char targets[256] = "", *rest = NULL;
    if (fscanf(file, "%*[ ]lora %d %lf %255[^\n]", &s->lora.rank, &s->lora.alpha, targets) != 3) {
        s->lora.rank = 0;
        return 0;
    }
    for (char *name = strtok_r(targets, " ", &rest); name; name = strtok_r(NULL, " ", &rest))
        if (lora_add_target(&s->lora, name, NULL) < 0)
            return -1;
    return 0;
}

static int read_text_model(FILE *file, struct settings *s)
{
    struct text_classifier_config *c = &s->classifier;
    struct text_encoder_config *e = &s->encoder;
    if (!strcmp(s->architecture, "text_classifier"))
        return fscanf(file, "%d %d %d %d %d", &c->vocabulary, &c->channels, &c->hidden, &c->classes,
                      &c->max_positions) == 5
                   ? 0
                   : -1;
    return fscanf(file, "%d %d %d %d %d %d %d", &e->vocabulary, &e->layers, &e->channels, &e->heads,
                  &e->hidden, &e->classes, &e->max_positions) == 7
               ? 0
               : -1;
}

static int read_architecture(FILE *file, struct settings *s)
{
    struct gpt2_config *g = &s->gpt2;
    struct llama_config *l = &s->llama;
    int tied, bias, kind;
    if (fscanf(file, "%15s", s->architecture) != 1)
        return -1;
    if (!strcmp(s->architecture, "files"))
        return fscanf(file, "%399s", s->path) == 1 ? read_adapters(file, s) : -1;
    if (!strcmp(s->architecture, "gpt2"))
        return fscanf(file, "%d %d %d %d %d", &g->layers, &g->channels, &g->heads, &g->vocab,
                      &g->max_positions) == 5
                   ? read_adapters(file, s)
                   : -1;
    if (!strcmp(s->architecture, "simple_cnn"))
        return fscanf(file, "%d %d %d %d", &s->cnn.channels, &s->cnn.height, &s->cnn.width,
                      &s->cnn.classes) == 4
                   ? 0
                   : -1;
    if (!strncmp(s->architecture, "text_", 5))
        return read_text_model(file, s);
    if (!strcmp(s->architecture, "resnet")) {
        struct resnet_config *r = &s->resnet;
        return fscanf(file, "%d %d %d %d %d %d %d %d", &r->channels, &r->height, &r->width, &r->classes,
                      &r->stages, &r->blocks, &r->filters, &s->absent) == 8
                   ? 0
                   : -1;
    }
    if (fscanf(file, "%d %d %d %d %d %d %d %d %d %d %lf %lf %d %lf %lf %lf %d", &l->layers, &l->channels,
               &l->heads, &l->kv_heads, &l->head_size, &l->hidden, &l->vocab, &l->max_positions, &tied, &bias,
               &l->epsilon, &l->rotary.theta, &kind, &l->rotary.factor, &l->rotary.low, &l->rotary.high,
               &l->rotary.original) != 17)
        return -1;
    l->tied = tied;
    l->attention_bias = bias;
    l->rotary.kind = (enum rotary_kind)kind;
    return read_adapters(file, s);
}

static int read_settings(const char *folder, struct settings *s, struct muster_error *err)
{
    char path[512];
    if (snprintf(path, sizeof path, "%s/config", folder) >= (int)sizeof path)
        return error_set(err, MUSTER_E_LIMIT, "%s is too long a path", folder);
    scope_fclose FILE *file = fopen(path, "r");
    if (!file)
        return error_errno(err, "%s", path);
    struct trainer_step_values *v = &s->values;
    int kind, nesterov, decay;
    if (read_architecture(file, s) ||
        fscanf(file, "%7s %d %31s %d %d %d %d %lf %lf %lf %lf %lf %lf %d %lf %lf %d %d %63s %63s %7s %7s %lf",
               s->dtype, &s->ranks, s->strategy, &s->micro_batches, &s->samples, &s->T, &s->steps,
               &v->learning_rate, &v->weight_decay, &v->beta1, &v->beta2, &v->epsilon, &v->clip_norm, &kind,
               &s->optimizer.momentum, &s->optimizer.dampening, &nesterov, &decay, s->frozen, s->spared,
               s->param_dtype, s->reduce_dtype, &s->loss_scale.fixed) != 23)
        return error_set(err, MUSTER_E_INVALID, "%s is not as described", path);
    char schedule[16] = "1f1b";
    s->stages = s->chunks = 1;
    const int more = fscanf(file, "%d %d %15s", &s->stages, &s->chunks, schedule);
    while (s->schedule < PIPE_TABLE && strcmp(schedule, pipe_schedule_name(s->schedule)))
        s->schedule++;
    if ((more > 0 && more < 3) || s->schedule == PIPE_TABLE)
        return error_set(err, MUSTER_E_INVALID, "%s: no pipeline is described by that", path);
    s->optimizer.kind = (enum optimizer)kind;
    s->optimizer.nesterov = nesterov;
    s->decay = (enum param_decay)decay;
    return 0;
}

static int mark_parameters(struct model *model, struct settings *s, struct muster_error *err)
{
    char *frozen[] = {s->frozen, NULL}, *spared[] = {s->spared, NULL};
    return param_patterns_freeze(model, strcmp(s->frozen, "-") ? frozen : NULL, err) < 0 ||
                   param_patterns_decay(model, s->decay, strcmp(s->spared, "-") ? spared : NULL, err) < 0
               ? -1
               : 0;
}

/* Input and output of a run, in memory; shared by the ranks, written by rank 0. */
struct run {
    struct settings s;
    struct kv_store store;
    const struct model *model;
    const struct kernels *kernels;
    const struct device_ops *device; /* NULL: the CPU */
    const struct comm_ops *comm;     /* NULL: the host's */
    enum dtype values;               /* of a device */
    char *params, *grads;
    char *input[BATCH_INPUTS], *logits; /* logits NULL: of no classifier */
    double *losses, *norms, evaluated;
    struct muster_error err;
};

typedef int param_call(struct trainer *, int, void *, struct muster_error *);

/* values NULL: nothing is kept. */
static int each_param(struct trainer *trainer, const struct run *run, char *values, param_call *call,
                      struct muster_error *err)
{
    for (int i = 0; i < run->model->param_count; i++) {
        if (call(trainer, i, values, err))
            return -1;
        if (values)
            values += param_elements(&run->model->params[i]) * dtype_size(run->kernels->statistic);
    }
    return 0;
}

static int set_param(struct trainer *trainer, int param, void *values, struct muster_error *err)
{
    return trainer_set_param(trainer, param, values, err);
}

/* Zeros for a frozen parameter. */
static int get_grad(struct trainer *trainer, int param, void *values, struct muster_error *err)
{
    const struct plan *plan = trainer_plan(trainer);
    return plan->groups[plan->places[param].group].trainable ? trainer_get_grad(trainer, param, values, err)
                                                             : 0;
}

/* For one sample's array of an input. */
static size_t sample_bytes(const struct run *run, int input)
{
    return (size_t)batch_input_bytes(run->model, (struct shape){1, run->s.T}, input);
}

/* This rank's samples of a step, in the order of train_batch_row. */
static void take_batch(const struct run *run, int step, int rank, int input, char *to)
{
    const struct settings *s = &run->s;
    const char *from = run->input[input];
    size_t rows = (size_t)(s->samples / s->ranks / s->micro_batches), row = sample_bytes(run, input);
    for (size_t micro = 0; micro < (size_t)s->micro_batches; micro++) {
        size_t first = (micro * (size_t)s->ranks + (size_t)rank) * rows;
        memcpy(to + micro * rows * row, from + ((size_t)step * (size_t)s->samples + first) * row, rows * row);
    }
}

/* Samples of the rank that take_batch dealt out and that are not there. */
static int64_t missing_of(const struct settings *s, int rank)
{
    int64_t rows = s->samples / s->ranks / s->micro_batches, missing = 0;
    for (int64_t micro = 0; micro < s->micro_batches; micro++) {
        int64_t there = s->samples - s->absent - (micro * s->ranks + rank) * rows;
        missing += rows - (there < 0 ? 0 : there < rows ? there : rows);
    }
    return missing;
}

/* All arrays of that batch, one after the other in `memory`. */
static struct batch take_arrays(const struct run *run, int step, int rank, char *memory)
{
    struct batch arrays = {0};
    for (int i = 0; i < run->model->input_count; i++) {
        take_batch(run, step, rank, i, memory);
        arrays.input[i] = memory;
        memory += (size_t)(run->s.samples / run->s.ranks) * sample_bytes(run, i);
    }
    return arrays;
}

/* Each rank reads on its own, as in a real run. */
static int load_files(struct trainer *trainer, const struct run *run, struct muster_error *err)
{
    GUARD(guard_files) struct files *files = files_open(run->s.path, err);
    return !files || files_match(files, run->model, files_architecture(files), err) ||
                   files_load(files, trainer, err)
               ? -1
               : 0;
}

/* The number of classes of the loss at the end. */
static int64_t classes_of(const struct model *model)
{
    const struct program *p = model->layers[model->layer_count - 1].config;
    return p->steps[p->step_count - 1].settings.vocabulary;
}

/* Rows of the first micro-batch of a rank, and the bytes of their logits. */
static size_t logits_bytes(const struct run *run)
{
    const struct settings *s = &run->s;
    return (size_t)(s->samples / s->ranks / s->micro_batches) * (size_t)classes_of(run->model) *
           (size_t)dtype_size(run->kernels->statistic);
}

static int classify_first(struct trainer *trainer, struct run *run, int rank, char *memory,
                          struct muster_error *err)
{
    const struct settings *s = &run->s;
    const size_t bytes = logits_bytes(run);
    scope_free char *out = mem_calloc(bytes, 1);
    struct layer_capture capture = {.layer = run->model->layer_count - 1,
                                    .value = LAYER_LOGITS,
                                    .rows = s->samples / s->ranks / s->micro_batches,
                                    .out = out,
                                    .bytes = (int64_t)bytes};
    struct trainer_forward forward = {.samples = capture.rows, .capture = &capture};
    const struct batch first = take_arrays(run, 0, rank, memory);
    if (!out)
        return error_set(err, MUSTER_E_NOMEM, "no memory for logits");
    if (trainer_forward(trainer, &first, &forward, err))
        return -1;
    if (!rank)
        memcpy(run->logits, out, bytes);
    return 0;
}

static int train(struct trainer *trainer, struct run *run, int world_rank, struct muster_error *err)
{
    const struct settings *s = &run->s;
    const int rank = world_rank % s->ranks; /* stages have the same samples */
    struct trainer_step_values values = s->values;
    const int inputs = run->model->input_count;
    size_t batch = (size_t)s->samples / (size_t)s->ranks, bytes = 0;
    for (int i = 0; i < inputs; i++)
        bytes += batch * sample_bytes(run, i);
    scope_free char *memory = mem_calloc(bytes, 1);
    values.global_tokens =
        (int64_t)(s->samples - s->absent) * (run->model->inputs[inputs - 1].positions ? s->T : 1);
    values.missing = missing_of(s, rank);
    if (!memory)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a batch");
    if (s->files && !s->lora.rank ? load_files(trainer, run, err)
                                  : each_param(trainer, run, run->params, set_param, err))
        return -1;
    if (run->logits && classify_first(trainer, run, rank, memory, err))
        return -1;
    for (int step = 0; step < s->steps; step++) {
        struct trainer_stats stats;
        const struct batch arrays = take_arrays(run, step, rank, memory);
        if (trainer_step(trainer, &arrays, &values, &stats, err) ||
            (step == 0 && each_param(trainer, run, world_rank ? NULL : run->grads, get_grad, err)))
            return -1;
        if (world_rank)
            continue;
        run->losses[step] = stats.loss;
        run->norms[step] = stats.grad_norm;
    }
    double evaluated;
    const struct batch first = take_arrays(run, 0, rank, memory);
    if (trainer_evaluate(trainer, &first, &evaluated, err))
        return -1;
    if (world_rank == s->ranks * (s->stages - 1)) /* of the last stage */
        run->evaluated = evaluated;
    return each_param(trainer, run, world_rank ? NULL : run->params, trainer_get_param, err);
}

GUARD_DEFINE(trainer, struct trainer *, trainer_destroy);

static enum dtype dtype_named(const char *name)
{
    int dtype = 0;
    while (dtype < DTYPE_COUNT && strcmp(dtype_name((enum dtype)dtype), name))
        dtype++;
    return (enum dtype)dtype;
}

static int rank_body(int rank, int ranks, void *context)
{
    struct run *run = context;
    const struct settings *s = &run->s;
    struct muster_error err = {0};
    struct trainer_options options = {
        .plan = {.shape = {s->samples / s->ranks / s->micro_batches, s->T},
                 .mesh = MESH(s->stages, 1, s->ranks),
                 .schedule = s->schedule,
                 .chunks = s->chunks,
                 .micro_batches = s->micro_batches,
                 .prefetch_forward = 2,
                 .prefetch_backward = 2,
                 .group_bytes = 16 << 10,
                 .clip = true,
                 .train = true,
                 .param_dtype = dtype_named(s->param_dtype),
                 .reduce_dtype = dtype_named(s->reduce_dtype),
                 .optimizer = s->optimizer},
        .rank = rank,
        .world_size = ranks,
        .local_rank = rank,
        .local_world_size = ranks,
        .threads = 1,
        .kernels = run->device ? NULL : run->kernels,
        .device = run->device,
        .comm = ranks > 1 ? run->comm : NULL,
        .values = run->values,
        .tf32 = !strcmp(s->dtype, "tf32"),
        .store = ranks > 1 ? &run->store : NULL,
        .timeout_ns = 60 * NS_PER_S,
        .loss_scale = s->loss_scale,
    };
    while (options.plan.strategy < STRATEGY_COUNT &&
           strcmp(strategy_name(options.plan.strategy), s->strategy))
        options.plan.strategy++;
    if (options.plan.strategy == STRATEGY_HYBRID_SHARD)
        options.plan.mesh = (struct mesh)MESH(s->stages, 2, s->ranks / 2);
    GUARD(guard_trainer) struct trainer *trainer = trainer_create(run->model, &options, &err);
    if (trainer && !train(trainer, run, rank, &err))
        return 0;
    fprintf(stderr, "rank %d: %s\n", rank, err.text);
    return -1;
}

static int write_names(const char *folder, const struct model *model, struct muster_error *err)
{
    scope_buffer text = {0};
    for (int i = 0; i < model->param_count; i++) {
        if (buffer_printf(&text, "%s %" PRId64 "\n", model->params[i].name,
                          param_elements(&model->params[i])))
            return error_set(err, MUSTER_E_NOMEM, "no memory for the names");
    }
    return transfer(folder, "names", true, text.data, text.length, err);
}

static int train_ranks(struct run *run, struct muster_error *err)
{
    struct kv_memory *memory = kv_memory_create(NULL);
    if (!memory)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a store");
    run->store = kv_memory_store(memory);
    int failed = rank_threads_run(run->s.ranks * run->s.stages, rank_body, run);
    kv_memory_destroy(memory);
    return failed ? error_set(err, MUSTER_E_STATE, "a rank failed") : 0;
}

static struct model *create_model(const struct settings *s, struct muster_error *err)
{
    const struct lora *lora = s->lora.rank ? &s->lora : NULL;
    if (s->files) {
        struct architecture architecture = *files_architecture(s->files);
        architecture.lora = s->lora;
        return architecture_model(&architecture, err);
    }
    return !strcmp(s->architecture, "simple_cnn")        ? simple_cnn_create(&s->cnn, err)
           : !strcmp(s->architecture, "resnet")          ? resnet_create(&s->resnet, err)
           : !strcmp(s->architecture, "text_classifier") ? text_classifier_create(&s->classifier, err)
           : !strcmp(s->architecture, "text_encoder")    ? text_encoder_create(&s->encoder, err)
           : strcmp(s->architecture, "gpt2")             ? llama_create_adapted(&s->llama, lora, err)
                                                         : gpt2_create_adapted(&s->gpt2, lora, err);
}

/* FOLDER/tokens, perhaps FOLDER/lengths, FOLDER/targets, and of documents in rows FOLDER/positions, in memory
 * that is the run's. */
static int read_inputs(const char *folder, struct run *run, struct muster_error *err)
{
    const size_t samples = (size_t)run->s.steps * (size_t)run->s.samples;
    const int last = run->model->input_count - 1;
    const int targets = strcmp(run->model->inputs[last].name, MODEL_POSITIONS) ? last : last - 1;
    for (int i = 0; i <= last; i++) {
        const size_t bytes = samples * sample_bytes(run, i);
        run->input[i] = mem_calloc(bytes, 1);
        if (!run->input[i])
            return error_set(err, MUSTER_E_NOMEM, "no memory for %zu bytes of the batches", bytes);
        /* pictures are in FOLDER/tokens, too */
        const char *name = i == targets ? "targets" : i ? run->model->inputs[i].name : "tokens";
        if (transfer(folder, name, false, run->input[i], bytes, err))
            return -1;
    }
    return 0;
}

static int choose_kernels(struct run *run, struct muster_error *err)
{
    const char *dtype = run->s.dtype;
    const bool over_nccl = !strncmp(dtype, "nc-", 3), narrow = over_nccl || !strncmp(dtype, "cu-", 3);
    run->values = narrow ? dtype_named(dtype + 3) : DTYPE_F32;
    if (narrow || !strcmp(dtype, "cuda") || !strcmp(dtype, "tf32")) {
        struct device_chosen chosen;
        if (device_choose(DEVICE_CUDA, &chosen, err))
            return -1;
        run->device = chosen.ops;
        run->comm = over_nccl ? chosen.module->comm_nccl : NULL;
        run->kernels = chosen.ops->kernels(NULL);
        return 0;
    }
    run->kernels = !strcmp(dtype, "f64")      ? kernels_ref_f64()
                   : !strcmp(dtype, "onednn") ? kernels_cpu_by(KERNELS_ONEDNN, err)
                   : !strcmp(dtype, "bf16")   ? kernels_cpu_by(KERNELS_BF16, err)
                   : !strcmp(dtype, "v-bf16") ? kernels_cpu_values(DTYPE_BF16)
                   : !strcmp(dtype, "v-f16")  ? kernels_cpu_values(DTYPE_F16)
                                              : kernels_cpu((unsigned)-1);
    return run->kernels ? 0 : -1;
}

static int run_folder(const char *folder, struct muster_error *err)
{
    struct run run = {0};
    if (read_settings(folder, &run.s, err))
        return -1;
    const struct settings *s = &run.s;
    GUARD(guard_files) struct files *files = *s->path ? files_open(s->path, err) : NULL;
    if (*s->path && !files)
        return -1;
    run.s.files = files;
    GUARD(guard_model)
    struct model *model = create_model(s, err);
    const struct plan_cut cut = {.stages = s->stages, .chunks = s->chunks, .even = true};
    scope_free char *positions = mem_printf("%s/" MODEL_POSITIONS, folder);
    const bool packed = positions && !access(positions, R_OK);
    if (!model || (packed && model_pack(model, err) < 0) || mark_parameters(model, &run.s, err) < 0 ||
        plan_cut_model(model, NULL, &cut, err) < 0)
        return -1;
    run.model = model;
    if (choose_kernels(&run, err))
        return -1;
    size_t bytes = (size_t)model_values(model) * (size_t)dtype_size(run.kernels->statistic);
    size_t steps = (size_t)s->steps;
    scope_free char *params = run.params = mem_calloc(bytes, 1), *grads = run.grads = mem_calloc(bytes, 1);
    scope_free double *losses = run.losses = mem_calloc(steps, sizeof *losses),
                      *norms = run.norms = mem_calloc(steps, sizeof *norms);
    if (!params || !grads || !losses || !norms)
        return error_set(err, MUSTER_E_NOMEM, "no memory for %zu bytes of parameters", bytes);
    const bool classifies = s->stages == 1 && !model->inputs[model->input_count - 1].positions &&
                            model->inputs[model->input_count - 1].dtype == DTYPE_I32;
    scope_free char *logits = run.logits = classifies ? mem_calloc(logits_bytes(&run), 1) : NULL;
    int failed = ((!s->files || s->lora.rank) && transfer(folder, "params", false, params, bytes, err)) ||
                 read_inputs(folder, &run, err) || train_ranks(&run, err);
    for (int i = 0; i < BATCH_INPUTS; i++)
        mem_free(run.input[i]);
    if (failed)
        return -1;
    if (transfer(folder, "grads", true, grads, bytes, err) ||
        transfer(folder, "losses", true, losses, steps * sizeof *losses, err) ||
        transfer(folder, "norms", true, norms, steps * sizeof *norms, err) ||
        transfer(folder, "evaluated", true, &run.evaluated, sizeof run.evaluated, err) ||
        transfer(folder, "trained", true, params, bytes, err) ||
        (logits && transfer(folder, "logits", true, logits, logits_bytes(&run), err)))
        return -1;
    return write_names(folder, model, err);
}

int main(int argc, char **argv)
{
    struct muster_error err = {0};
    if (argc != 2) {
        fprintf(stderr, "usage: model_dump FOLDER\n");
        return 2;
    }
    if (run_folder(argv[1], &err)) {
        fprintf(stderr, "model_dump: %s\n", err.text);
        return 1;
    }
    return 0;
}
