/* train_stored_test.c - parameters in few bits are written one by one, in units that several of them share:
 * each is read again as it was written, up to the rounding of its type. */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/train/train_harness.h"

static struct model *adapted(enum stored base, const struct training *run, struct muster_error *err)
{
    struct lora lora = {.rank = 2, .alpha = 4, .base = base, .tables = true};
    return lora_add_target(&lora, "c_attn", err) < 0 ? NULL : gpt2_create_adapted(&run->gpt, &lora, err);
}

static struct model *of_nf4(const struct training *run, struct muster_error *err)
{
    return adapted(STORED_NF4, run, err);
}

static struct model *of_int8(const struct training *run, struct muster_error *err)
{
    return adapted(STORED_INT8, run, err);
}

/* In -1..1, with both ends in each block. */
static float value_of(int param, int64_t i)
{
    const int64_t turn = (i * 37 + param * 11 + (i >> 18) * 17) % 64; /* chunks are written apart */
    return (float)turn / 31.5F - 1;
}

/* Levels of nf4 lie up to 0.31 apart, and the size of a block has 4 bits of mantissa. */
static int is_as_written(const struct trainer *trainer, int param, const float *values, int64_t count)
{
    const bool nf4 = trainer_model(trainer)->params[param].stored == STORED_NF4;
    for (int64_t i = 0; i < count; i++)
        if (!(fabsf(values[i] - value_of(param, i)) <= (nf4 ? 0.25F : 0.01F)))
            return fprintf(stderr, "%s: element %lld is %g, and %g was written\n",
                           trainer_model(trainer)->params[param].name, (long long)i, (double)values[i],
                           (double)value_of(param, i)),
                   -1;
    return 0;
}

/* All are written before the first is read: a unit that is written again keeps its other parameters. */
static int write_and_read(const struct training *run, struct trainer *trainer, int rank, int step)
{
    const struct model *model = trainer_model(trainer);
    int written = 0;
    (void)run, (void)rank;
    for (int reads = 0; reads < 2 && step == 0; reads++)
        for (int p = 0; p < model->param_count; p++) {
            const int64_t count = param_elements(&model->params[p]);
            if (model->params[p].stored == STORED_PLAIN)
                continue;
            float *values = malloc((size_t)count * sizeof *values);
            for (int64_t i = 0; values && i < count; i++)
                values[i] = reads ? NAN : value_of(p, i);
            const int failed = !values || (reads ? trainer_get_param(trainer, p, values, NULL) ||
                                                       is_as_written(trainer, p, values, count)
                                                 : trainer_set_param(trainer, p, values, NULL));
            free(values);
            if (failed)
                return -1;
            written++;
        }
    return step == 0 && !written ? -1 : 0;
}

static void what_is_written_is_read(void **state)
{
    static const enum strategy strategies[] = {STRATEGY_NO_SHARD, STRATEGY_SHARD_OPTIM,
                                               STRATEGY_SHARD_GRAD_OP, STRATEGY_FULL_SHARD};
    (void)state;
    for (int i = 0; i < 8; i++) {
        struct training run = training_small();
        run.create = i % 2 ? of_int8 : of_nf4;
        run.strategy = strategies[i / 2];
        run.mesh.side[SIDE_SHARD] = 2;
        run.steps = 1;
        run.visit = write_and_read;
        assert_int_equal(training_run(&run), 0);
    }
}

/* A table of more elements than one call of a source gives. */
static void a_long_parameter_is_written_in_chunks(void **state)
{
    (void)state;
    struct training run = training_small();
    run.gpt.vocab = 9000;
    run.create = of_int8;
    run.steps = 0;
    run.visit = write_and_read;
    assert_int_equal(training_run(&run), 0);
}

/* Writes the last parameter: those that cannot be in its unit keep their values to the bit. */
static int write_the_last(const struct training *run, struct trainer *trainer, int rank, int step)
{
    enum { PARAMS = 128, LONGEST = 1 << 13 };
    static float before[PARAMS][LONGEST], after[LONGEST];
    const struct model *model = trainer_model(trainer);
    int last = model->param_count - 1, compared = 0;
    int64_t between = 0;
    (void)run, (void)rank, (void)step;
    while (model->params[last].stored == STORED_PLAIN)
        last--;
    for (int p = 0; p < last; p++)
        if (param_elements(&model->params[p]) > LONGEST || trainer_get_param(trainer, p, before[p], NULL))
            return -1;
    for (int64_t i = 0; i < param_elements(&model->params[last]); i++)
        after[i] = value_of(last, i);
    if (trainer_set_param(trainer, last, after, NULL))
        return -1;
    for (int p = last - 1; p >= 0; p--) {
        const int64_t count = param_elements(&model->params[p]);
        if (model->params[p].stored == STORED_PLAIN)
            continue;
        if (between >= STORED_NF4_UNIT) {
            if (trainer_get_param(trainer, p, after, NULL) ||
                memcmp(before[p], after, (size_t)count * sizeof *after))
                return -1;
            compared++;
        }
        between += count;
    }
    return compared ? 0 : -1;
}

static void other_units_keep_their_bytes(void **state)
{
    (void)state;
    struct training run = training_small();
    run.create = of_nf4;
    run.group_bytes = 1 << 20;
    run.steps = 0;
    run.gpt.layers = 6;
    run.visit = write_the_last;
    assert_int_equal(training_run(&run), 0);
}

/* Gathers for the next step that were ahead of the writing are made again: the losses are another strategy's.
 */
static int write_between_steps(const struct training *run, struct trainer *trainer, int rank, int step)
{
    return step == 2 ? write_and_read(run, trainer, rank, 0) : 0;
}

static void a_step_after_the_writing_reads_it(void **state)
{
    (void)state;
    double losses[3][4];
    for (int i = 0; i < 3; i++) {
        struct training run = training_small();
        run.create = of_nf4;
        run.strategy = i ? STRATEGY_FULL_SHARD : STRATEGY_NO_SHARD;
        run.mesh.side[SIDE_SHARD] = 2;
        run.steps = 4;
        run.visit = i < 2 ? write_between_steps : NULL;
        run.losses = losses[i];
        assert_int_equal(training_run(&run), 0);
    }
    assert_true(training_deviation(losses[0], losses[1], 4) < 1e-4);
    assert_true(training_deviation(losses[1] + 2, losses[2] + 2, 1) > 1e-2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read), cmocka_unit_test(a_long_parameter_is_written_in_chunks),
        cmocka_unit_test(other_units_keep_their_bytes), cmocka_unit_test(a_step_after_the_writing_reads_it)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
