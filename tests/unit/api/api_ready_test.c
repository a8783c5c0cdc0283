/* api_ready_test.c - machine code of products is made while a trainer is opened, where the model needs it. */
#include "tests/support/cmocka_all.h"

#include <stdio.h>

#include "kernels/ready.h"
#include "runtime/include/muster.h"
#include "tests/support/machine_code.h"

/* Opens and closes a trainer of rows by width by width products, which waits for its thread. No step runs. */
static void open_and_close(int32_t width, const char *products)
{
    struct muster_error err = {0};
    const char *const settings[] = {"training.global_batch=8", "training.sequence_length=16",
                                    "training.threads=1", products, NULL};
    struct muster_model *m = muster_model_new("square", &err);
    const int32_t x = muster_model_input(m, "x", MUSTER_F32, width),
                  wanted = muster_model_input(m, "wanted", MUSTER_F32, width);
    muster_layer(m, "values");
    const int32_t values = muster_values(m, x);
    muster_layer(m, "square");
    muster_squared_error(m, muster_linear(m, values, width, "fc", 0.1, 0), wanted);
    struct muster_trainer *t = muster_trainer_open(NULL, m, settings, &err);
    if (!t)
        fail_msg("%s", err.text);
    muster_trainer_close(&t);
    muster_model_free(m);
}

static void code_is_made_where_it_is_needed(void **state)
{
    (void)state;
    const int before = machine_code_pieces();
    open_and_close(32, "training.products=auto"); /* small products are OpenBLAS's */
    open_and_close(256, "training.products=openblas");
    assert_int_equal(machine_code_pieces(), before);
    if (kernels_cpu_by(KERNELS_AUTO, NULL) == kernels_cpu(~0u))
        skip_because("no oneDNN with AVX-512 here");
    open_and_close(256, "training.products=auto");
    const int made = machine_code_pieces();
    assert_true(made > before);
    open_and_close(256, "training.products=onednn"); /* once a process */
    assert_int_equal(machine_code_pieces(), made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(code_is_made_where_it_is_needed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
