/* Compressed gradients in whole runs, ranks as threads: dense to the bit until they begin; the same model
 * from factors on every mesh; the bytes that are really sent; what is not finite stays out of the feedback.
 */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/compress/compress.h"
#include "tests/unit/train/train_harness.h"

enum { STEPS = 4, ROOM = 1 << 16 };
#define TOPK(r)                                                                                              \
    {                                                                                                        \
        .kind = COMPRESSION_TOPK, .ratio = (r), .least = 100                                                 \
    }
#define POWER(n)                                                                                             \
    {                                                                                                        \
        .kind = COMPRESSION_POWERSGD, .rank = (n), .least = 100                                              \
    }

struct found {
    double losses[STEPS], norms[STEPS];
    struct trainer_stats stats[STEPS];
    double params[ROOM];
};

static struct found *train(struct training run)
{
    struct found *found = calloc(1, sizeof *found);
    assert_non_null(found);
    run.steps = STEPS;
    run.losses = found->losses;
    run.norms = found->norms;
    run.stats = found->stats;
    run.params = found->params;
    assert_int_equal(training_run(&run), 0);
    return found;
}

static double difference(const struct found *a, const struct found *b)
{
    double most = 0;
    for (int i = 0; i < ROOM; i++)
        most = fmax(most, fabs(a->params[i] - b->params[i]));
    return most;
}

static const struct cell {
    enum strategy strategy;
    struct mesh mesh;
    int micro_batches;
} cells[] = {
    {STRATEGY_NO_SHARD, MESH(1, 1, 1), 2},     {STRATEGY_NO_SHARD, MESH(1, 1, 4), 1},
    {STRATEGY_NO_SHARD, MESH(1, 2, 1), 2},     {STRATEGY_HYBRID_SHARD, MESH(1, 2, 2), 2},
    {STRATEGY_HYBRID_SHARD, MESH(2, 2, 2), 2},
};
enum { CELLS = sizeof cells / sizeof *cells };

static struct training run_of(const struct cell *cell, struct compression_options compression)
{
    struct training run = training_small();
    run.kernels = kernels_ref_f64();
    run.strategy = cell->strategy;
    run.mesh = cell->mesh;
    run.micro_batches = cell->micro_batches;
    run.compression = compression;
    return run;
}

/* All of them is as good as dense, and nothing is left over. */
static void all_elements_are_the_dense_gradient(void **state)
{
    (void)state;
    for (int i = 0; i < CELLS; i++)
        for (int clips = i % 2; clips < 2; clips += 2) {
            struct training dense = run_of(&cells[i], (struct compression_options){0}), all = dense;
            all.compression = (struct compression_options)TOPK(1);
            dense.clip_norm = all.clip_norm = clips ? 1e6 : 0; /* a norm, and nothing is clipped */
            struct found *a = train(dense), *b = train(all);
            assert_true(difference(a, b) < 1e-12);
            assert_true(b->stats[STEPS - 1].compression_error == 0 && a->stats[0].wire_bytes == 0);
            free(a);
            free(b);
        }
}

static void until_the_start_all_is_dense_to_the_bit(void **state)
{
    (void)state;
    static const struct compression_options kinds[] = {TOPK(0.05), POWER(1)};
    for (int i = 0; i < 2 * CELLS; i++) /* the second half in 16 bits, which top-k alone takes */
        for (int kind = i < CELLS ? i % 2 : 0; kind < 1 + (i < CELLS); kind += 2) {
            const struct cell *cell = &cells[i % CELLS];
            struct training dense = run_of(cell, (struct compression_options){0});
            dense.reduce_dtype = i < CELLS ? DTYPE_F32 : DTYPE_BF16;
            struct training late = dense, half = dense;
            late.compression = half.compression = kinds[kind];
            late.compression.start = STEPS;
            half.compression.start = STEPS / 2;
            struct found *a = train(dense), *b = train(late), *c = train(half);
            assert_memory_equal(a->params, b->params, sizeof a->params);
            assert_memory_equal(a->norms, b->norms, sizeof a->norms);
            assert_memory_equal(a->losses, c->losses, sizeof *a->losses * (STEPS / 2 + 1));
            assert_true(a->losses[STEPS - 1] != c->losses[STEPS - 1]);
            assert_true(c->stats[STEPS / 2 - 1].compression_error == 0 &&
                        c->stats[STEPS / 2].compression_error > 0);
            if (mesh_line(cell->mesh, AXIS_DATA, 0).size > 1)
                assert_true(c->stats[STEPS / 2 - 1].wire_bytes > 2 * c->stats[STEPS / 2].wire_bytes);
            free(a);
            free(b);
            free(c);
        }
}

