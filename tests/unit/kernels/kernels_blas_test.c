/* kernels_blas_test.c - a variable that is set for one call of OpenBLAS: threads that read the environment
 * meanwhile see a whole list, and nothing is left behind. */
#include "tests/support/cmocka_all.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/cpu/openblas/environment.h"

static char seen[32];

static void look(void)
{
    const char *value = getenv("MUSTER_TEST_CORE");
    (void)snprintf(seen, sizeof seen, "%s", value ? value : "none");
}

static void the_variable_is_there_for_one_call(void **state)
{
    (void)state;
    char **const before = environ;
    assert_true(environment_with("MUSTER_TEST_CORE=Haswell", look));
    assert_string_equal(seen, "Haswell");
    assert_null(getenv("MUSTER_TEST_CORE"));
    assert_ptr_equal(environ, before);
}

static void set_another(void)
{
    look();
    assert_int_equal(setenv("MUSTER_TEST_OTHER", "kept", 1), 0);
}

static void a_variable_that_is_set_meanwhile_stays(void **state)
{
    (void)state;
    assert_true(environment_with("MUSTER_TEST_CORE=Zen", set_another));
    assert_string_equal(seen, "Zen");
    assert_null(getenv("MUSTER_TEST_CORE"));
    assert_string_equal(getenv("MUSTER_TEST_OTHER"), "kept");
    assert_int_equal(unsetenv("MUSTER_TEST_OTHER"), 0);
}

static void an_empty_environment_has_it_too(void **state)
{
    (void)state;
    char **const before = environ;
    environ = NULL;
    const bool done = environment_with("MUSTER_TEST_CORE=Nehalem", look);
    char **const after = environ;
    environ = before;
    assert_true(done);
    assert_null(after);
    assert_string_equal(seen, "Nehalem");
}

static _Atomic bool ends;

/* The first variable stands where a list that shrinks or grows is changed. */
static void *read_all_the_time(void *context)
{
    const char *const name = context;
    while (!atomic_load(&ends)) {
        const char *value = getenv(name);
        if (!value || strcmp(value, "stays"))
            abort(); /* an assert may not jump here */
    }
    return NULL;
}

static void readers_are_not_disturbed(void **state)
{
    (void)state;
    enum { READERS = 2, CALLS = 500 };
    pthread_t readers[READERS];
    assert_int_equal(setenv("MUSTER_TEST_READ", "stays", 1), 0);
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&readers[i], NULL, read_all_the_time, "MUSTER_TEST_READ"), 0);
    for (int i = 0; i < CALLS; i++)
        assert_true(environment_with("MUSTER_TEST_CORE=Haswell", look));
    atomic_store(&ends, true);
    for (int i = 0; i < READERS; i++)
        (void)pthread_join(readers[i], NULL);
    assert_int_equal(unsetenv("MUSTER_TEST_READ"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_variable_is_there_for_one_call),
        cmocka_unit_test(a_variable_that_is_set_meanwhile_stays),
        cmocka_unit_test(an_empty_environment_has_it_too),
        cmocka_unit_test(readers_are_not_disturbed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
