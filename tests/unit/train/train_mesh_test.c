/* Pipelines: the same losses, norms and parameters as one stage, whatever the cut, the strategy inside of a
 * stage, the number of micro-batches and the model: a GPT-2, whose head is tied to the embedding on another
 * stage, a Llama, a page with dropout and a frozen product, and one with running statistics. In double, where
 * only the order of sums differs. Every other cell has its transfers in groups on one stream, as on GPUs.
 *
 *     train_mesh_test [--full]    some of the cells of each model, or all of them */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/comm/comm_internal.h"
#include "runtime/model/architectures.h"
#include "runtime/model/rng.h"
#include "runtime/plan/plan_cut.h"
#include "tests/unit/train/train_harness.h"

enum { STEPS = 5, LONG = 100, ROOM = 1 << 17 };
static bool full; /* every cell, and more steps */

static struct model *small_llama(const struct training *run, struct muster_error *err)
{
    const struct llama_config config = {.layers = run->gpt.layers > 3 ? run->gpt.layers : 3,
                                        .channels = 24,
                                        .heads = 4,
                                        .kv_heads = 2,
                                        .vocab = run->gpt.vocab,
                                        .max_positions = run->gpt.max_positions};
    return llama_create(&config, err);
}

/* Blocks with dropout, the second of which reads both layers before it; its table is tied to its head, and
 * the first product frozen. Or with running statistics in the blocks. */
static struct model *page(const struct training *run, bool statistics, struct muster_error *err)
{
    enum { C = 16 };
    struct writer w = writer_begin("page");
    const int tokens = writer_input(&w, "tokens", DTYPE_I32, true, 1);
    const int targets = writer_input(&w, "targets", DTYPE_I32, true, 1);
    const struct planes planes = {C, 1, 1};
    int before = -1, last = program_layer(&w, "embedding");
    const int table = program_parameter(&w, "table", run->gpt.vocab, C, PARAM_INIT_NORMAL, 0.3);
    program_result(&w, program_dropout(&w, program_embedding(&w, tokens, table, -1), 0.1));
    for (int i = 0; i < 2; i++) {
        const int layer = program_layer(&w, "block%d", i);
        const int x = program_input(&w, last);
        int h = program_dropout(&w, program_linear(&w, x, C, "in", true, 0.2), statistics ? 0 : 0.2);
        if (statistics)
            h = program_batch_norm2d(&w, h, &planes, "norm", 1e-5, 0.1);
        h = program_add(&w, x, program_activation(&w, h, ACTIVATION_SILU));
        program_result(&w, before >= 0 ? program_add(&w, h, program_input(&w, before)) : h);
        before = last;
        last = layer;
    }
    (void)program_layer(&w, "head");
    program_cross_entropy(&w, program_input(&w, last), table, targets);
    struct model *model = writer_finish(&w, err);
    for (int i = 0; model && i < model->param_count; i++)
        if (!strncmp(model->params[i].name, "block0.in", 9))
            model->params[i].trainable = false;
    return model;
}

static struct model *dropping_page(const struct training *run, struct muster_error *err)
{
    return page(run, false, err);
}

static struct model *counting_page(const struct training *run, struct muster_error *err)
{
    return page(run, true, err);
}

struct found {
    double losses[STEPS], norms[STEPS], *params;
};

static void train(struct training run, struct found *found)
{
    found->params = calloc(ROOM, sizeof *found->params);
    assert_non_null(found->params);
    run.losses = found->losses;
    run.norms = found->norms;
    run.params = found->params;
    assert_int_equal(training_run(&run), 0);
}

/* The largest one: parameters may be 0. */
static double difference(const double *a, const double *b)
{
    double most = 0;
    for (int i = 0; i < ROOM; i++) {
        const double found = fabs(a[i] - b[i]);
        most = found <= most ? most : found;
    }
    return most;
}