/* Values of 16 bits are a rounding away from whole ones, on every mesh, and their feedback keeps that. */
static void narrow_values_are_a_rounding_away(void **state)
{
    (void)state;
    for (int i = 0; i < CELLS; i++) {
        struct training wide = run_of(&cells[i], (struct compression_options)TOPK(0.2)), narrow = wide;
        narrow.reduce_dtype = i % 2 ? DTYPE_BF16 : DTYPE_F16;
        struct found *a = train(wide), *b = train(narrow);
        const double away = fabs(a->losses[STEPS - 1] - b->losses[STEPS - 1]);
        assert_true(away > 0 && away < 1e-3);
        assert_true(fabs(a->stats[0].compression_error - b->stats[0].compression_error) < 1e-2);
        assert_true(b->stats[0].wire_bytes <= a->stats[0].wire_bytes);
        free(a);
        free(b);
    }
}

/* PowerSGD depends on the sum over the replicas alone, and its feedback too. */
static void factors_give_the_same_model_on_every_mesh(void **state)
{
    (void)state;
    for (int rank = 1; rank <= 3; rank += 2) {
        struct found *one = NULL;
        for (int i = 0; i < CELLS; i++) {
            struct training run = run_of(&cells[i], (struct compression_options)POWER(rank));
            run.clip_norm = i % 2 ? 1e6 : 0;
            struct found *found = train(run);
            if (!one)
                one = found;
            assert_true(difference(found, one) < 1e-9);
            assert_true(found->stats[0].compression_error > 0.01);
            if (found != one)
                free(found);
        }
        free(one);
    }
}

/* ---- bytes ---- */

static struct comm_ops counting;
static _Atomic(int64_t) issued; /* bytes that rank 0 of a line of 2 has sent for gradients */

static int count_and_issue(struct comm *comm, const struct comm_op *op, const void *send, void *recv,
                           struct device_stream *stream, struct muster_error *err)
{
    const int64_t bytes = op->count * dtype_size(op->dtype);
    if (op->dtype == DTYPE_F32 && op->kind == COMM_ALL_REDUCE) /* of two ranks: 2 (n - 1) / n of the bytes */
        atomic_fetch_add(&issued, bytes);
    if (op->dtype == DTYPE_I32 && op->kind == COMM_ALL_GATHER)
        atomic_fetch_add(&issued, bytes);
    return comm_shm()->issue(comm, op, send, recv, stream, err);
}

/* As computed from the shapes, as the plan says and as it was issued. */
static void bytes_are_as_computed(void **state)
{
    (void)state;
    const struct training small = training_small();
    const int64_t C = small.gpt.channels, V = small.gpt.vocab, T = small.gpt.max_positions,
                  L = small.gpt.layers;
    const struct {
        int64_t rows, columns, count;
    } tensors[] = {{V, C, 1}, {T, C, 1},     {1, C, 4 * L + 2}, {3 * C, C, L}, {1, 3 * C, L},
                   {C, C, L}, {1, C, 2 * L}, {4 * C, C, L},     {1, 4 * C, L}, {C, 4 * C, L}};
    static const struct compression_options kinds[] = {TOPK(0.1), TOPK(0.037), POWER(2), POWER(5), TOPK(0.1)};
    counting = *comm_shm();
    counting.issue = count_and_issue;
    for (int kind = 0; kind < 5; kind++) { /* the last one sends values of 16 bits */
        const struct compression_options *o = &kinds[kind];
        int64_t wanted = 0, all_kept = 0;
        for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
            const int64_t n = tensors[i].rows * tensors[i].columns, kept = (int64_t)(o->ratio * (double)n),
                          factors = (tensors[i].rows + tensors[i].columns) * o->rank;
            all_kept += n < o->least ? 0 : tensors[i].count * kept;
            const bool narrow = tensors[i].rows == 1 || factors >= n;
            wanted += tensors[i].count * (n < o->least                  ? 4 * n
                                          : o->kind == COMPRESSION_TOPK ? 8 * kept
                                          : narrow                      ? 4 * n
                                                                        : 4 * factors);
        }
        struct training run = training_small();
        run.mesh = (struct mesh)MESH(1, 2, 1);
        run.compression = *o;
        if (kind == 4) {
            run.reduce_dtype = DTYPE_BF16;
            wanted -= 4 * all_kept - compress_values_bytes(all_kept, 2);
        }
        run.clip_norm = 0;
        run.comm = &counting;
        atomic_store(&issued, 0);
        run.group_bytes = (int64_t)1 << 30; /* no padding between groups is sent */
        struct found *found = train(run);
        assert_int_equal(found->stats[0].wire_bytes, wanted);
        assert_int_equal(atomic_load(&issued), 2 * STEPS * wanted);
        free(found);
    }
}

