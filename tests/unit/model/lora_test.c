/* lora_test.c - a product with an adapter by the formula of lora.h, its gradients, and the targets' names. */
#include "tests/support/cmocka_all.h"

#include <math.h>

#include "tests/unit/model/layer_bench.h"

enum { IN = 6, OUT = 4, RANK = 3 };
static const struct shape shape = {2, 3};

static struct lora settings(void)
{
    struct lora lora = {.rank = RANK, .alpha = 7.5};
    assert_int_equal(lora_add_target(&lora, "fc", NULL), 0);
    return lora;
}

static struct model *adapted_model(void)
{
    const struct lora lora = settings();
    struct writer w = writer_begin("adapted");
    struct muster_error err = {0};
    writer_adapt(&w, &lora, "");
    (void)writer_input(&w, "tokens", DTYPE_I32, true, 1);
    const int source = program_layer(&w, "source");
    const int table = program_parameter(&w, "table", 5, IN, PARAM_INIT_NORMAL, 1);
    program_result(&w, program_embedding(&w, 0, table, -1));
    (void)program_layer(&w, "layer");
    program_result(&w, program_linear(&w, program_input(&w, source), OUT, "fc", true, 0.1));
    struct model *model = writer_finish(&w, &err);
    if (!model)
        fail_msg("%s", err.text);
    return model;
}

/* x W^T + b + (alpha / rank) x A^T B^T; weights: W, b, A, B. */
static double expected(const struct layer_bench *b, int row, int column)
{
    const double *x = b->in[0] + row * IN, *W = b->weight[0], *A = b->weight[2], *B = b->weight[3];
    double sum = b->weight[1][column];
    for (int i = 0; i < IN; i++)
        sum += x[i] * W[column * IN + i];
    for (int r = 0; r < RANK; r++) {
        double thin = 0;
        for (int i = 0; i < IN; i++)
            thin += x[i] * A[r * IN + i];
        sum += 2.5 * thin * B[column * RANK + r];
    }
    return sum;
}

static void an_adapter_is_added_by_its_formula(void **state)
{
    struct layer_bench b;
    (void)state;
    GUARD(guard_model) struct model *model = adapted_model();
    assert_true(model->adapter_scale == 2.5);
    bench_open(&b, model, 1, shape, kernels_ref_f64(), 5, 100);
    (void)bench_loss(&b, LAYER_EVAL);
    for (int row = 0; row < shape.B * shape.T; row++)
        for (int column = 0; column < OUT; column++) {
            const double got = ((double *)(void *)b.out.base)[row * OUT + column];
            if (!(fabs(got - expected(&b, row, column)) <= 1e-12))
                fail_msg("row %d, column %d: %.17g, not %.17g", row, column, got, expected(&b, row, column));
        }
    bench_check_gradients(&b, "an adapted product");
    bench_close(&b);
}

static void targets_are_the_last_parts_of_a_name(void **state)
{
    struct lora lora = settings();
    (void)state;
    assert_int_equal(lora_add_target(&lora, "attn.q", NULL), 0);
    assert_int_equal(lora_targets_of(&lora, "h.0.fc"), 1);
    assert_int_equal(lora_targets_of(&lora, "fc"), 1);
    assert_int_equal(lora_targets_of(&lora, "h.0.attn.q"), 2);
    assert_int_equal(lora_targets_of(&lora, "h.0.c_fc"), 0);
    assert_int_equal(lora_targets_of(&lora, "h.fc.weight"), 0);
    assert_int_equal(lora_add_target(&lora, LORA_ALL, NULL), 0);
    assert_int_equal(lora_targets_of(&lora, "h.0.c_fc"), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_adapter_is_added_by_its_formula),
        cmocka_unit_test(targets_are_the_last_parts_of_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