#define GPIPE PIPE_GPIPE, RECOMPUTE_EXCEPT_LAST
static const struct cell {
    enum strategy strategy;
    struct mesh mesh;
    int micro_batches;
    bool recompute;
    enum pipe_schedule schedule;
    enum recompute policy;
    int chunks;
} cells[] = {
    {STRATEGY_NO_SHARD, MESH(2, 1, 1), 4, false, PIPE_1F1B, RECOMPUTE_NONE, 1},
    {STRATEGY_NO_SHARD, MESH(2, 1, 1), 1, true, PIPE_1F1B, RECOMPUTE_NONE, 1},
    {STRATEGY_NO_SHARD, MESH(2, 2, 1), 2, false, PIPE_1F1B, RECOMPUTE_NONE, 1},
    {STRATEGY_SHARD_OPTIM, MESH(2, 1, 2), 2, false, PIPE_1F1B, RECOMPUTE_NONE, 1},
    {STRATEGY_SHARD_GRAD_OP, MESH(2, 1, 2), 4, true, PIPE_1F1B, RECOMPUTE_NONE, 1},
    {STRATEGY_FULL_SHARD, MESH(2, 1, 2), 4, false, PIPE_1F1B, RECOMPUTE_NONE, 1},
    {STRATEGY_HYBRID_SHARD, MESH(2, 2, 2), 2, false, PIPE_1F1B, RECOMPUTE_NONE, 1},
    {STRATEGY_NO_SHARD, MESH(3, 1, 1), 8, false, PIPE_1F1B, RECOMPUTE_NONE, 1},
    {STRATEGY_FULL_SHARD, MESH(3, 1, 2), 2, true, PIPE_1F1B, RECOMPUTE_NONE, 1},
    {STRATEGY_FULL_SHARD, MESH(4, 1, 2), 4, false, PIPE_1F1B, RECOMPUTE_NONE, 1},
    {STRATEGY_NO_SHARD, MESH(2, 1, 1), 8, false, GPIPE, 1},
    {STRATEGY_FULL_SHARD, MESH(3, 1, 2), 4, false, GPIPE, 1},
    {STRATEGY_SHARD_GRAD_OP, MESH(2, 1, 2), 4, false, GPIPE, 1},
    {STRATEGY_HYBRID_SHARD, MESH(2, 2, 2), 2, false, GPIPE, 1},
    {STRATEGY_FULL_SHARD, MESH(4, 1, 1), 2, true, PIPE_GPIPE, RECOMPUTE_NONE, 1},
    {STRATEGY_NO_SHARD, MESH(2, 1, 1), 8, false, PIPE_INTERLEAVED, RECOMPUTE_NONE, 2},
    {STRATEGY_FULL_SHARD, MESH(2, 1, 2), 4, false, PIPE_INTERLEAVED, RECOMPUTE_NONE, 2},
    {STRATEGY_SHARD_OPTIM, MESH(3, 1, 2), 4, false, PIPE_INTERLEAVED, RECOMPUTE_EXCEPT_LAST, 2},
    {STRATEGY_FULL_SHARD, MESH(4, 1, 1), 2, true, PIPE_INTERLEAVED, RECOMPUTE_NONE, 2},
    {STRATEGY_SHARD_GRAD_OP, MESH(2, 1, 2), 4, true, PIPE_INTERLEAVED, RECOMPUTE_NONE, 4},
    {STRATEGY_HYBRID_SHARD, MESH(2, 2, 2), 1, false, PIPE_INTERLEAVED, RECOMPUTE_NONE, 3},
    {STRATEGY_FULL_SHARD, MESH(3, 1, 2), 1, false, PIPE_INTERLEAVED, RECOMPUTE_NONE, 2},
    {STRATEGY_FULL_SHARD, MESH(1, 1, 2), 4, false, PIPE_INTERLEAVED, RECOMPUTE_NONE, 2},
};

/* A group of transfers one by one, in an order that all ranks share. */
static int one_by_one(struct comm *comm, const struct comm_transfer *transfers, int count,
                      struct device_stream *stream, struct muster_error *err)
{
    for (int from = 0; from < comm->size; from++)
        for (int to = 0; to < comm->size; to++)
            for (int i = 0; i < count; i++) {
                const struct comm_transfer *t = &transfers[i];
                const int peer = comm->rank == from ? to : from;
                const enum comm_kind kind = comm->rank == from ? COMM_SEND : COMM_RECV;
                if ((comm->rank == from || comm->rank == to) && t->op.root == peer && t->op.kind == kind &&
                    comm_shm()->issue(comm, &t->op, t->send, t->recv, stream, err))
                    return -1;
            }
    return 0;
}

