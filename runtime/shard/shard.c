/* shard.c - the object of muster_shard.h: options, registration, memory, the comparison of the ranks. */
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/processor/processor.h"
#include "runtime/comm/comm_text.h"
#include "runtime/device/host_threads.h"
#include "runtime/shard/shard_fault.h"
#include "runtime/shard/shard_internal.h"
#include "runtime/world/agree.h"
#include "runtime/world/world.h"

GUARD_DEFINE(muster_shard, struct muster_shard *, muster_shard_destroy);

/* ---- options ---- */

void muster_shard_defaults(struct muster_shard_options *options)
{
    *options = (struct muster_shard_options){.size = sizeof *options,
                                             .dtype = MUSTER_SHARD_F32,
                                             .optimizer = MUSTER_SHARD_ADAMW,
                                             .prefetch = 1,
                                             .gradient_slots = 3,
                                             .param_dtype = MUSTER_SHARD_SAME,
                                             .reduce_dtype = MUSTER_SHARD_SAME};
}

/* 16 bits below fp32; a gradient that travels in more bits than the update reads would gain nothing. */
static int check_dtypes(const struct muster_shard_options *o, struct muster_error *err)
{
    const int32_t others[] = {o->param_dtype, o->reduce_dtype};
    for (int i = 0; i < 2; i++) {
        bool narrow = others[i] == MUSTER_SHARD_BF16 || others[i] == MUSTER_SHARD_F16;
        if (others[i] != MUSTER_SHARD_SAME && others[i] != o->dtype &&
            !(narrow && o->dtype == MUSTER_SHARD_F32))
            return error_set(err, MUSTER_E_UNSUPPORTED,
                             "%s is neither dtype nor 16 bits with a dtype of fp32: masters of fp32 can be "
                             "gathered and reduced as fp32, bf16 or fp16, those of fp64 as fp64",
                             i ? "reduce_dtype" : "param_dtype");
    }
    return 0;
}

static int check_options(const struct muster_shard_options *o, struct muster_error *err)
{
    const struct {
        const char *name;
        int64_t value, low, high;
    } limits[] = {
        {"dtype", o->dtype, MUSTER_SHARD_F32, MUSTER_SHARD_F64},
        {"optimizer", o->optimizer, 0, MUSTER_SHARD_ADAMW},
        {"prefetch", o->prefetch, 0, SHARD_PREFETCH_MAX},
        {"threads", o->threads, 0, HOST_THREADS_MAX},
        {"gradient_slots", o->gradient_slots ? o->gradient_slots : -2, -1, SHARD_GROUPS_MAX},
        {"param_dtype", o->param_dtype, MUSTER_SHARD_SAME, MUSTER_SHARD_F16},
        {"reduce_dtype", o->reduce_dtype, MUSTER_SHARD_SAME, MUSTER_SHARD_F16},
        {"replicas", o->replicas, -1, INT32_MAX},
        {"timeout_ms", o->timeout_ms, 0, INT64_MAX / NS_PER_MS},
    };
    if (o->size != sizeof *o)
        return error_set(err, MUSTER_E_INVALID,
                         "struct muster_shard_options is %u bytes, but this library's is %zu: set its size, "
                         "and build against this library's muster_shard.h",
                         o->size, sizeof *o);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        if (limits[i].value < limits[i].low || limits[i].value > limits[i].high)
            return error_set(err, MUSTER_E_INVALID, "%s is %lld, but must be from %lld to %lld",
                             limits[i].name, (long long)(limits[i].value == -2 ? 0 : limits[i].value),
                             (long long)limits[i].low, (long long)limits[i].high);
    }
    return check_dtypes(o, err);
}

static enum dtype dtype_of(int32_t dtype, enum dtype same)
{
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F64, DTYPE_BF16, DTYPE_F16};
    return dtype == MUSTER_SHARD_SAME ? same : dtypes[dtype];
}

