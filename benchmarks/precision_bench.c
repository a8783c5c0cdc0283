/* precision_bench - the effect of 16 bits in transit on a training step on CPUs.
 *
 *     precision_bench [LAYERS [POSITIONS [ROUNDS [TRANSPORT]]]]    defaults: 4, 64, 9, shm
 *
 * GPT-2 of 768 channels, FULL_SHARD on two ranks (threads of this process, one compute thread each), 4 rows.
 * Every round takes one step of each combination of dtypes, in turn, so that all see the same machine.
 * TRANSPORT tcp: the ranks talk over loopback. Prints medians: the step, the time of its collectives and
 * the compute stream's wait for them, the bytes that a rank receives, and the ratios to fp32. The
 * limit is arithmetic: products are fp32 in all of them, so that only the time of traffic can be saved. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benchmarks/support/figures.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"
#include "rendezvous/store/kv_memory.h"
#include "runtime/model/architectures.h"
#include "runtime/model/rng.h"
#include "runtime/train/trainer.h"
#include "tests/support/rank_threads.h"

enum { RANKS = 2, ROWS = 4, ROUNDS_LIMIT = 100 };

static const struct combination {
    const char *name;
    enum dtype param, reduce;
} combinations[] = {
    {"fp32", DTYPE_F32, DTYPE_F32},
    {"bf16", DTYPE_BF16, DTYPE_BF16},
    {"bf16, reduced in fp32", DTYPE_BF16, DTYPE_F32},
    {"fp16", DTYPE_F16, DTYPE_F16},
};
enum { COMBINATIONS = sizeof combinations / sizeof *combinations };

struct bench {
    struct gpt2_config config;
    int positions, rounds;
    const struct comm_ops *comm;
    struct kv_store store;
    int64_t step[COMBINATIONS][ROUNDS_LIMIT], moved[COMBINATIONS][ROUNDS_LIMIT],
        exposed[COMBINATIONS][ROUNDS_LIMIT];
    int64_t traffic[COMBINATIONS], planned[COMBINATIONS];
};

/* Bytes that a rank gets from others in a step. */
static int64_t traffic_of(const struct plan *plan)
{
    int64_t bytes = 0;
    for (int i = 0; i < plan->op_count; i++) {
        const struct schedule_op *op = &plan->ops[i];
        if (op->kind == OP_COMM)
            bytes += op->comm.count * dtype_size(op->comm.dtype) * (RANKS - 1);
    }
    return bytes;
}

GUARD_DEFINE(trainer, struct trainer *, trainer_destroy);

static struct trainer *make_trainer(struct bench *b, const struct model *model, int rank, int which,
                                    struct muster_error *err)
{
    const struct trainer_options options = {
        .plan = {.strategy = STRATEGY_FULL_SHARD,
                 .mesh = MESH(1, 1, RANKS),
                 .shape = {ROWS, b->positions},
                 .micro_batches = 1,
                 .prefetch_forward = 2,
                 .prefetch_backward = 2,
                 .param_dtype = combinations[which].param,
                 .reduce_dtype = combinations[which].reduce,
                 .clip = true,
                 .train = true},
        .rank = rank,
        .world_size = RANKS,
        .local_rank = rank,
        .local_world_size = RANKS,
        .threads = 1,
        .comm = b->comm,
        .store = &b->store,
        .key = combinations[which].name,
        .timeout_ns = 60 * NS_PER_S,
        .seed = 1,
    };
    return trainer_create(model, &options, err);
}

static int run_rounds(struct bench *b, struct trainer *const *trainers, int rank, struct muster_error *err)
{
    size_t count = (size_t)ROWS * (size_t)b->positions;
    scope_free int32_t *tokens = mem_calloc(count, sizeof *tokens);
    if (!tokens)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a batch");
    const struct trainer_step_values values = {.learning_rate = 1e-4,
                                               .weight_decay = 0.1,
                                               .beta1 = 0.9,
                                               .beta2 = 0.95,
                                               .epsilon = 1e-8,
                                               .clip_norm = 1,
                                               .global_tokens = (int64_t)count * RANKS};
    for (int round = -1; round < b->rounds; round++) { /* the first touches all memory */
        for (size_t i = 0; i < count; i++)
            tokens[i] = (int32_t)(rng_bits((uint64_t)(round + 1), RNG_SAMPLE, (uint32_t)rank, i) %
                                  (uint64_t)b->config.vocab);
        for (int c = 0; c < COMBINATIONS; c++) {
            struct trainer_stats stats;
            if (trainer_step(trainers[c], &(struct batch){{tokens, tokens}}, &values, &stats, err))
                return -1;
            if (rank || round < 0)
                continue;
            b->step[c][round] = stats.step_ns;
            b->moved[c][round] = stats.comm_ns;
            b->exposed[c][round] = stats.exposed_ns;
        }
    }
    return 0;
}

