/* trainer.c - a training run of one rank: order of creation, and one step. */
#include "runtime/train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "proto/base/text.h"
#include "runtime/comm/comm_staged.h"
#include "runtime/device/host_memory.h"
#include "runtime/model/program.h"
#include "runtime/plan/plan_cost.h"
#include "runtime/plan/plan_stages.h"
#include "runtime/train/comm_table.h"
#include "runtime/train/trainer_state.h"
#include "runtime/world/agree.h"

GUARD_DEFINE(trainer, struct trainer *, trainer_destroy);

/* ---- creation ---- */

static const struct comm_ops *comm_of(const struct trainer *trainer, const struct trainer_options *options)
{
    if (options->comm)
        return options->comm;
    bool elsewhere = options->local_world_size > 0 && options->local_world_size < options->world_size;
    const struct comm_ops *host = elsewhere ? comm_node() : comm_shm();
    return trainer->ops->host_streams ? host : comm_staged(host);
}

/* Rank 0 runs the plans of all stages together, before anything is allocated: a stage that would wait for
 * ever is an error on every rank. */
static int prove_stages(const struct trainer *trainer, struct muster_error *err)
{
    struct plan_stages stages = {0};
    if (trainer->rank || trainer->plan.options.mesh.side[SIDE_PIPELINE] == 1)
        return 0;
    if (plan_stages_build(trainer->model, &trainer->plan.options, &stages, err) < 0)
        return -1;
    const int result = plan_stages_run(trainer->model, &stages, NULL, NULL, err);
    plan_stages_free(&stages);
    return result;
}

static int make_plan(struct trainer *trainer, const struct trainer_options *options, struct muster_error *err)
{
    struct plan_options wanted = options->plan;
    if (wanted.dtype != DTYPE_F32 && wanted.dtype != trainer->kernels->statistic)
        return error_set(err, MUSTER_E_UNSUPPORTED, "dtype %s: the kernels of this device (%s) compute in %s",
                         dtype_name(wanted.dtype), trainer->kernels->name,
                         dtype_name(trainer->kernels->statistic));
    wanted.dtype = trainer->kernels->statistic;
    wanted.value_dtype = trainer->kernels->value;
    trainer->scales = wanted.param_dtype == DTYPE_F16 || wanted.reduce_dtype == DTYPE_F16;
    wanted.check |= trainer->scales;
    wanted.kernels = trainer->kernels;
    if (!options->kernels && trainer->ops->scratch_bytes)
        wanted.scratch_bytes = trainer->ops->scratch_bytes(trainer->device);
    wanted.rank = options->rank;
    wanted.world_size = options->world_size;
    wanted.grouped = !options->delay && comm_of(trainer, options)->exchange;
    wanted.adds_apart = !options->delay && comm_of(trainer, options)->adds_apart;
    if (plan_build(trainer->model, &wanted, &trainer->plan, err) ||
        (options->cudnn &&
         trainer->ops->attention_text(trainer->device, trainer->attention, sizeof trainer->attention, err)))
        return -1;
    return prove_stages(trainer, err);
}

