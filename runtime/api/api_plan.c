/* api_plan.c - muster_trainer.h: plans as text, the time of a step predicted from a plan, and its least time.
 */
#include <stddef.h>
#include <string.h>

#include "proto/base/cgroup.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/processor/processor.h"
#include "runtime/api/api_trainer.h"
#include "runtime/calibrate/calibrate.h"
#include "runtime/config/train_settings.h"
#include "runtime/device/host_threads.h"
#include "runtime/plan/plan_cut.h"
#include "runtime/plan/plan_stages.h"
#include "runtime/world/sized.h"

/* ---- the plan as text ---- */

static int format_json(const struct muster_trainer *t, const struct plan *plan, int32_t format,
                       const char *more, struct buffer *out)
{
    const bool object = format == MUSTER_PLAN_JSON;
    (void)buffer_text(out, object ? "{" : "");
    return plan_json(&t->model, plan, more, out) || buffer_text(out, object ? "}\n" : "");
}

/* more: lines after the text, or members of the JSON object. */
static int format_plan(const struct muster_trainer *t, const struct plan *plan, int32_t format,
                       const char *more, struct buffer *out)
{
    if (api_plan_is_json(format))
        return format_json(t, plan, format, more, out);
    int result = plan_summary(&t->model, plan, out);
    if (!result && t->cut.found.by == TRAIN_CUT_KEPT)
        result = buffer_printf(out, "the stages begin as in the newest checkpoint of %s\n",
                               t->config.checkpoint_dir);
    if (!result && t->cut.found.by == TRAIN_CUT_MEASURED)
        result = buffer_printf(out, "the stages are cut by the times that the run of %s has measured\n",
                               t->config.checkpoint_dir);
    if (!result && format != MUSTER_PLAN_SUMMARY)
        result = plan_dump(&t->model, plan, out);
    return result || buffer_text(out, more);
}

/* The plan, and for a GPU its memory and the node's; for a CPU the memory of its libraries. */
static int print_plan(const struct muster_trainer *t, const struct plan *plan, int world_size, int32_t format,
                      struct buffer *out, struct muster_error *err)
{
    scope_buffer more = {0};
    if ((api_described(t) && api_described_text(t, plan, format, &more, err) < 0) ||
        (api_plan_memory(t) == PLAN_MEMORY_DEVICE && api_host_text(t, world_size, format, &more, err) < 0))
        return -1;
    if (api_plan_memory(t) != PLAN_MEMORY_DEVICE)
        api_libraries_text(t, format, &more);
    return more.failed || format_plan(t, plan, format, more.length ? more.data : "", out)
               ? error_set(err, MUSTER_E_NOMEM, "no memory to print the plan")
               : 0;
}

int api_plan_sizes(struct muster_trainer *t, int local_size, struct muster_error *err)
{
    struct device_chosen chosen;
    if (t->config.device == DEVICE_AUTO) {
        if (device_choose(DEVICE_AUTO, &chosen, err) < 0)
            return -1;
        t->found.device = chosen;
    }
    if (api_plan_memory(t) == PLAN_MEMORY_DEVICE) { /* a GPU need not be here */
        const struct muster_cuda_module *module = device_module_load(err);
        if (!module)
            return error_wrap(err, "a plan of training.device: %s (plan with cpu for the CPU's sizes)",
                              api_described(t) ? api_described(t)->name : "cuda");
        if (api_described_check(t, err) < 0)
            return -1;
        t->plan.kernels = module->kernels(api_described(t), t->plan.value_dtype,
                                          t->config.matmul_precision == TRAIN_MATMUL_TF32,
                                          t->config.attention == TRAIN_ATTENTION_CUDNN, err);
        if (!t->plan.kernels)
            return -1;
        if (!t->found.device.ops)
            t->found.device.ops = module->device;
        if (trainer_check_products("cuda", api_choose_products(t), err) < 0)
            return -1;
        t->plan.grouped = true;
        t->plan.adds_apart = mesh_size(t->plan.mesh) > 1 && t->config.comm != TRAIN_COMM_HOST; /* by NCCL */
        return 0;
    }
    if (t->config.device != DEVICE_AUTO &&
        device_choose((enum device_choice)t->config.device, &chosen, err) < 0)
        return -1;
    if (t->config.attention == TRAIN_ATTENTION_CUDNN && !chosen.ops->attention)
        return error_set(
            err, MUSTER_E_UNSUPPORTED,
            "training.attention: cudnn: device %s has kernels of muster's alone: leave it out, or use "
            "training.device: cuda",
            chosen.ops->name);
    t->plan.kernels =
        chosen.ops->host_memory ? kernels_cpu_values(t->plan.value_dtype) : chosen.ops->kernels(NULL);
    t->found.device = chosen;
    if (chosen.ops->scratch_bytes) {
        t->products = api_choose_products(t);
        const struct kernels *kernels =
            t->plan.value_dtype != DTYPE_F32 ? t->plan.kernels : kernels_cpu_by(t->products, err);
        const int threads = t->config.threads ? (int)t->config.threads : host_threads(local_size);
        if (!kernels)
            return -1;
        t->plan.scratch_bytes = threads * kernels_cpu_scratch_bytes(kernels);
    }
    t->plan.grouped = !chosen.ops->host_streams; /* as every comm of a GPU wants it */
    return 0;
}

