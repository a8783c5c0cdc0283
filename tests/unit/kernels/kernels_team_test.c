/* kernels_team_test.c - the threads beneath the parallel loops: every share is done once, a thread that does
 * not come is not waited for, and threads without work use no processor. */
#include "tests/support/cmocka_all.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "kernels/cpu/team.h"
#include "kernels/kernels.h"
#include "proto/base/clock.h"

/* Large enough for a loop to be parallel, small enough to be quick. */
enum { ELEMENTS = 1 << 16, LOOPS = 3000 };

static void nothing(void) {}

static void add_and_check(const struct kernels *k, float *values, const float *ones, int loops)
{
    for (int i = 0; i < loops; i++)
        k->add(values, values, ones, ELEMENTS, NULL);
    for (int i = 0; i < ELEMENTS; i++) {
        if (values[i] != (float)loops)
            abort(); /* also from threads, where an assert may not jump */
    }
}

static void *many_loops(void *context)
{
    const int *threads = context;
    struct muster_error err = {0};
    float *values = calloc(2 * (size_t)ELEMENTS, sizeof *values), *ones = values + ELEMENTS;
    if (!values || team_start(*threads, nothing, &err))
        abort();
    for (int i = 0; i < ELEMENTS; i++)
        ones[i] = 1;
    add_and_check(kernels_cpu((unsigned)-1), values, ones, LOOPS);
    free(values);
    return NULL;
}

/* Ranks that are threads of one process have a team each; more threads than processors are late at every
 * loop. */
static void every_share_is_done_once(void **state)
{
    (void)state;
    static int threads[] = {1, 2, 3, 5};
    pthread_t ranks[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&ranks[i], NULL, many_loops, &threads[i]), 0);
    for (int i = 0; i < 4; i++)
        (void)pthread_join(ranks[i], NULL);
}

/* Every thread of a team multiplies in its part of lent memory. */
enum { SIDE = 512, LENT = 2, TRIES = 2000 };

static void *borrow(void *context)
{
    const struct kernels *k = kernels_cpu_by(KERNELS_BF16, NULL);
    const size_t each = (size_t)kernels_cpu_scratch_bytes(k), matrix = (size_t)SIDE * SIDE;
    struct muster_error err = {0};
    char *lent = calloc(LENT, each);
    float *values = calloc(3 * matrix, sizeof *values);
    (void)context;
    if (!lent || !values || team_lent() || kernels_cpu_threads(LENT, &err) < 0 || team_lent())
        abort();
    for (size_t i = 0; i < 2 * matrix; i++)
        values[i] = 1;
    kernels_cpu_scratch(lent);
    for (int i = 0; i < TRIES && !(lent[1] && lent[each + 1]); i++) /* a thread may come late to a loop */
        k->linear_forward(values + 2 * matrix, values, values + matrix, NULL, SIDE, SIDE, SIDE, SIDE, NULL);
    if (!lent[1] || !lent[each + 1] || team_lent() != lent || values[2 * matrix] != (float)SIDE)
        abort();
    free(values);
    return lent; /* until the team has ended */
}

static void products_use_memory_that_is_lent(void **state)
{
    (void)state;
    pthread_t rank;
    void *lent;
    if (!kernels_cpu_by(KERNELS_BF16, NULL))
        skip();
    assert_int_equal(pthread_create(&rank, NULL, borrow, NULL), 0);
    assert_int_equal(pthread_join(rank, &lent), 0);
    free(lent);
    assert_null(team_lent());
    assert_int_equal(kernels_cpu_scratch_bytes(kernels_cpu((unsigned)-1)), 0);
}

static _Atomic bool held = true;
static _Thread_local bool may_pass;

static void stay_away(void)
{
    while (!may_pass && atomic_load(&held))
        clock_sleep_until(instant_add(clock_now(NULL), NS_PER_MS));
}

static void *beside_absent_threads(void *context)
{
    struct muster_error err = {0};
    float *values = calloc(2 * (size_t)ELEMENTS, sizeof *values), *ones = values + ELEMENTS;
    (void)context;
    may_pass = true;
    if (!values || team_start(4, stay_away, &err))
        abort();
    for (int i = 0; i < ELEMENTS; i++)
        ones[i] = 1;
    add_and_check(kernels_cpu((unsigned)-1), values, ones, 100);
    atomic_store(&held, false); /* they may come now, and end with this thread */
    memset(values, 0, ELEMENTS * sizeof *values);
    add_and_check(kernels_cpu((unsigned)-1), values, ones, 100);
    free(values);
    return NULL;
}

static void a_thread_that_does_not_come_is_not_waited_for(void **state)
{
    (void)state;
    pthread_t rank;
    assert_int_equal(pthread_create(&rank, NULL, beside_absent_threads, NULL), 0);
    (void)pthread_join(rank, NULL);
    assert_false(held);
}

static double processor_seconds(void)
{
    struct rusage u;
    (void)getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* libgomp's own threads would use a millisecond or more after each loop. Processor time is the same on a
 * machine with other work. */
static void threads_without_work_sleep(void **state)
{
    (void)state;
    enum { PAUSES = 100 };
    struct muster_error err = {0};
    float *values = calloc(2 * (size_t)ELEMENTS, sizeof *values);
    assert_non_null(values);
    assert_int_equal(kernels_cpu_threads(2, &err), 0);
    const struct kernels *k = kernels_cpu((unsigned)-1);
    k->add(values, values, values + ELEMENTS, ELEMENTS, NULL);
    double used[2];
    for (int pause = 0; pause < 2; pause++) { /* the loop itself takes its time too, with a sanitizer more */
        double before = processor_seconds();
        for (int i = 0; i < PAUSES; i++) {
            k->add(values, values, values + ELEMENTS, ELEMENTS, NULL);
            if (pause)
                clock_sleep_until(instant_add(clock_now(NULL), 3 * NS_PER_MS));
        }
        used[pause] = (processor_seconds() - before) / PAUSES;
    }
    print_message("%.0f us of processor a loop of %d elements, %.0f us with a pause after it\n",
                  1e6 * used[0], ELEMENTS, 1e6 * used[1]);
    assert_true(used[1] - used[0] < 400e-6);
    free(values);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_share_is_done_once),
        cmocka_unit_test(products_use_memory_that_is_lent),
        cmocka_unit_test(a_thread_that_does_not_come_is_not_waited_for),
        cmocka_unit_test(threads_without_work_sleep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