/* Checks that the plan fits, and leaves other ranks of this machine their share of memory. */
static int check_memory(const struct trainer *trainer, const struct trainer_options *options,
                        struct muster_error *err)
{
    int sharing = options->local_world_size > 0 ? options->local_world_size : 1;
    const bool host = trainer->ops->host_memory; /* a device has its own memory, of which the rank gets all */
    const char *here = "is what this machine has for it";
    char kept_text[32], free_text[96];
    const bool own_comm = options->comm && options->world_size > 1 && !strcmp(options->comm->name, "nccl");
    const int64_t kept = trainer->ops->memory_kept ? trainer->ops->memory_kept(trainer->device, own_comm) : 0;
    int64_t machine = trainer->ops->memory_available(trainer->device) / (host ? sharing : 1),
            limit = options->memory_limit;
    if (machine > 0 && kept)
        machine = machine > kept ? machine - kept : 1; /* none, which is known */
    (void)snprintf(free_text, sizeof free_text, "is what the device has free next to %s for its libraries",
                   text_format_bytes(kept_text, sizeof kept_text, kept)); /* fits */
    bool by_user = limit > 0 && (machine <= 0 || limit <= machine);
    int64_t available = by_user ? limit : machine;
    const int64_t beside =
        host ? 0 : host_memory_available() / sharing; /* for pinned memory and the host's */
    struct plan_room room = {.memory = host ? PLAN_MEMORY_ALL : PLAN_MEMORY_DEVICE,
                             .bytes = available,
                             .is = by_user ? "is the memory limit"
                                   : host  ? here
                                           : free_text,
                             .other = beside},
                     rest = {.memory = PLAN_MEMORY_HOST, .bytes = beside, .is = here, .other = available};
    const bool is_short = (available > 0 && plan_bytes_of(&trainer->plan, room.memory) > available) ||
                          (beside > 0 && plan_bytes_of(&trainer->plan, PLAN_MEMORY_HOST) > beside);
    struct plan_rates rates;
    if (is_short && options->rates) {
        options->rates(options->context, &rates);
        room.rates = rest.rates = &rates;
    }
    if (available > 0 && plan_fits(trainer->model, &trainer->plan, &room, err)) {
        if (err && !by_user && (!host || plan_bytes(&trainer->plan) <= host_memory_total() / sharing))
            err->code = MUSTER_E_NOMEM; /* other processes use it now, and may free it */
        return -1;
    }
    if (beside <= 0 || !plan_fits(trainer->model, &trainer->plan, &rest, err))
        return 0;
    if (err && plan_bytes_of(&trainer->plan, PLAN_MEMORY_HOST) <= host_memory_total() / sharing)
        err->code = MUSTER_E_NOMEM;
    return -1;
}

/* Whether the plan needs a stream: streams between stages are made only for several stages. */
static bool uses_stream(const struct plan *plan, enum stream_id stream)
{
    bool uses = stream < STREAM_ACTIVATIONS;
    for (int i = 0; i < plan->op_count && !uses; i++)
        uses = plan->ops[i].stream == stream;
    return uses;
}

static int make_arenas(struct trainer *trainer, struct muster_error *err)
{
    for (int i = 0; i < MEMORY_CLASS_COUNT; i++) {
        if (trainer->plan.arena_bytes[i] > 0 &&
            trainer->ops->arena_create(trainer->device, (enum memory_class)i, trainer->plan.arena_bytes[i],
                                       &trainer->arenas[i], err))
            return error_wrap(err, "%s memory of the plan", memory_class_name((enum memory_class)i));
    }
    const int scratch = trainer->plan.scratch;
    if (scratch >= 0)
        trainer->ops->scratch(trainer->device, (char *)trainer->arenas[MEMORY_HOST].base +
                                                   trainer->plan.entries[scratch].offset);
    for (int i = 0; i < STREAM_COUNT; i++) {
        if (!uses_stream(&trainer->plan, (enum stream_id)i))
            continue;
        trainer->streams[i] = trainer->ops->stream_create(trainer->device, stream_name((enum stream_id)i),
                                                          i == STREAM_COMPUTE, err);
        if (!trainer->streams[i])
            return -1;
    }
    return 0;
}

static const char *trainer_key(const struct trainer_options *options)
{
    return options->key ? options->key : "trainer";
}

static int make_comms(struct trainer *trainer, const struct trainer_options *options,
                      struct muster_error *err)
{
    const struct plan *plan = &trainer->plan;
    const struct plan_entry *sums = plan->sums < 0 ? NULL : &plan->entries[plan->sums];
    bool have = plan->arena_bytes[MEMORY_COMM] > 0;
    const struct comm_table_options table = {
        .ops = comm_of(trainer, options),
        .delay = options->delay,
        .comm = {.rank = options->rank,
                 .size = options->world_size,
                 .store = options->store,
                 .key = trainer_key(options),
                 .timeout_ns = options->timeout_ns,
                 .address = options->address,
                 .node = options->rank - options->local_rank,
                 .device = trainer->device,
                 .device_ops = trainer->ops,
                 .arenas = have ? &trainer->arenas[MEMORY_COMM] : NULL,
                 .arena_count = have,
                 .sums = sums ? (char *)trainer->arenas[MEMORY_DEVICE].base + sums->offset : NULL,
                 .sums_bytes = sums ? sums->bytes : 0},
        .plan = plan,
        .stream = trainer->streams[STREAM_COMPUTE],
    };
    return comm_table_create(&trainer->comms, &table, err);
}

