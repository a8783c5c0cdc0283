/* base_futex_test.c - looking at a word before sleeping: what a look finds, and how vain looks become rare.
 */
#include <pthread.h>

#include "proto/base/futex.h"
#include "tests/support/cmocka_all.h"

static void a_word_that_has_changed_is_seen_at_once(void **state)
{
    (void)state;
    struct futex_word word = {.value = 7};
    struct futex_patience patience = {.skip = 3, .penalty = 4};
    assert_true(futex_look(&word, 6, &patience));
    assert_int_equal(patience.skip, 3); /* it did not wait: nothing was learned */
    assert_int_equal(patience.penalty, 4);
}

static void looks_in_vain_become_rare(void **state)
{
    (void)state;
    struct futex_word word = {.value = 7};
    struct futex_patience patience = {0};
    uint32_t expected = 1;
    for (int look = 0; look < 9; look++) {
        assert_false(futex_look(&word, 7, &patience));
        assert_int_equal(patience.skip, expected);
        for (uint32_t left = expected; left > 0; left--) {
            assert_int_equal(patience.skip, left);
            assert_false(futex_look(&word, 7, &patience)); /* does not look */
            assert_int_equal(patience.penalty, expected);
        }
        expected = expected < 64 ? 2 * expected : 64;
    }
}

static void *add_one(void *word)
{
    atomic_fetch_add(&((struct futex_word *)word)->value, 1);
    return NULL;
}

/* Looking takes 60 us, in which the other thread may not get its turn: then it looks again. */
static void a_change_by_another_thread_ends_the_look(void **state)
{
    (void)state;
    struct futex_word word = {0};
    struct futex_patience patience = {.penalty = 16};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, add_one, &word), 0);
    while (!futex_look(&word, 0, &patience))
        ;
    assert_int_equal(atomic_load(&word.value), 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void a_look_that_is_rewarded_forgives(void **state)
{
    (void)state;
    struct futex_word word = {0};
    struct futex_patience patience = {0};
    int rewarded = 0;
    for (int i = 0; i < 10000 && !rewarded; i++) {
        pthread_t thread;
        uint32_t seen = atomic_load(&word.value);
        patience = (struct futex_patience){.penalty = 16};
        assert_int_equal(pthread_create(&thread, NULL, add_one, &word), 0);
        /* a word that had changed before leaves the penalty, a look in vain doubles it */
        rewarded = futex_look(&word, seen, &patience) && patience.penalty == 0;
        assert_true(patience.penalty == 0 || patience.penalty == 16 || patience.penalty == 32);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    assert_true(rewarded);
}

/* The 17th wait in a row that was won by yielding sleeps, the 33rd after it, ... the 1,025th. */
static void a_crowded_processor_is_left_by_sleeping(void **state)
{
    (void)state;
    struct futex_word word = {.value = 7};
    uint32_t expected = 16;
    struct futex_patience patience = {.moves = true};
    for (uint32_t spread = 1; spread <= 8; spread++) {
        patience.crowded = expected - 1;
        assert_false(futex_look(&word, 7, &patience)); /* looks */
        assert_int_equal(patience.skip, 1);
        patience = (struct futex_patience){.crowded = expected, .spreads = patience.spreads, .moves = true};
        assert_false(futex_look(&word, 7, &patience)); /* does not */
        assert_int_equal(patience.skip, 0);
        assert_int_equal(patience.penalty, 0);
        assert_int_equal(patience.crowded, 0);
        assert_int_equal(patience.spreads, spread < 6 ? spread : 6);
        expected = expected < 1024 ? 2 * expected : 1024;
    }
    patience = (struct futex_patience){.crowded = 5000};
    assert_false(futex_look(&word, 7, &patience)); /* without leave to move it looks */
    assert_int_equal(patience.skip, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_word_that_has_changed_is_seen_at_once),
        cmocka_unit_test(looks_in_vain_become_rare),
        cmocka_unit_test(a_change_by_another_thread_ends_the_look),
        cmocka_unit_test(a_look_that_is_rewarded_forgives),
        cmocka_unit_test(a_crowded_processor_is_left_by_sleeping),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