/* Against the same data side on one stage: what a batch's own mean needs. */
static void check(struct model *(*create)(const struct training *, struct muster_error *), int most_stages)
{
    static size_t turn;
    struct comm_ops in_groups = *comm_shm();
    in_groups.exchange = one_by_one;
    turn++;
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        const struct cell *cell = &cells[i];
        struct training run = training_small();
        struct found one, many;
        run.gpt.layers = cell->chunks > 1 ? 6 : 3;
        run.create = create;
        run.steps = STEPS;
        run.kernels = kernels_ref_f64();
        run.learning_rate = 1e-2;
        run.strategy = cell->strategy;
        run.micro_batches = cell->micro_batches;
        run.recompute = cell->recompute;
        run.schedule = cell->schedule;
        run.chunks = cell->chunks;
        run.policy = (struct recompute_options){cell->policy, 0};
        run.mesh = cell->mesh;
        run.comm = i % 2 ? &in_groups : NULL;
        if (cell->mesh.side[SIDE_PIPELINE] > most_stages || (cell->chunks > 1 && most_stages < 4) ||
            (!full && i % 3 != turn % 3))
            continue;
        train(run, &many);
        run.mesh.side[SIDE_PIPELINE] = 1;
        run.chunks = 1;
        run.schedule = PIPE_1F1B;
        train(run, &one);
        const double losses = training_deviation(many.losses, one.losses, STEPS),
                     norms = training_deviation(many.norms, one.norms, STEPS),
                     params = difference(many.params, one.params);
        char text[MESH_TEXT];
        printf("%s %s, %s%s, %d micro-batches: losses %.1e, norms %.1e, parameters %.1e\n",
               mesh_text(cell->mesh, text, sizeof text), strategy_name(cell->strategy),
               pipe_schedule_name(cell->schedule), i % 2 ? " in groups" : "", cell->micro_batches, losses,
               norms, params);
        assert_true(one.losses[STEPS - 1] < one.losses[0]);
        assert_true(losses <= 1e-11 && norms <= 1e-10 && params <= 1e-9);
        free(one.params);
        free(many.params);
    }
}

static void a_tied_gpt2_in_stages(void **state)
{
    (void)state;
    check(NULL, 4);
}

static void a_llama_in_stages(void **state)
{
    (void)state;
    check(small_llama, 4);
}

static void dropout_and_frozen_parts_in_stages(void **state)
{
    (void)state;
    check(dropping_page, 2);
}

static void running_statistics_in_stages(void **state)
{
    (void)state;
    check(counting_page, 2);
}

/* ---- what else a training has, in stages ---- */

/* Its first two layers are frozen: their stage has nothing to go back for. */
static struct model *late_llama(const struct training *run, struct muster_error *err)
{
    struct model *model = small_llama(run, err);
    for (int l = 0; model && l < 2; l++)
        for (int i = 0; i < model->layers[l].param_count; i++)
            model->params[model->layers[l].param[i]].trainable = false;
    return model;
}

/* Found in one run: evaluations of a step's samples before it and after every step, sums of values that are
 * looked at. */
struct seen {
    double evaluated[STEPS + 1], gradient, logits;
};