static bool is_staged(const struct trainer *trainer)
{
    const struct comm_ops *ops = trainer->comms.ops;
    return ops == comm_staged(comm_shm()) || ops == comm_staged(comm_tcp()) ||
           ops == comm_staged(comm_node());
}

static int trainer_check_options(const struct trainer_options *options, struct muster_error *err)
{
    if (options->world_size < 1 || options->rank < 0 || options->rank >= options->world_size)
        return error_set(err, MUSTER_E_INVALID, "rank %d of %d ranks: ranks count from 0 to world_size-1",
                         options->rank, options->world_size);
    if (options->threads < 1)
        return error_set(err, MUSTER_E_INVALID, "threads is %d, but must be at least 1", options->threads);
    if (options->world_size > 1 && !options->store && !options->delay)
        return error_set(err, MUSTER_E_INVALID, "%d ranks need a store to find each other",
                         options->world_size);
    if (!options->plan.train)
        return error_set(err, MUSTER_E_INVALID, "a trainer needs a plan with train = true");
    return 0;
}

int trainer_check_products(const char *device, enum kernels_products products, struct muster_error *err)
{
    if (products == KERNELS_OPENBLAS || products == KERNELS_AUTO)
        return 0;
    return error_set(err, MUSTER_E_UNSUPPORTED,
                     "device %s multiplies by its own library, in fp32 or tf32: leave training.products "
                     "and training.matmul_precision: bf16 out, or train with training.device: cpu",
                     device);
}

static int open_device(struct trainer *trainer, const struct trainer_options *options,
                       struct muster_error *err)
{
    trainer->ops = options->device ? options->device : device_cpu();
    trainer->device = trainer->ops->open(options->local_rank, options->threads, err);
    if (!trainer->device)
        return error_wrap(err, "device %s", trainer->ops->name);
    if (trainer->ops->sync_errors)
        trainer->ops->sync_errors(trainer->device, options->sync_errors);
    if (options->graphs && !trainer->ops->launch_graph)
        return error_set(err, MUSTER_E_UNSUPPORTED,
                         "training.cuda_graphs: device %s launches no graphs: leave it out, or train with "
                         "training.device: cuda",
                         trainer->ops->name);
    if (options->tf32 && trainer->ops->tf32 && trainer->ops->tf32(trainer->device, err))
        return -1;
    if (options->values != DTYPE_F32) {
        if (!trainer->ops->values)
            return error_set(err, MUSTER_E_UNSUPPORTED,
                             "training.values: dtype: device %s has no kernels of %s: leave it out",
                             trainer->ops->name, dtype_name(options->values));
        if (trainer->ops->values(trainer->device, options->values, err))
            return -1;
    }
    if (options->cudnn && !trainer->ops->attention)
        return error_set(
            err, MUSTER_E_UNSUPPORTED,
            "training.attention: cudnn: device %s has kernels of muster's alone: leave it out, or "
            "train with training.device: cuda",
            trainer->ops->name);
    if (options->cudnn && trainer->ops->attention(trainer->device, err))
        return -1;
    if (!trainer->ops->products && trainer_check_products(trainer->ops->name, options->products, err))
        return -1;
    if (options->products != KERNELS_OPENBLAS && trainer->ops->products &&
        trainer->ops->products(trainer->device, options->products, err))
        return -1;
    trainer->kernels = options->kernels ? options->kernels : trainer->ops->kernels(trainer->device);
    return 0;
}

