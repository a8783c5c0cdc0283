/* kernels_attention_test.c - attention of every CPU variant. */
#include "tests/support/cmocka_all.h"

#include "tests/unit/kernels/attention_checks.h"
#include "tests/unit/kernels/kernels_support.h"

enum { RANDOM_SHAPES = 40 };

static void packed_attention_matches(void **state)
{
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++)
        attention_check_packed(*k);
}

static void grouped_attention_matches(void **state)
{
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++)
        attention_check_grouped(*k, RANDOM_SHAPES);
}

static void unseen_keys_are_not_read(void **state)
{
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++)
        attention_check_unseen(*k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_attention_matches),
        cmocka_unit_test(grouped_attention_matches),
        cmocka_unit_test(unseen_keys_are_not_read),
    };
    kernels_test_begin(2);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
