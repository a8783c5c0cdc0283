/* fsdp_step - optimizer steps of a sharded GPT-2 124M, for fsdp.py, or of one in stages, for pipeline.py.
 *
 *     fsdp_step [--strategy FULL_SHARD] [--batch 1] [--positions 256] [--micro 1] [--threads 1] [--layers 12]
 *               [--clip 1] [--dense 0] [--pipeline 1] [--delay PICOSECONDS_PER_BYTE]
 *
 * One rank of the world that the environment describes (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), over
 * shared memory; with --delay alone as a rank of two, whose communication takes time and no processor.
 *
 * Prints the bytes that it receives in a step, how many more these are than without sharding, and the first
 * layer of each later stage. Then it
 * reads lines from stdin and answers each with "STEP_NS COMM_NS EXPOSED_NS COPY_NS": a step, and then copies
 * of those more bytes alone. At end of file it ends. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"
#include "runtime/comm/comm_internal.h"
#include "runtime/model/architectures.h"
#include "runtime/model/rng.h"
#include "runtime/plan/plan_cut.h"
#include "runtime/train/trainer.h"
#include "runtime/world/world.h"

struct settings {
    int batch, positions, micro, threads, layers, clip, dense, pipeline;
    int64_t delay; /* picoseconds a byte; -1: a real world */
    enum strategy strategy;
};

GUARD_DEFINE(trainer, struct trainer *, trainer_destroy);

/* Copies between two arrays that no cache holds. */
enum { COPY_BYTES = 64 << 20 };
struct copies {
    char *from, *to;
    int64_t bytes, taken_ns;
};

static void copies_run(void *argument)
{
    struct copies *c = argument;
    struct instant start = clock_now(NULL);
    for (int64_t left = c->bytes; left > 0; left -= COPY_BYTES)
        memcpy(c->to, c->from, (size_t)(left < COPY_BYTES ? left : COPY_BYTES));
    c->taken_ns = instant_diff_ns(clock_now(NULL), start);
}

static int64_t received_bytes(const struct plan *plan)
{
    int64_t bytes = 0;
    for (int i = 0; i < plan->op_count; i++)
        if (plan->ops[i].kind == OP_COMM)
            bytes += comm_received_bytes(&plan->ops[i].comm, mesh_size(plan->options.mesh));
    return bytes;
}

/* Without sharding every gradient is all-reduced once. */
static int64_t unsharded_bytes(const struct plan *plan)
{
    const int ranks = mesh_size(plan->options.mesh);
    int64_t bytes = 0;
    for (int g = 0; g < plan->group_count; g++)
        bytes += plan->groups[g].padded * dtype_size(plan->options.dtype);
    return 2 * bytes * (ranks - 1) / ranks;
}

static int answer(struct trainer *trainer, const struct settings *s, int rank, struct muster_error *err)
{
    const struct plan *plan = trainer_plan(trainer);
    const int place = mesh_line(plan->options.mesh, AXIS_DATA, rank).place; /* stages have the same samples */
    const size_t count = (size_t)s->batch * (size_t)s->positions * (size_t)s->micro;
    scope_free int32_t *tokens = mem_calloc(count, sizeof *tokens),
                       *targets = mem_calloc(count, sizeof *targets);
    scope_free char *from = mem_calloc(COPY_BYTES, 1), *to = mem_calloc(COPY_BYTES, 1);
    struct copies copies = {from, to, received_bytes(plan) - unsharded_bytes(plan), 0};
    if (!tokens || !targets || !from || !to)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a batch");
    memset(from, 1, COPY_BYTES);
    memset(to, 2, COPY_BYTES);
    printf("%lld %lld", (long long)received_bytes(plan), (long long)copies.bytes);
    const struct model *model = trainer_model(trainer);
    for (int l = 1; l < model->layer_count; l++)
        if (model->layers[l].part > model->layers[l - 1].part)
            printf(" %d", l);
    printf("\n");
    const struct trainer_step_values values = {.learning_rate = 1e-4,
                                               .weight_decay = 0.1,
                                               .beta1 = 0.9,
                                               .beta2 = 0.95,
                                               .epsilon = 1e-8,
                                               .clip_norm = s->clip,
                                               .global_tokens = (int64_t)count *
                                                                mesh_size(plan->options.mesh) / s->pipeline};
    char line[64];
    for (uint64_t round = 0; !fflush(stdout) && fgets(line, sizeof line, stdin); round++) {
        struct trainer_stats stats;
        for (size_t i = 0; i < count; i++) {
            tokens[i] = (int32_t)(rng_bits(round, RNG_SAMPLE, (uint32_t)place, i) % 50257);
            targets[i] = (int32_t)(rng_bits(round, RNG_SAMPLE, (uint32_t)place + 64, i) % 50257);
        }
        if (trainer_step(trainer, &(struct batch){{tokens, targets}}, &values, &stats, err))
            return -1;
        /* What waits between the steps would hide gathers for the next one. */
        if (s->delay < 0 && trainer_run(trainer, copies_run, &copies, err))
            return -1;
        printf("%lld %lld %lld %lld\n", (long long)stats.step_ns, (long long)stats.comm_ns,
               (long long)stats.exposed_ns, (long long)copies.taken_ns);
    }
    return ferror(stdout) ? error_errno(err, "standard output") : 0;
}