/* The local part: plan and memory. If it fails on one rank, no other rank waits for that rank. */
static int trainer_prepare(struct trainer *trainer, const struct trainer_options *options,
                           struct muster_error *err)
{
    struct muster_error local = {0};
    struct muster_error *e =
        err ? err : &local; /* the others are informed even if the caller ignores the error */
    const struct agree_options meeting = {.store = options->delay ? NULL : options->store,
                                          .key = trainer_key(options),
                                          .rank = options->rank,
                                          .size = options->world_size,
                                          .timeout_ns = options->timeout_ns};
    int failed = open_device(trainer, options, e) ||
                 program_kernels_check(trainer->model, trainer->kernels, e) ||
                 make_plan(trainer, options, e) || check_memory(trainer, options, e) ||
                 make_arenas(trainer, e) || (options->room && options->room(options->context, e));
    return agree(&meeting, failed, e);
}

struct trainer *trainer_create(const struct model *model, const struct trainer_options *options,
                               struct muster_error *err)
{
    if (trainer_check_options(options, err))
        return NULL;
    GUARD(guard_trainer) struct trainer *trainer = mem_calloc(1, sizeof *trainer);
    if (!trainer) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a trainer");
        return NULL;
    }
    trainer->model = model;
    trainer->rank = options->rank;
    trainer->world_size = options->world_size;
    trainer->timeout_ns = options->timeout_ns;
    trainer->threads = options->threads;
    trainer->seed = options->seed;
    trainer->stops = options->stop_on_nonfinite;
    trainer->found = mem_calloc((size_t)options->world_size, sizeof *trainer->found);
    if (!trainer->found) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a trainer");
        return NULL;
    }
    const struct loss_scale_options *scale = &options->loss_scale;
    trainer->scale_options = scale->fixed > 0 || scale->initial > 0 ? *scale : loss_scale_defaults();
    loss_scale_begin(&trainer->scale_options, &trainer->scale);
    if (trainer_prepare(trainer, options, err) || make_comms(trainer, options, err))
        return NULL;
    trainer->losses = mem_calloc((size_t)trainer->plan.forward_micros, sizeof *trainer->losses);
    if (!trainer->losses) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a trainer");
        return NULL;
    }
    trainer->parts = (struct executor_parts){.model = model,
                                             .plan = &trainer->plan,
                                             .ops = trainer->ops,
                                             .device = trainer->device,
                                             .kernels = trainer->kernels,
                                             .arenas = trainer->arenas,
                                             .streams = trainer->streams,
                                             .comms = &trainer->comms,
                                             .guard = &trainer->guard,
                                             .graphs = options->graphs};
    trainer->executor = executor_create(&trainer->parts, err);
    trainer->wire = plan_wire_bytes(&trainer->plan);
    trainer->draw = trainer_draw_first;
    if (!trainer->executor || (!options->draws_late && trainer_draw(trainer, err)) ||
        trainer_begin_compression(trainer, err))
        return NULL;
    return take_pointer(&trainer);
}

void trainer_destroy(struct trainer *trainer)
{
    if (!trainer)
        return;
    /* Streams may still wait for peers only after a failure, and then the comms are aborted. */
    trainer_drain(trainer);
    executor_destroy(trainer->executor);
    comm_table_destroy(&trainer->comms);
    trainer_trace_free(trainer->trace);
    for (int i = 0; i < STREAM_COUNT; i++) {
        if (trainer->streams[i])
            trainer->ops->stream_destroy(trainer->streams[i]);
    }
    for (int i = 0; i < MEMORY_CLASS_COUNT; i++) {
        if (trainer->arenas[i].base)
            trainer->ops->arena_destroy(trainer->device, &trainer->arenas[i]);
    }
    plan_free(&trainer->plan);
    if (trainer->device)
        trainer->ops->close(trainer->device);
    mem_free(trainer->found);
    mem_free(trainer->losses);
    mem_free(trainer);
}

/* ---- a run that goes on after a failure ---- */

