/* api_plan.c - muster_trainer.h: plans as text, the time of a step predicted from a plan, and its least time.
 */
#include <string.h>

#include "proto/base/cgroup.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/processor/processor.h"
#include "runtime/api/api_trainer.h"
#include "runtime/calibrate/calibrate.h"
#include "runtime/config/train_settings.h"
#include "runtime/device/host_threads.h"
#include "runtime/plan/plan_stages.h"
#include "runtime/world/sized.h"

/* ---- the plan as text ---- */

static int format_plan(const struct muster_trainer *t, const struct plan *plan, int32_t format,
                       struct buffer *out)
{
    if (format == MUSTER_PLAN_JSON)
        return plan_json(&t->model, plan, out);
    int result = plan_summary(&t->model, plan, out);
    return result || format == MUSTER_PLAN_SUMMARY ? result : plan_dump(&t->model, plan, out);
}

int api_plan_sizes(struct muster_trainer *t, struct muster_error *err)
{
    struct device_chosen chosen;
    if (t->config.device == DEVICE_CUDA) { /* a GPU need not be here */
        const struct muster_cuda_module *module = device_module_load(err);
        if (!module)
            return error_wrap(err, "a plan of training.device: cuda (plan with cpu for the CPU's sizes)");
        t->plan.kernels = module->device->kernels(NULL);
        t->plan.grouped = true;
        return 0;
    }
    if (device_choose((enum device_choice)t->config.device, &chosen, err) < 0)
        return -1;
    t->plan.kernels = chosen.ops->kernels(NULL);
    t->plan.grouped = !chosen.ops->host_streams; /* as every comm of a GPU wants it */
    return 0;
}

static int every_stage_fits(const struct muster_trainer *t, struct muster_error *err)
{
    struct plan_stages stages = {0};
    if (plan_stages_build(&t->model, &t->plan, &stages, err) < 0)
        return -1;
    int result = 0;
    for (int s = 0; s < stages.count && !result; s++)
        result =
            plan_fits(&t->model, &stages.plans[s], t->config.memory_limit, "is training.memory_limit", err);
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
    int result = api_prepare(&t, model, settings, &place, err) || api_plan_sizes(&t, err) ? -1 : 0;
    if (!result && !(result = plan_build(&t.model, &t.plan, &plan, err))) {
        if (out && format_plan(&t, &plan, format, out) < 0)
            result = error_set(err, MUSTER_E_NOMEM, "no memory to print the plan");
        else if (!out && t.config.memory_limit > 0)
            result = every_stage_fits(&t, err);
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
    if (format < MUSTER_PLAN_SUMMARY || format > MUSTER_PLAN_JSON)
        return error_set(err, MUSTER_E_INVALID, "format %d of a plan: must be %d to %d", format,
                         MUSTER_PLAN_SUMMARY, MUSTER_PLAN_JSON);
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

/* Of several stages: the step of all of them, and the slowest stage's part in it. */
static int predict_stages(const struct muster_trainer *t, const struct plan *plan, struct plan_rates *rates,
                          struct plan_cost *out, struct muster_error *err)
{
    struct plan_stages stages = {0};
    struct plan_stages_cost cost;
    /* A transfer is a copy through shared memory, as a broadcast to one rank is. */
    rates->comm[COMM_SEND] = rates->comm[COMM_RECV] = rates->comm[COMM_ALL_GATHER];
    if (plan_stages_build(&t->model, &plan->options, &stages, err) < 0)
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

static int predict(struct muster_trainer *t, const struct plan *plan, int world_size,
                   struct muster_prediction *out, struct muster_error *err)
{
    struct batch batch = {0};
    struct calibration calibration;
    struct plan_cost cost;
    scope_free void *memory = make_batch(t, &batch);
    if (!memory)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a batch");
    struct calibrate_options options = {.model = &t->model, .plan = plan, .batch = &batch};
    choose_ranks(t, world_size, &options);
    if (calibrate(&options, &calibration, err) < 0)
        return -1;
    const int result = plan->options.mesh.side[SIDE_PIPELINE] > 1
                           ? predict_stages(t, plan, &calibration.rates, &cost, err)
                           : plan_predict(&t->model, plan, &calibration.rates, &cost, err);
    if (result == 0)
        *out = (struct muster_prediction){.size = sizeof *out,
                                          .ranks = options.ranks,
                                          .threads = options.threads,
                                          .kinds = calibration.kinds,
                                          .step_s = cost.step_s,
                                          .compute_s = cost.compute_s,
                                          .comm_s = cost.comm_s,
                                          .exposed_s = cost.exposed_s,
                                          .measured_s = (double)calibration.taken_ns / (double)NS_PER_S};
    calibration_free(&calibration);
    return result;
}

int muster_plan_predict(struct muster_model *model, int32_t world_size, const char *const *settings,
                        struct muster_prediction *prediction, struct muster_error *err)
{
    const struct train_place place = {0, world_size, world_size};
    struct muster_trainer t = {0};
    struct plan plan;
    if (processor_check(err))
        return -1;
    if (world_size < 1 || !prediction)
        return error_set(err, MUSTER_E_INVALID, "a prediction for %d ranks: 1 at least, and into a struct",
                         world_size);
    struct muster_prediction found = {.size = sizeof found};
    int result = api_prepare(&t, model, settings, &place, err);
    if (!result && t.config.device == DEVICE_CUDA)
        result = error_set(
            err, MUSTER_E_UNSUPPORTED,
            "a prediction for training.device: cuda: parts of a step are measured on the CPU alone; "
            "predict with cpu");
    if (!result && !(result = plan_build(&t.model, &t.plan, &plan, err))) {
        result = predict(&t, &plan, world_size, &found, err);
        plan_free(&plan);
    }
    api_release(&t);
    return result ? result
                  : sized_out("muster_prediction", prediction, prediction->size, &found, sizeof found,
                              sizeof found, err);
}

int muster_trainer_limit(struct muster_trainer *t, double *seconds, struct muster_error *err)
{
    if (trainer_limit(t->trainer, &t->limit, err) < 0)
        return -1;
    *seconds = t->limit.seconds;
    return 0;
}