static int look(const struct training *run, struct trainer *trainer, int rank, int step)
{
    enum { ROWS = 8 * 16 };
    struct seen *seen = run->context;
    int32_t tokens[ROWS], targets[ROWS];
    scope_free double *logits = mem_calloc((size_t)ROWS * 48, sizeof *logits);
    scope_free double *gradient = mem_calloc(48 * 24, sizeof *gradient);
    const struct model *model = trainer_model(trainer);
    const int rows = trainer_plan(trainer)->options.shape.B, positions = rows * run->positions;
    const int most = trainer_forward_micros(trainer);
    struct layer_capture captures[8];
    struct trainer_forward forward = {.micros = most, .samples = (int64_t)most * rows};
    struct trainer_difference difference;
    struct muster_error err = {0};
    assert_true(most == (run->mesh.side[SIDE_PIPELINE] * run->chunks > 1 ? run->micro_batches : 1));
    training_batch(run, rank, 1000, tokens, targets);
    for (int micro = 0; micro < run->micro_batches; micro++)
        captures[micro] = (struct layer_capture){.layer = model->layer_count - 1,
                                                 .value = LAYER_LOGITS,
                                                 .rows = positions,
                                                 .out = logits + micro * positions * 48,
                                                 .bytes = (int64_t)positions * 48 * 8};
    for (int micro = 0; micro < run->micro_batches; micro += most) {
        forward.capture = &captures[micro];
        if (trainer_forward(trainer,
                            &(struct batch){{tokens + micro * positions, targets + micro * positions}},
                            &forward, &err) < 0)
            return -1;
    }
    for (int micro = 0; micro < run->micro_batches; micro++)
        if (trainer_share_value(trainer, &captures[micro], &err) < 0)
            return -1;
    if (trainer_compare_replicas(trainer, &difference, &err) < 0)
        return -1;
    double sums[2] = {forward.loss_total, (double)forward.loss_count};
    if (trainer_reduce(trainer, sums, 2, &err) < 0 || difference.param != -1)
        return -1;
    if (step && trainer_get_grad(trainer, model->param_count - 1, gradient, &err) < 0)
        return -1;
    if (rank == 0) {
        seen->evaluated[step] = sums[0] / sums[1];
        seen->logits += fabs(logits[0]) + fabs(logits[run->micro_batches * positions * 48 - 1]);
        seen->gradient += fabs(gradient[0]) + fabs(gradient[23]);
    }
    return sums[1] == (double)run->samples * run->positions ? 0 : -1;
}

/* The first micro-batch goes last, and rank 0 sends in another order than rank 1 calls. */
#define LATE_FIRST                                                                                           \
    "0F1,0F2,2F1,0F3,2F2,0F0,2F3,2F0,2B3,2B2,0B3,2B1,0B2,2B0,0B1,0B0\n"                                      \
    "1F2,1F1,3F1,1F3,3F2,1F0,3F3,3B3,3F0,3B2,1B3,3B1,1B2,3B0,1B1,1B0\n"

/* One rank with both ends of a tied GPT-2: their calls go back in turn. */
#define TWO_PARTS "0F0,0F1,1F0,1F1,1B0,1B1,0B0,0B1\n"

static const struct feature {
    const char *name;
    struct model *(*create)(const struct training *, struct muster_error *);
    enum strategy strategy;
    struct mesh mesh;
    int micro_batches, prefetch;
    double average_decay;
    enum dtype param_dtype, reduce_dtype;
    bool tcp;
    double limit; /* for losses: rounding to 16 bits may go either way where a norm differs in its last bit */
    int chunks;
    const char *table; /* a schedule as text; NULL: 1f1b, or interleaved with chunks */
} features[] = {
    {"frozen front", late_llama, STRATEGY_FULL_SHARD, MESH(2, 1, 2), 4, 2, 0, DTYPE_F32, DTYPE_F32, false,
     1e-11, 1, NULL},
    {"frozen front", late_llama, STRATEGY_NO_SHARD, MESH(3, 1, 1), 2, 2, 0, DTYPE_F32, DTYPE_F32, false,
     1e-11, 1, NULL},
    {"averages", small_llama, STRATEGY_SHARD_OPTIM, MESH(2, 1, 2), 2, 2, 0.9, DTYPE_F32, DTYPE_F32, false,
     1e-11, 1, NULL},
    {"no prefetch", small_llama, STRATEGY_FULL_SHARD, MESH(2, 1, 2), 2, 0, 0, DTYPE_F32, DTYPE_F32, false,
     1e-11, 1, NULL},
    {"tcp", small_llama, STRATEGY_FULL_SHARD, MESH(2, 1, 2), 4, 2, 0, DTYPE_F32, DTYPE_F32, true, 1e-11, 1,
     NULL},
    {"bf16", small_llama, STRATEGY_FULL_SHARD, MESH(2, 1, 2), 4, 2, 0, DTYPE_BF16, DTYPE_BF16, false, 1e-4, 1,
     NULL},
    {"bf16 replicas", small_llama, STRATEGY_HYBRID_SHARD, MESH(2, 2, 1), 2, 2, 0, DTYPE_BF16, DTYPE_F32,
     false, 1e-4, 1, NULL},
    {"interleaved", small_llama, STRATEGY_FULL_SHARD, MESH(2, 1, 2), 4, 2, 0, DTYPE_F32, DTYPE_F32, false,
     1e-11, 2, NULL},
    {"interleaved, frozen front", late_llama, STRATEGY_FULL_SHARD, MESH(2, 1, 2), 4, 1, 0, DTYPE_F32,
     DTYPE_F32, true, 1e-11, 2, NULL},
    {"interleaved bf16", small_llama, STRATEGY_HYBRID_SHARD, MESH(2, 2, 1), 2, 2, 0, DTYPE_BF16, DTYPE_BF16,
     false, 1e-4, 2, NULL},
    {"a table", small_llama, STRATEGY_FULL_SHARD, MESH(2, 1, 2), 4, 2, 0, DTYPE_BF16, DTYPE_F32, false, 1e-4,
     2, LATE_FIRST},
    {"two parts of one stage", NULL, STRATEGY_FULL_SHARD, MESH(1, 1, 2), 2, 2, 0, DTYPE_F32, DTYPE_F32, false,
     1e-11, 2, TWO_PARTS},
    {"two parts of one stage, bf16", NULL, STRATEGY_HYBRID_SHARD, MESH(1, 2, 2), 2, 2, 0, DTYPE_BF16,
     DTYPE_BF16, false, 1e-4, 2, TWO_PARTS},
    {"fp16", small_llama, STRATEGY_SHARD_GRAD_OP, MESH(2, 1, 2), 2, 2, 0, DTYPE_F16, DTYPE_F16, false, 1e-4,
     1, NULL},
};