struct muster_shard *muster_shard_create(struct muster_world *world,
                                         const struct muster_shard_options *options, struct muster_error *err)
{
    if (processor_check(err) || check_options(options, err))
        return NULL;
    struct muster_shard *shard = mem_calloc(1, sizeof *shard);
    if (!shard) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a sharded model");
        return NULL;
    }
    shard->options = *options;
    shard->world = world;
    shard->timeout_ns = options->timeout_ms ? options->timeout_ms * NS_PER_MS : world_timeout_ns(world);
    shard->dtype = options->dtype == MUSTER_SHARD_F64 ? DTYPE_F64 : DTYPE_F32;
    shard->param_dtype = dtype_of(options->param_dtype, shard->dtype);
    shard->reduce_dtype = dtype_of(options->reduce_dtype, shard->param_dtype);
    shard->layout.element_bytes = dtype_size(shard->param_dtype);
    shard->layout.gradient_bytes = dtype_size(shard->reduce_dtype);
    shard->ops = device_cpu();
    if (shard_place(shard, err) == 0)
        return shard;
    mem_free(shard);
    return NULL;
}

/* ---- registration ---- */

static int check_open(const struct muster_shard *shard, const char *name, struct muster_error *err)
{
    if (!name)
        return error_set(err, MUSTER_E_INVALID, "a group or parameter without a name");
    if (shard->ready || shard->device)
        return error_set(err, MUSTER_E_STATE,
                         "%s is registered after muster_shard_ready: register everything before it", name);
    return 0;
}

int muster_shard_group(struct muster_shard *shard, const char *name, int frozen, struct muster_error *err)
{
    return check_open(shard, name, err) ? -1 : shard_layout_group(&shard->layout, name, frozen != 0, err);
}

int muster_shard_parameter(struct muster_shard *shard, const char *name, int64_t elements,
                           int parameter_class, struct muster_error *err)
{
    if (check_open(shard, name, err))
        return -1;
    if (parameter_class < 0 || parameter_class >= MUSTER_SHARD_CLASSES)
        return error_set(err, MUSTER_E_INVALID, "parameter %s has the class %d, but classes are 0 to %d",
                         name, parameter_class, MUSTER_SHARD_CLASSES - 1);
    return shard_layout_parameter(&shard->layout, name, elements, parameter_class, err);
}

/* ---- memory ---- */

static int state_kinds(const struct muster_shard_options *o)
{
    switch (o->optimizer) {
    case MUSTER_SHARD_ADAM:
    case MUSTER_SHARD_ADAMW:
        return 3;
    case MUSTER_SHARD_SGD:
        return o->momentum ? 2 : 1;
    default:
        return 1;
    }
}

static int make_lists(struct muster_shard *shard, struct muster_error *err)
{
    size_t groups = (size_t)shard->layout.group_count, params = (size_t)shard->layout.param_count;
    shard->runs = mem_calloc(groups, sizeof *shard->runs);
    shard->has_gradient = mem_calloc(params, sizeof *shard->has_gradient);
    shard->updates = mem_calloc(params, sizeof *shard->updates);
    shard->update = (struct shard_update){.shard = shard, .totals = mem_calloc(1 + params, sizeof(double))};
    if (!shard->runs || !shard->has_gradient || !shard->updates || !shard->update.totals ||
        shard_core_init(&shard->core, (int)groups, shard->options.prefetch))
        return error_set(err, MUSTER_E_NOMEM, "no memory for %zu groups and %zu parameters", groups, params);
    for (size_t i = 0; i < groups; i++)
        shard->runs[i].grad_slot = -1;
    return 0;
}

static int make_memory(struct muster_shard *shard, struct muster_error *err)
{
    const struct shard_layout *layout = &shard->layout;
    shard->state_kinds = state_kinds(&shard->options);
    if (shard->ops->arena_create(shard->device, MEMORY_COMM, layout->part_elements * layout->element_bytes,
                                 &shard->parts, err))
        return error_wrap(err, "this rank's part of the parameters");
    int64_t element = dtype_size(shard->dtype), state = shard->state_kinds * layout->state_elements * element;
    if (shard_has_masters(shard) &&
        shard->ops->arena_create(shard->device, MEMORY_DEVICE, layout->part_elements * element,
                                 &shard->masters, err))
        return error_wrap(err, "this rank's masters of the parameters");
    if (state && shard->ops->arena_create(shard->device, MEMORY_DEVICE, state, &shard->state, err))
        return error_wrap(err, "this rank's gradients and optimizer state");
    if (shard_gradients_create(shard, err))
        return -1;
    return layout->size > 1 ? shard_ranges_create(&shard->ranges, layout, 1 + shard->options.prefetch, err)
                            : 0;
}