int trainer_rejoin(struct trainer *trainer, const struct trainer_options *options, struct muster_error *err)
{
    struct muster_error local = {0};
    struct muster_error *e = err ? err : &local;
    const struct agree_options meeting = {.store = options->store,
                                          .key = trainer_key(options),
                                          .rank = options->rank,
                                          .size = options->world_size,
                                          .timeout_ns = options->timeout_ns};
    if (!trainer->ops->mend || trainer->parts.graphs)
        return error_set(e, MUSTER_E_UNSUPPORTED, "device %s cannot go on after a failure",
                         trainer->ops->name);
    trainer_stop(trainer);
    struct executor *executor = NULL;
    if (agree(&meeting, 0, e) || make_comms(trainer, options, e) ||
        !(executor = executor_create(&trainer->parts, e))) {
        trainer->broken = *e;
        return -1;
    }
    executor_destroy(trainer->executor); /* it was asked before which operations have run */
    trainer->executor = executor;
    return 0;
}

/* ---- a step ---- */

static int check_values(const struct trainer *trainer, const struct trainer_step_values *values,
                        struct muster_error *err)
{
    if (values->global_tokens < 1)
        return error_set(err, MUSTER_E_INVALID, "global_tokens is %lld, but a step needs at least one token",
                         (long long)values->global_tokens);
    if (values->clip_norm > 0 && !trainer->plan.options.clip)
        return error_set(err, MUSTER_E_INVALID,
                         "clip_norm is %g, but the trainer was planned without clipping: set plan.clip",
                         values->clip_norm);
    return 0;
}

/* Handles a gradient that is not finite, the same on every rank. */
static int look_at_gradients(struct trainer *trainer, struct trainer_stats *stats, struct muster_error *err)
{
    const bool dynamic = trainer->scales && !(trainer->scale_options.fixed > 0);
    stats->nonfinite_param = stats->nonfinite_rank = -1;
    if (stats->skipped && trainer_nonfinite(trainer, &stats->nonfinite_param, &stats->nonfinite_rank, err))
        return -1;
    const char *name = "no single parameter";
    if (stats->nonfinite_param >= 0)
        name = trainer->model->params[stats->nonfinite_param].name;
    if (trainer->scales &&
        loss_scale_step(&trainer->scale_options, stats->skipped, &trainer->scale, err) < 0) {
        (void)error_wrap(err, "gradient of %s on rank %d", name,
                         stats->nonfinite_rank); /* -1, as we return */
        return trainer_break(trainer, err, "loss scale");
    }
    if (!stats->skipped || !trainer->stops || dynamic)
        return 0;
    (void)error_set(
        err, MUSTER_E_STATE,
        "step %lld: the gradient of %s is not finite, on rank %d first; lower the learning rate, or "
        "let such steps be skipped",
        (long long)trainer->steps, name, stats->nonfinite_rank);
    return trainer_break(trainer, err, "gradients");
}