static void features_in_stages(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
        const struct feature *f = &features[i];
        struct training run = training_small();
        struct seen with = {.gradient = 0}, without = {.gradient = 0};
        struct found one, many;
        run.create = f->create;
        run.steps = STEPS;
        run.kernels = kernels_ref_f64();
        run.strategy = f->strategy;
        run.micro_batches = f->micro_batches;
        run.prefetch = f->prefetch;
        run.average_decay = f->average_decay;
        run.param_dtype = f->param_dtype;
        run.reduce_dtype = f->reduce_dtype;
        run.comm = f->tcp ? comm_tcp() : NULL;
        struct pipe_table table = {0};
        struct muster_error err = {0};
        if (f->table && pipe_table_read("a table", f->table, f->mesh.side[SIDE_PIPELINE] * f->chunks, 0,
                                        &table, &err) < 0)
            fail_msg("%s", err.text);
        run.chunks = f->chunks;
        run.schedule = f->table ? PIPE_TABLE : f->chunks > 1 ? PIPE_INTERLEAVED : PIPE_1F1B;
        run.table = &table;
        run.visit = look;
        run.mesh = f->mesh;
        run.context = &with;
        train(run, &many);
        run.mesh.side[SIDE_PIPELINE] = 1;
        run.chunks = 1;
        run.schedule = PIPE_1F1B;
        run.context = &without;
        train(run, &one);
        const double losses = training_deviation(many.losses, one.losses, STEPS),
                     seen = training_deviation(with.evaluated, without.evaluated, STEPS + 1);
        printf("%s: losses %.1e, evaluations %.1e, gradient %.17g of %.17g\n", f->name, losses, seen,
               with.gradient, without.gradient);
        assert_true(losses <= f->limit && seen <= f->limit);
        assert_true(without.logits > 0 && fabs(with.logits / without.logits - 1) < 100 * f->limit);
        assert_true(without.gradient > 0 && fabs(with.gradient / without.gradient - 1) < 100 * f->limit);
        pipe_table_free(&table);
        free(one.params);
        free(many.params);
    }
}

/* The same arithmetic as in production, over more steps: within three times what another order of a batch's
 * rows does. */
