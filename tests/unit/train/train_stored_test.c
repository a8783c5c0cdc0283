/* train_stored_test.c - parameters in few bits are written one by one, in units that several of them share:
 * each is read again as it was written, up to the rounding of its type. */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

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
    const int64_t turn = (i * 37 + param * 11) % 64;
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_written_is_read)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