int trainer_step(struct trainer *trainer, const struct batch *batch, const struct trainer_step_values *values,
                 struct trainer_stats *stats, struct muster_error *err)
{
    struct muster_error local = {0};
    struct muster_error *e = err ? err : &local; /* the run keeps its error even if the caller ignores it */
    if (trainer_writable(trainer, e) || check_values(trainer, values, e) || trainer_draw(trainer, e))
        return -1;
    struct device_stream *compute = trainer->streams[STREAM_COMPUTE];
    int64_t comm = comm_table_busy_ns(&trainer->comms), waited = trainer->ops->stream_waited_ns(compute);
    struct instant start = clock_now(NULL);
    trainer->stepping = trainer->steps + 1;
    trainer->whole = true;
    trainer->able = false;
    trainer_trace_begin(trainer, start);
    trainer_write_input(trainer, values);
    const struct plan_options *plan = &trainer->plan.options;
    trainer_write_batches(trainer, batch, plan->micro_batches,
                          (int64_t)plan->micro_batches * plan->shape.B - values->missing, false);
    /* Waits only for the compute stream: gathers for the next step may go on during the caller's work and the
     * next step. */
    executor_compress(trainer->executor, trainer_compresses(trainer));
    if (executor_run(trainer->executor, e) || trainer_await(trainer, STREAM_COMPUTE, e) ||
        trainer->ops->poll_error(trainer->device, e)) {
        char what[48];
        (void)snprintf(what, sizeof what, "step %lld", (long long)trainer->steps);
        return trainer_break(trainer, e, what);
    }
    struct trainer_stats found = {
        .step_ns = instant_diff_ns(clock_now(NULL), start),
        .comm_ns = comm_table_busy_ns(&trainer->comms) - comm,
    };
    waited = trainer->ops->stream_waited_ns(compute) - waited;
    if (is_staged(trainer)) /* the caller waits and cannot enqueue */
        waited = found.comm_ns;
    found.exposed_ns = waited < found.comm_ns ? waited : found.comm_ns;
    trainer_read_stats(trainer, values, &found);
    trainer->steps++;
    trainer->stepping = 0;
    trainer->updates += !found.skipped;
    trainer_trace_end(trainer, &found);
    trainer->stepped_scale = found.loss_scale;
    if (look_at_gradients(trainer, &found, e))
        return -1;
    if (stats)
        *stats = found;
    return 0;
}

/* ---- state for callers ---- */

void trainer_fingerprint(const struct trainer *trainer, struct fingerprint *fingerprint)
{
    const struct plan_options *plan = &trainer->plan.options;
    *fingerprint = (struct fingerprint){
        .world_size = trainer->world_size,
        .mesh_pipeline = plan->mesh.side[SIDE_PIPELINE],
        .mesh_replicate = plan->mesh.side[SIDE_REPLICATE],
        .mesh_shard = plan->mesh.side[SIDE_SHARD],
        .threads = trainer->threads,
        .batch = plan->shape.B,
        .positions = plan->shape.T,
        .micro_batches = plan->micro_batches,
    };
    const bool compresses = plan->compression.kind != COMPRESSION_NONE;
    struct fingerprint *f = fingerprint; /* truncated texts are truncated identically every time */
    (void)snprintf(f->strategy, sizeof f->strategy, "%s", strategy_name(plan->strategy));
    (void)snprintf(f->kernels, sizeof f->kernels, "%s %s", trainer->kernels->name,
                   dtype_name(trainer->kernels->value));
    (void)snprintf(f->dtypes, sizeof f->dtypes, "%s, reduced in %s%s%s", dtype_name(plan->param_dtype),
                   dtype_name(plan->reduce_dtype), compresses ? ", replicas exchange " : "",
                   compresses ? compression_name(plan->compression.kind) : "");
    plan_embedding_text(trainer->model, &trainer->plan, f->embedding, sizeof f->embedding);
    (void)snprintf(f->blas, sizeof f->blas, "%s",
                   trainer->ops->host_memory ? kernels_cpu_library(trainer->kernels) : trainer->ops->name);
    const struct comm_ops *comm = trainer->comms.ops;
    /* The same sums, bit for bit: the model does not depend on the ranks' placement. */
    if (comm == comm_tcp() || comm == comm_node() || is_staged(trainer))
        comm = comm_shm();
    (void)snprintf(f->comm, sizeof f->comm, "%s, sum in rank order", comm ? comm->name : "none");
}

const struct model *trainer_model(const struct trainer *trainer)
{
    return trainer->model;
}

const char *trainer_attention(const struct trainer *trainer)
{
    return trainer->attention;
}

const struct kernels *trainer_kernels(const struct trainer *trainer)
{
    return trainer->kernels;
}

const struct plan *trainer_plan(const struct trainer *trainer)
{
    return &trainer->plan;
}

char *trainer_checkpoint_memory(const struct trainer *trainer)
{
    const int entry = trainer->plan.checkpoint;
    return entry < 0 ? NULL : executor_address(&trainer->parts, entry, 0);
}

int64_t trainer_arena_bytes(const struct trainer *trainer, enum memory_class memory)
{
    return trainer->arenas[memory].bytes;
}