static int make_streams(struct muster_shard *shard, struct muster_error *err)
{
    shard->compute = shard->ops->stream_create(shard->device, "shard-optimizer", true, err);
    return !shard->compute || shard_tracker_open(shard, &shard->gathers, "shard-gather", err) ||
                   shard_tracker_open(shard, &shard->reductions, "shard-reduce", err)
               ? -1
               : 0;
}

/* The local part: a rank that fails here keeps no other waiting. */
static int prepare(struct muster_shard *shard, struct muster_error *err)
{
    int local_size = shard->world ? muster_world_local_size(shard->world) : 1;
    int threads = shard->options.threads ? shard->options.threads : host_threads(local_size);
    if (shard_layout_finish(&shard->layout, err))
        return -1;
    shard->device = shard->ops->open(shard->world ? muster_world_local_rank(shard->world) : 0, threads, err);
    if (!shard->device)
        return -1;
    shard->kernels = shard->dtype == DTYPE_F64 ? kernels_ref_f64() : shard->ops->kernels(shard->device);
    return make_lists(shard, err) || make_memory(shard, err) || make_streams(shard, err) ? -1 : 0;
}

/* ---- the ranks ---- */

struct registration {
    int64_t groups, params;
    int32_t dtype, param_dtype, reduce_dtype, optimizer, momentum, prefetch, replicas;
};

static int differs(const struct muster_shard *shard, const char *what, int rank, int64_t mine, int64_t theirs,
                   struct muster_error *err)
{
    return error_set(
        err, MUSTER_E_REFUSED,
        "ranks register different models: rank %d has %lld %s, rank %d has %lld; register the same "
        "groups and parameters in the same order, with the same options, on every rank",
        shard->rank, (long long)mine, what, rank, (long long)theirs);
}

static int compare_counts(struct muster_shard *shard, struct muster_error *err)
{
    const struct registration mine = {.groups = shard->layout.group_count,
                                      .params = shard->layout.param_count,
                                      .dtype = shard->options.dtype,
                                      .param_dtype = (int32_t)shard->param_dtype,
                                      .reduce_dtype = (int32_t)shard->reduce_dtype,
                                      .optimizer = shard->options.optimizer,
                                      .momentum = shard->options.momentum,
                                      .prefetch = shard->options.prefetch,
                                      .replicas = shard->replicas};
    int size = shard->size;
    scope_free struct registration *all = mem_calloc((size_t)size, sizeof *all);
    if (!all)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the registrations of %d ranks", size);
    const struct comm_op op = {.kind = COMM_ALL_GATHER, .dtype = DTYPE_U8, .count = sizeof mine};
    if (shard_collective(shard, &shard->all, &op, &mine, all, err))
        return -1;
    for (int rank = 0; rank < size; rank++) {
        const struct registration *r = &all[rank];
        if (r->groups != mine.groups)
            return differs(shard, "groups", rank, mine.groups, r->groups, err);
        if (r->dtype != mine.dtype)
            return differs(shard, "as its dtype", rank, mine.dtype, r->dtype, err);
        if (r->param_dtype != mine.param_dtype)
            return differs(shard, "as its param_dtype", rank, mine.param_dtype, r->param_dtype, err);
        if (r->reduce_dtype != mine.reduce_dtype)
            return differs(shard, "as its reduce_dtype", rank, mine.reduce_dtype, r->reduce_dtype, err);
        if (r->optimizer != mine.optimizer || r->momentum != mine.momentum)
            return differs(shard, "as its optimizer", rank, mine.optimizer, r->optimizer, err);
        if (r->prefetch != mine.prefetch)
            return differs(shard, "gathers ahead (prefetch)", rank, mine.prefetch, r->prefetch, err);
        if (r->replicas != mine.replicas)
            return differs(shard, "replicas", rank, mine.replicas, r->replicas, err);
    }
    return 0;
}