static int rank_body(int rank, int ranks, void *context)
{
    struct bench *b = context;
    struct muster_error err = {0};
    struct trainer *trainers[COMBINATIONS] = {NULL};
    GUARD(guard_model) struct model *model = gpt2_create(&b->config, &err);
    int failed = !model;
    (void)ranks;
    for (int c = 0; c < COMBINATIONS && !failed; c++) {
        trainers[c] = make_trainer(b, model, rank, c, &err);
        failed = !trainers[c];
        if (failed || rank)
            continue;
        b->traffic[c] = traffic_of(trainer_plan(trainers[c]));
        for (int i = 0; i < MEMORY_CLASS_COUNT; i++)
            b->planned[c] += trainer_arena_bytes(trainers[c], (enum memory_class)i);
    }
    if (!failed)
        failed = run_rounds(b, trainers, rank, &err) != 0;
    for (int c = 0; c < COMBINATIONS; c++)
        trainer_destroy(trainers[c]);
    if (failed)
        fprintf(stderr, "rank %d: %s\n", rank, err.text);
    return failed ? -1 : 0;
}

static int by_value(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return a < b ? -1 : a > b;
}

static double median_ms(int64_t *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_value);
    return (double)values[count / 2] * 1e-6;
}

static void print_results(struct bench *b)
{
    double step[COMBINATIONS];
    printf("%-24s %9s %9s %9s %10s %10s %8s %8s\n", "", "step ms", "comm ms", "exposed", "MB moved",
           "MB planned", "step", "traffic");
    for (int c = 0; c < COMBINATIONS; c++) {
        double moved = median_ms(b->moved[c], b->rounds), exposed = median_ms(b->exposed[c], b->rounds);
        step[c] = median_ms(b->step[c], b->rounds);
        char figure[128];
        (void)snprintf(figure, sizeof figure, "GPT-2 step on two ranks in %s", combinations[c].name);
        if (c)
            figure_add(figure, "ms", step[c], "the step in fp32", step[0], false);
        printf("%-24s %9.1f %9.1f %9.1f %10.1f %10.1f %7.2fx %7.2fx\n", combinations[c].name, step[c], moved,
               exposed, (double)b->traffic[c] / 1e6, (double)b->planned[c] / 1e6, step[c] / step[0],
               (double)b->traffic[c] / (double)b->traffic[0]);
    }
}

int main(int argc, char **argv)
{
    static struct bench b;
    int64_t numbers[3] = {4, 64, 9};
    for (int i = 0; i < 3 && i + 1 < argc; i++) {
        if (!text_int64(argv[i + 1], &numbers[i]) || numbers[i] < 1 || numbers[i] > 1024)
            return fprintf(stderr, "precision_bench: '%s' is not a number from 1 to 1024\n", argv[i + 1]), 2;
    }
    b.config = (struct gpt2_config){
        .layers = (int)numbers[0], .channels = 768, .heads = 12, .vocab = 50257, .max_positions = 1024};
    b.positions = (int)numbers[1];
    b.rounds = numbers[2] > ROUNDS_LIMIT ? ROUNDS_LIMIT : (int)numbers[2];
    b.comm = argc > 4 && !strcmp(argv[4], "tcp") ? comm_tcp() : comm_shm();
    struct kv_memory *memory = kv_memory_create(NULL);
    if (!memory)
        return 1;
    b.store = kv_memory_store(memory);
    int failed = rank_threads_run(RANKS, rank_body, &b);
    kv_memory_destroy(memory);
    if (!failed)
        print_results(&b);
    return failed ? 1 : 0;
}