/* ---- what is not finite ---- */

/* Every element of feedback and factor that this rank has. */
static int check_finite(const struct training *run, struct trainer *trainer, int rank, int step)
{
    (void)rank;
    (void)run;
    for (int p = 0; step && p < trainer_model(trainer)->param_count; p++)
        for (int t = TRAINER_FEEDBACK; t <= TRAINER_FACTOR; t++) {
            struct trainer_part part;
            float values[1 << 13];
            if (!trainer_part(trainer, p, (enum trainer_tensor)t, &part) || !part.count)
                continue;
            assert_true(part.count <= 1 << 13 && part.dtype == DTYPE_F32);
            assert_int_equal(trainer_read_part(trainer, &part, part.first, part.count, values, NULL), 0);
            for (int64_t i = 0; i < part.count; i++)
                assert_true(isfinite(values[i]));
        }
    return 0;
}

static int spoil_one_step(const struct training *run, struct trainer *trainer, int rank, int step)
{
    static float before[4][1 << 12];
    float spoilt[1 << 12];
    if (check_finite(run, trainer, rank, step) || (step != 1 && step != 2))
        return 0;
    assert_true(param_elements(&trainer_model(trainer)->params[0]) <= 1 << 12);
    if (step == 1)
        assert_int_equal(trainer_get_param(trainer, 0, before[rank], NULL), 0);
    for (int i = 0; i < 1 << 12; i++)
        spoilt[i] = NAN;
    return trainer_set_param(trainer, 0, step == 1 ? spoilt : before[rank], NULL);
}

/* The second step's gradients are not finite: it is skipped, and what is kept for later steps stays. */
static void skipped_steps_leave_no_feedback(void **state)
{
    (void)state;
    static const struct compression_options kinds[] = {TOPK(0.1), POWER(2)};
    for (int kind = 0; kind < 2; kind++) {
        struct training run = training_small();
        run.strategy = STRATEGY_HYBRID_SHARD;
        run.mesh = (struct mesh)MESH(1, 2, 2);
        run.compression = kinds[kind];
        run.visit = spoil_one_step;
        struct found *found = train(run);
        for (int step = 0; step < STEPS; step++)
            assert_int_equal(found->stats[step].skipped, step == 1);
        assert_true(found->stats[STEPS - 1].compression_error > 0);
        free(found);
    }
}

/* Without feedback what is not sent is lost. */
static void forgetting_is_another_training(void **state)
{
    (void)state;
    struct training run = run_of(&cells[1], (struct compression_options)TOPK(0.01));
    struct found *keeps = train(run);
    run.compression.forgets = true;
    struct found *forgets = train(run);
    assert_true(keeps->losses[0] == forgets->losses[0] &&
                keeps->losses[STEPS - 1] != forgets->losses[STEPS - 1]);
    free(keeps);
    free(forgets);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_elements_are_the_dense_gradient),
        cmocka_unit_test(until_the_start_all_is_dense_to_the_bit),
        cmocka_unit_test(narrow_values_are_a_rounding_away),
        cmocka_unit_test(factors_give_the_same_model_on_every_mesh),
        cmocka_unit_test(bytes_are_as_computed),
        cmocka_unit_test(skipped_steps_leave_no_feedback),
        cmocka_unit_test(forgetting_is_another_training),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