/* Whether every stage fits into training.memory_limit, and into a GPU that is described. */
static int every_stage_fits(const struct muster_trainer *t, int world_size, struct muster_error *err)
{
    struct plan_stages stages = {0};
    struct plan_rates rates;
    struct api_host host;
    const int64_t limit = t->config.memory_limit;
    const int64_t device = api_described(t) ? api_described_memory(t, world_size) : 0;
    char is[160] = "is training.memory_limit";
    if (!limit && !device)
        return 0;
    if (device && (!limit || device < limit))
        (void)snprintf(is, sizeof is, "is what the %s has next to its libraries",
                       api_described(t)->product); /* ours: fits */
    if (plan_stages_build(&t->model, &t->plan, &stages, err) < 0)
        return -1;
    int result = 0;
    api_rates(t, &rates);
    api_host(t, world_size, &host);
    const struct plan_room room = {.memory = api_plan_memory(t),
                                   .bytes = device && (!limit || device < limit) ? device : limit,
                                   .is = is,
                                   .other = host.bytes,
                                   .another = true,
                                   .rates = &rates};
    for (int s = 0; s < stages.count && !result; s++)
        result = plan_fits(&t->model, &stages.plans[s], &room, err);
    plan_stages_free(&stages);
    return result;
}

/* Plans for rank 0 of a world: prints the plan into out, or, if that is NULL, says whether it fits. */
static int with_plan(struct muster_model *model, int32_t world_size, const char *const *settings,
                     int32_t format, struct buffer *out, struct muster_error *err)
{
    const struct train_place place = {0, world_size, world_size}; /* its nodes are not known */
    struct muster_trainer t = {0};
    struct plan plan;
    if (world_size < 1)
        return error_set(err, MUSTER_E_INVALID, "a plan of %d ranks: must be 1 at least", world_size);
    int result =
        api_prepare(&t, model, settings, &place, err) || api_plan_sizes(&t, world_size, err) ? -1 : 0;
    if (!result && !(result = plan_build(&t.model, &t.plan, &plan, err))) {
        result =
            out ? print_plan(&t, &plan, world_size, format, out, err) : every_stage_fits(&t, world_size, err);
        plan_free(&plan);
    }
    api_release(&t);
    return result;
}

int muster_plan_fits(struct muster_model *model, int32_t world_size, const char *const *settings,
                     struct muster_error *err)
{
    return with_plan(model, world_size, settings, 0, NULL, err);
}

int64_t muster_plan_text(struct muster_model *model, int32_t world_size, const char *const *settings,
                         int32_t format, char *text, int64_t size, struct muster_error *err)
{
    if (size < 0 || (size && !text))
        return error_set(err, MUSTER_E_INVALID, "%lld bytes for the text of a plan: use 0 at least",
                         (long long)size);
    if (format < MUSTER_PLAN_SUMMARY || format > MUSTER_PLAN_MEMBERS)
        return error_set(err, MUSTER_E_INVALID, "format %d of a plan: must be %d to %d", format,
                         MUSTER_PLAN_SUMMARY, MUSTER_PLAN_MEMBERS);
    scope_buffer out = {0};
    if (with_plan(model, world_size, settings, format, &out, err) < 0)
        return -1;
    int64_t used = (int64_t)out.length < size ? (int64_t)out.length : size - 1;
    if (size) {
        memcpy(text, out.data, (size_t)used);
        text[used] = '\0';
    }
    return (int64_t)out.length;
}