static int run(const struct settings *s, struct muster_error *err)
{
    const struct gpt2_config config = {
        .layers = s->layers, .channels = 768, .heads = 12, .vocab = 50257, .max_positions = 1024};
    struct muster_world *world = s->delay < 0 ? muster_world_open(NULL, err) : NULL;
    if (s->delay < 0 && !world)
        return -1;
    const int rank = world ? muster_world_rank(world) : 0, size = world ? muster_world_size(world) : 2;
    const struct comm_delay_options delay = {.ns_per_byte = (double)s->delay / 1000};
    struct trainer_options options = {
        .plan = {.strategy = s->strategy,
                 .mesh = MESH(s->pipeline, 1, size / s->pipeline),
                 .shape = {s->batch, s->positions},
                 .micro_batches = s->micro,
                 .prefetch_forward = 2,
                 .prefetch_backward = 2,
                 .clip = s->clip,
                 .embedding_gradient = s->dense ? EMBEDDING_DENSE : EMBEDDING_AUTO,
                 .train = true},
        .rank = rank,
        .world_size = size,
        .local_rank = rank,
        .local_world_size = size,
        .threads = s->threads,
        .store = world ? world_store(world) : NULL,
        .delay = world ? NULL : &delay,
        .timeout_ns = 600 * NS_PER_S,
        .seed = 1,
    };
    int failed = -1;
    {
        GUARD(guard_model) struct model *model = gpt2_create(&config, err);
        const struct plan_cut cut = {.stages = s->pipeline};
        options.plan.kernels = kernels_cpu(~0U); /* for the cut */
        const int cut_failed = !model || plan_cut_model(model, &options.plan, &cut, err) < 0;
        options.plan.kernels = NULL;
        GUARD(guard_trainer)
        struct trainer *trainer = cut_failed ? NULL : trainer_create(model, &options, err);
        if (trainer)
            failed = answer(trainer, s, rank, err);
    }
    muster_world_close(&world);
    return failed;
}

static int read_settings(int argc, char **argv, struct settings *s)
{
    const struct {
        const char *name;
        int *value;
    } flags[] = {{"--batch", &s->batch},     {"--positions", &s->positions}, {"--micro", &s->micro},
                 {"--threads", &s->threads}, {"--layers", &s->layers},       {"--clip", &s->clip},
                 {"--dense", &s->dense},     {"--pipeline", &s->pipeline}};
    const size_t flag_count = sizeof flags / sizeof *flags;
    for (int i = 1; i < argc; i += 2) {
        int64_t value = 0;
        size_t flag = 0;
        while (flag < flag_count && strcmp(flags[flag].name, argv[i]))
            flag++;
        if (i + 1 == argc)
            return -1;
        if (!strcmp(argv[i], "--strategy")) {
            s->strategy = STRATEGY_NO_SHARD;
            while (s->strategy < STRATEGY_COUNT && strcmp(strategy_name(s->strategy), argv[i + 1]))
                s->strategy++;
            if (s->strategy == STRATEGY_COUNT)
                return -1;
        } else if (!text_int64(argv[i + 1], &value) || value < 0 || value > 1 << 20) {
            return -1;
        } else if (!strcmp(argv[i], "--delay")) {
            s->delay = value;
        } else if (flag < flag_count) {
            *flags[flag].value = (int)value;
        } else {
            return -1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct settings s = {.batch = 1,
                         .positions = 256,
                         .micro = 1,
                         .threads = 1,
                         .layers = 12,
                         .clip = 1,
                         .pipeline = 1,
                         .delay = -1,
                         .strategy = STRATEGY_FULL_SHARD};
    struct muster_error err = {0};
    if (read_settings(argc, argv, &s)) {
        fprintf(stderr, "fsdp_step: unknown option or value; see the head of fsdp_step.c\n");
        return 2;
    }
    if (run(&s, &err)) {
        fprintf(stderr, "fsdp_step: %s\n", err.text);
        return 1;
    }
    return 0;
}