static void single_precision_in_stages(void **state)
{
    (void)state;
    double base[LONG], other[LONG], norms[LONG], many[LONG], many_norms[LONG];
    static const struct cell worlds[] = {
        {STRATEGY_FULL_SHARD, MESH(2, 1, 2), 4, false, PIPE_1F1B, RECOMPUTE_NONE, 1},
        {STRATEGY_HYBRID_SHARD, MESH(2, 2, 2), 1, false, PIPE_1F1B, RECOMPUTE_NONE, 1},
        {STRATEGY_NO_SHARD, MESH(4, 1, 1), 8, false, PIPE_1F1B, RECOMPUTE_NONE, 1}};
    struct training run = training_small();
    const int steps = full ? LONG : 20;
    run.steps = steps;
    run.losses = base;
    run.norms = norms;
    assert_int_equal(training_run(&run), 0);
    run.order = ORDER_REVERSED;
    run.losses = other;
    run.norms = NULL;
    assert_int_equal(training_run(&run), 0);
    const double control = training_deviation(other, base, steps);
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        run = training_small();
        run.steps = steps;
        run.mesh = worlds[i].mesh;
        run.strategy = worlds[i].strategy;
        run.micro_batches = worlds[i].micro_batches;
        run.losses = many;
        run.norms = many_norms;
        assert_int_equal(training_run(&run), 0);
        const double losses = training_deviation(many, base, steps);
        char text[MESH_TEXT];
        printf("%s: losses %.1e, norms %.1e, control %.1e\n", mesh_text(run.mesh, text, sizeof text), losses,
               training_deviation(many_norms, norms, steps), control);
        assert_true(losses <= fmax(1e-6, 3 * control));
    }
}

/* ---- classifiers: a network with batch normalisation, and an encoder of texts of several lengths ---- */

enum { CLASSES = 4, SIDE = 8, CLASSIFIED = 16 };

struct classified {
    bool pictures, reversed; /* reversed: the rows of a micro-batch */
    int steps;
    double losses[LONG], norms[LONG];
};

static struct model *classifier(const struct training *run, struct muster_error *err)
{
    const struct resnet_config net = {3, SIDE, SIDE, CLASSES, 2, 2, 4};
    const struct text_encoder_config encoder = {.vocabulary = run->gpt.vocab,
                                                .layers = 4,
                                                .channels = 16,
                                                .heads = 2,
                                                .classes = CLASSES,
                                                .max_positions = run->positions};
    return ((const struct classified *)run->context)->pictures ? resnet_create(&net, err)
                                                               : text_encoder_create(&encoder, err);
}

/* Sample g: noise with its class in it. */
static void classified_sample(const struct training *run, bool pictures, uint64_t g, void *input,
                              int32_t *length, int32_t *label)
{
    *label = (int32_t)(rng_bits(5, RNG_SAMPLE, 0, g * 1000) % CLASSES);
    *length = 1 + (int32_t)(rng_bits(5, RNG_SAMPLE, 0, g * 1000 + 1) % (uint64_t)run->positions);
    const int count = pictures ? 3 * SIDE * SIDE : run->positions;
    for (int i = 0; i < count; i++) {
        const uint64_t draw = rng_bits(5, RNG_SAMPLE, 0, g * 1000 + 2 + (uint64_t)i);
        if (pictures)
            ((float *)input)[i] = (float)(draw % 1000) / 1000 - 0.5F + (i % CLASSES == *label ? 0.3F : 0);
        else
            ((int32_t *)input)[i] = (int32_t)(draw % 3 ? draw % 40 : 40 + (uint64_t)*label);
    }
}

static int classify(const struct training *run, struct trainer *trainer, int rank, int step)
{
    struct classified *c = run->context;
    const struct mesh_line data = mesh_line(run->mesh, AXIS_DATA, rank);
    const int rows = trainer_plan(trainer)->options.shape.B;
    const size_t width = c->pictures ? 3 * SIDE * SIDE : (size_t)run->positions;
    char inputs[CLASSIFIED * 3 * SIDE * SIDE * sizeof(float)];
    int32_t lengths[CLASSIFIED], labels[CLASSIFIED];
    struct muster_error err = {0};
    for (int i = 0; i < c->steps && !step; i++) {
        for (int n = 0; n < run->micro_batches * rows; n++) {
            const int micro = n / rows, row = c->reversed ? rows - 1 - n % rows : n % rows;
            classified_sample(run, c->pictures,
                              (uint64_t)(i * run->samples + (micro * data.size + data.place) * rows + row),
                              inputs + (size_t)n * width * sizeof(float), &lengths[n], &labels[n]);
        }
        struct trainer_step_values values = training_values(run, i);
        struct trainer_stats stats;
        values.global_tokens = run->samples;
        const struct batch batch = {{inputs, c->pictures ? labels : lengths, c->pictures ? NULL : labels}};
        if (trainer_step(trainer, &batch, &values, &stats, &err) < 0) {
            fprintf(stderr, "rank %d: %s\n", rank, err.text);
            return -1;
        }
        if (rank == 0) {
            c->losses[i] = stats.loss;
            c->norms[i] = stats.grad_norm;
        }
    }
    return 0;
}