static int compare_groups(struct muster_shard *shard, struct muster_error *err)
{
    const struct shard_layout *layout = &shard->layout;
    size_t count = (size_t)layout->group_count, size = (size_t)shard->size;
    scope_free uint64_t *mine = mem_calloc(count, sizeof *mine), *all = mem_calloc(count * size, sizeof *all);
    if (!mine || !all)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the registrations of %zu ranks", size);
    for (size_t i = 0; i < count; i++)
        mine[i] = shard_layout_hash(layout, (int)i);
    const struct comm_op op = {
        .kind = COMM_ALL_GATHER, .dtype = DTYPE_U8, .count = (int64_t)(count * sizeof *mine)};
    if (shard_collective(shard, &shard->all, &op, mine, all, err))
        return -1;
    for (size_t group = 0; group < count; group++) {
        struct comm_ranks others = {0};
        for (size_t rank = 0; rank < size; rank++) {
            if (all[rank * count + group] != mine[group])
                comm_ranks_add(&others, (int)rank);
        }
        if (others.count)
            return error_set(
                err, MUSTER_E_REFUSED,
                "group %zu (%s here, with %d parameters) is registered differently on rank %s than "
                "on rank %d: names, sizes, order and classes of parameters have to be equal",
                group, layout->groups[group].name, layout->groups[group].param_count,
                comm_ranks_text(&others), shard->rank);
    }
    return 0;
}

/* Objects of one world are told apart by the order in which they are made. */
static int key_of(const struct muster_shard *shard, char *out, size_t size, struct muster_error *err)
{
    const struct kv_store *store = shard->world ? world_store(shard->world) : NULL;
    char counter[64];
    int64_t use = 1;
    (void)snprintf(counter, sizeof counter, "shard/uses-by-%d", shard->rank); /* fits */
    if (store && store->add(store->ctx, counter, 1, &use, err))
        return -1;
    (void)snprintf(out, size, "shard.%lld", (long long)use); /* fits */
    return 0;
}

int muster_shard_ready(struct muster_shard *shard, struct muster_error *err)
{
    struct muster_error local = {0},
                        *e = err ? err : &local; /* the others get it even if the caller does not */
    char key[64];
    if (shard->ready || shard->device)
        return error_set(err, MUSTER_E_STATE, "muster_shard_ready was called before");
    if (key_of(shard, key, sizeof key, e))
        return -1;
    const struct agree_options everybody = {.store = shard->world ? world_store(shard->world) : NULL,
                                            .key = key,
                                            .rank = shard->rank,
                                            .size = shard->size,
                                            .timeout_ns = shard->timeout_ns};
    if (agree(&everybody, prepare(shard, e), e) || shard_connect(shard, key, e) || compare_counts(shard, e) ||
        compare_groups(shard, e) || shard_connect_parts(shard, e))
        return -1;
    shard->ready = true;
    return 0;
}

/* ---- the end ---- */

/* A gather ahead that the others do not join is given up. */
static void stop_streams(struct muster_shard *shard)
{
    struct device_stream *streams[] = {shard->compute, shard->gathers.stream, shard->reductions.stream};
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++) {
        struct instant deadline = instant_add(clock_now(NULL), NS_PER_S);
        if (!streams[i] || !shard->ops->sync(streams[i], deadline, NULL))
            continue;
        shard_abort(shard);
        (void)shard->ops->sync(streams[i], INSTANT_NEVER, NULL); /* the error was reported by earlier calls */
    }
}

static void close_device(struct muster_shard *shard)
{
    struct device_arena *arenas[] = {&shard->gradients, &shard->state, &shard->masters, &shard->parts};
    shard->ops->stream_destroy(shard->reductions.stream);
    shard->ops->stream_destroy(shard->gathers.stream);
    shard->ops->stream_destroy(shard->compute);
    for (size_t i = 0; i < sizeof arenas / sizeof *arenas; i++) {
        if (arenas[i]->base)
            shard->ops->arena_destroy(shard->device, arenas[i]);
    }
    shard->ops->close(shard->device);
}

void muster_shard_destroy(struct muster_shard *shard)
{
    if (!shard)
        return;
    if (shard->device) {
        stop_streams(shard);
        shard_disconnect(shard);
        close_device(shard);
    }
    shard_fault_forget(&shard->ranges);
    shard_ranges_destroy(&shard->ranges);
    shard_core_free(&shard->core);
    shard_layout_free(&shard->layout);
    mem_free(shard->runs);
    mem_free(shard->grad_slots);
    mem_free(shard->has_gradient);
    mem_free(shard->updates);
    mem_free(shard->update.totals);
    mem_free(shard);
}