/* ---- the time of a step ---- */

/* A micro-batch whose numbers are spread over the vocabularies; the caller frees it. */
static void *make_batch(const struct muster_trainer *t, struct batch *batch)
{
    const struct shape shape = t->plan.shape;
    char *memory = mem_calloc((size_t)batch_bytes(&t->model, shape) + 1, 1);
    uint32_t state = 1;
    for (int i = 0; memory && i < t->model.input_count; i++) {
        int32_t *numbers = (int32_t *)(void *)(memory + batch_offset(&t->model, shape, i));
        const int64_t count = batch_input_bytes(&t->model, shape, i) / (int64_t)sizeof *numbers;
        batch->input[i] = numbers;
        const int64_t below = api_numbers(t, i);
        for (int64_t n = 0; below > 0 && n < count; n++) {
            state = state * 1664525U + 1013904223U;
            numbers[n] =
                (int32_t)(t->model.inputs[i].places ? (uint64_t)(n % below) : (state >> 8) % (uint64_t)below);
        }
    }
    return memory;
}

/* As many ranks as this machine has room for, each with the threads that it would have here. */
static void choose_ranks(const struct muster_trainer *t, int world_size, struct calibrate_options *options)
{
    const int cores = cgroup_cores();
    options->ranks = world_size < cores ? world_size : cores;
    options->threads = t->config.threads ? (int)t->config.threads : host_threads(options->ranks);
    const int room = cores / options->threads;
    if (options->ranks > room)
        options->ranks = room > 1 ? room : world_size < 2 ? 1 : 2; /* two show what collectives take */
}

/* A plan of one stage that has the layers of all stages, to measure them. */
static int build_whole(struct muster_trainer *t, struct plan *plan, struct muster_error *err)
{
    struct plan_options options = t->plan;
    const struct plan_cut whole = {.stages = 1};
    options.world_size /= options.mesh.side[SIDE_PIPELINE];
    options.mesh.side[SIDE_PIPELINE] = 1;
    options.schedule = PIPE_1F1B;
    options.chunks = 1;
    return plan_cut_model(&t->model, &options, &whole, err) < 0 ? -1
                                                                : plan_build(&t->model, &options, plan, err);
}