static void classifiers_in_stages(void **state)
{
    (void)state;
    static const struct cell worlds[] = {
        {STRATEGY_NO_SHARD, MESH(2, 1, 1), 4, false, PIPE_INTERLEAVED, RECOMPUTE_NONE, 2},
        {STRATEGY_FULL_SHARD, MESH(2, 1, 2), 2, false, PIPE_INTERLEAVED, RECOMPUTE_NONE, 2},
        {STRATEGY_HYBRID_SHARD, MESH(2, 2, 2), 2, false, PIPE_INTERLEAVED, RECOMPUTE_NONE, 2},
        {STRATEGY_SHARD_OPTIM, MESH(3, 1, 2), 4, false, PIPE_INTERLEAVED, RECOMPUTE_EXCEPT_LAST, 2},
        {STRATEGY_SHARD_GRAD_OP, MESH(2, 1, 2), 4, false, PIPE_1F1B, RECOMPUTE_NONE, 1},
        {STRATEGY_FULL_SHARD, MESH(3, 1, 2), 4, false, GPIPE, 1},
        {STRATEGY_NO_SHARD, MESH(4, 1, 1), 4, false, PIPE_1F1B, RECOMPUTE_NONE, 1}};
    for (size_t i = 0; i < 2 * sizeof worlds / sizeof *worlds; i++) {
        const struct cell *world = &worlds[i / 2];
        struct classified found[3] = {
            {.pictures = i % 2}, {.pictures = i % 2}, {.pictures = i % 2, .reversed = true}};
        if (!full && i / 2 != 0)
            continue;
        for (int r = 0; r < 3; r++) { /* in stages, in one, and in another order */
            struct training run = training_small();
            run.create = classifier;
            run.visit = classify;
            run.context = &found[r];
            found[r].steps = full ? LONG : 5;
            run.samples = CLASSIFIED;
            run.steps = 0;
            run.positions = found[r].pictures ? 1 : 16;
            run.strategy = world->strategy;
            run.mesh = world->mesh;
            run.micro_batches = world->micro_batches;
            run.policy = (struct recompute_options){world->policy, 0};
            run.schedule = world->schedule;
            run.chunks = world->chunks;
            if (r > 0) {
                run.mesh.side[SIDE_PIPELINE] = run.chunks = 1;
                run.schedule = PIPE_1F1B;
            }
            assert_int_equal(training_run(&run), 0);
        }
        const int steps = found[0].steps;
        const double losses = training_deviation(found[0].losses, found[1].losses, steps),
                     norms = training_deviation(found[0].norms, found[1].norms, steps),
                     control = training_deviation(found[2].losses, found[1].losses, steps),
                     norms_control = training_deviation(found[2].norms, found[1].norms, steps);
        char text[MESH_TEXT];
        printf("%s, %s %s, %s: losses %.1e, norms %.1e, control %.1e, %.1e\n", i % 2 ? "pictures" : "texts",
               mesh_text(world->mesh, text, sizeof text), strategy_name(world->strategy),
               pipe_schedule_name(world->schedule), losses, norms, control, norms_control);
        assert_true(!full || found[1].losses[steps - 1] < found[1].losses[0]);
        assert_true(losses <= fmax(1e-6, 3 * control) && norms <= fmax(1e-6, 3 * norms_control));
    }
}

int main(int argc, char **argv)
{
    full = argc > 1 && !strcmp(argv[1], "--full");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tied_gpt2_in_stages),
        cmocka_unit_test(a_llama_in_stages),
        cmocka_unit_test(dropout_and_frozen_parts_in_stages),
        cmocka_unit_test(running_statistics_in_stages),
        cmocka_unit_test(features_in_stages),
        cmocka_unit_test(single_precision_in_stages),
        cmocka_unit_test(classifiers_in_stages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