/* Cuts the model again, by the measured times where mesh.cut leaves it open. */
static int cut_again(struct muster_trainer *t, const struct plan *whole, const struct plan_rates *rates,
                     struct muster_prediction *out, struct muster_error *err)
{
    scope_free double *seconds = mem_calloc((size_t)t->model.layer_count, sizeof *seconds);
    struct train_cut cut = t->cut.found;
    scope_buffer text = {0};
    if (!seconds)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the times of %d layers", t->model.layer_count);
    if (plan_layer_sums(&t->model, whole, rates, seconds, err) < 0)
        return -1;
    cut.seconds = seconds;
    if (train_plan_cut(&t->config, &t->plan, &cut, &t->model, err) < 0 || cut.by != TRAIN_CUT_MEASURED)
        return cut.by == TRAIN_CUT_MEASURED ? -1 : 0;
    if (plan_cut_text(&t->model, &text) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the cut of a model");
    if (text.length >= sizeof out->cut)
        return error_set(
            err, MUSTER_E_LIMIT,
            "the names of the layers that begin stages have %zu bytes, and a prediction has room "
            "for %zu: set mesh.cut: even",
            text.length, sizeof out->cut - 1);
    memcpy(out->cut, text.data, text.length + 1);
    return 0;
}

/* The step of several stages, and the slowest stage's part in it. */
static int predict_stages(struct muster_trainer *t, const struct plan *whole, struct plan_rates *rates,
                          struct plan_cost *out, struct muster_prediction *found, struct muster_error *err)
{
    struct plan_stages stages = {0};
    struct plan_stages_cost cost;
    /* A transfer is a copy through shared memory, as a broadcast to one rank is. */
    rates->comm[COMM_SEND] = rates->comm[COMM_RECV] = rates->comm[COMM_ALL_GATHER];
    if (cut_again(t, whole, rates, found, err) < 0 ||
        plan_stages_build(&t->model, &t->plan, &stages, err) < 0)
        return -1;
    const int result = plan_stages_run(&t->model, &stages, rates, &cost, err);
    int slowest = 0;
    for (int s = 1; !result && s < stages.count; s++)
        slowest = cost.stage[s].busy_s > cost.stage[slowest].busy_s ? s : slowest;
    plan_stages_free(&stages);
    if (!result)
        *out = (struct plan_cost){.step_s = cost.step_s,
                                  .compute_s = cost.stage[slowest].busy_s,
                                  .comm_s = cost.stage[slowest].comm_s,
                                  .exposed_s = cost.step_s - cost.stage[slowest].busy_s};
    return result;
}

static int predict(struct muster_trainer *t, int world_size, struct muster_prediction *out,
                   struct muster_error *err)
{
    const bool staged = t->plan.mesh.side[SIDE_PIPELINE] > 1;
    struct batch batch = {0};
    struct calibration calibration;
    struct plan_cost cost;
    struct plan plan;
    scope_free void *memory = make_batch(t, &batch);
    if (!memory)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a batch");
    if ((staged ? build_whole(t, &plan, err) : plan_build(&t->model, &t->plan, &plan, err)) < 0)
        return -1;
    struct calibrate_options options = {.model = &t->model, .plan = &plan, .batch = &batch};
    choose_ranks(t, world_size, &options);
    int result = calibrate(&options, &calibration, err);
    if (!result) {
        *out = (struct muster_prediction){.size = sizeof *out,
                                          .ranks = options.ranks,
                                          .threads = options.threads,
                                          .kinds = calibration.kinds,
                                          .measured_s = (double)calibration.taken_ns / (double)NS_PER_S};
        result = staged ? predict_stages(t, &plan, &calibration.rates, &cost, out, err)
                        : plan_predict(&t->model, &plan, &calibration.rates, &cost, err);
        calibration_free(&calibration);
    }
    if (!result) {
        out->step_s = cost.step_s;
        out->compute_s = cost.compute_s;
        out->comm_s = cost.comm_s;
        out->exposed_s = cost.exposed_s;
    }
    plan_free(&plan);
    return result;
}

int muster_plan_predict(struct muster_model *model, int32_t world_size, const char *const *settings,
                        struct muster_prediction *prediction, struct muster_error *err)
{
    const struct train_place place = {0, world_size, world_size};
    struct muster_trainer t = {0};
    if (processor_check(err))
        return -1;
    if (world_size < 1 || !prediction)
        return error_set(err, MUSTER_E_INVALID, "a prediction for %d ranks: 1 at least, and into a struct",
                         world_size);
    struct muster_prediction found = {.size = sizeof found};
    int result = api_prepare(&t, model, settings, &place, err);
    struct device_chosen chosen = {.ops = device_cpu()};
    if (!result && t.config.device == DEVICE_AUTO)
        result = device_choose(DEVICE_AUTO, &chosen, err);
    if (!result && (t.config.device == DEVICE_CUDA || api_described(&t) || !chosen.ops->host_memory))
        result =
            error_set(err, MUSTER_E_UNSUPPORTED,
                      "a prediction for training.device: %s: parts of a step are measured on the CPU alone; "
                      "predict with cpu",
                      api_described(&t) ? api_described(&t)->name : "cuda");
    if (!result)
        result = predict(&t, world_size, &found, err);
    api_release(&t);
    return result ? result
                  : sized_out("muster_prediction", prediction, prediction->size, &found, sizeof found,
                              offsetof(struct muster_prediction, cut), err);
}

int muster_trainer_limit(struct muster_trainer *t, double *seconds, struct muster_error *err)
{
    if (trainer_limit(t->trainer, &t->limit, err) < 0)
        return -1;
    *seconds = t->limit.seconds;
    return 0;
}
