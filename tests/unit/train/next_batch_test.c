/* Batches that a thread makes ahead are those of data_batch, whatever the pace of their user and where it
 * goes back; what was taken stays as it is until the next is taken; and the thread ends at any time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/guard.h"
#include "runtime/app/next_batch.h"
#include "tests/support/cmocka_all.h"

enum { MICROS = 3, ROWS = 2, T = 16, COUNT = MICROS * ROWS * T, STEPS = 200 };

static struct data *open_text(void)
{
    char path[] = "/tmp/next_batch_XXXXXX";
    scope_close int fd = mkstemp(path);
    char text[5000];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)('a' + (i * i + i / 7) % 26);
    assert_true(fd >= 0 && write(fd, text, sizeof text) == (ssize_t)sizeof text);
    struct data *data = data_open(&(struct data_options){.path = path, .positions = T, .seed = 7}, NULL);
    (void)unlink(path);
    assert_non_null(data);
    return data;
}

static void batches_are_those_that_are_asked_for(void **state)
{
    (void)state;
    struct data *data = open_text();
    for (int rank = 0; rank < 2; rank++) {
        const struct next_batch_options options = {data, rank, 2, MICROS, ROWS, T};
        struct next_batch *next = next_batch_create(&options, NULL);
        assert_non_null(next);
        for (int64_t step = 0; step < STEPS; step++) {
            int32_t wanted[2][COUNT];
            const int32_t *tokens, *targets;
            const int64_t number = 11 + (step % 17 ? step : step / 2); /* now and then a run goes back */
            assert_int_equal(next_batch_take(next, number, &tokens, &targets, NULL), COUNT);
            if (step % 5 == 0)
                (void)usleep(500); /* the thread makes the next one meanwhile */
            assert_int_equal(data_batch(data, number, rank, 2, MICROS, ROWS, wanted[0], wanted[1], NULL),
                             COUNT);
            assert_memory_equal(tokens, wanted[0], sizeof wanted[0]);
            assert_memory_equal(targets, wanted[1], sizeof wanted[1]);
        }
        assert_true(next_batch_waited_ns(next) > 0);
        next_batch_destroy(next);
    }
    data_destroy(data);
}

static void it_ends_at_any_time(void **state)
{
    (void)state;
    struct data *data = open_text();
    const struct next_batch_options options = {data, 0, 1, MICROS, ROWS, T};
    for (int taken = 0; taken < 50; taken++) {
        struct next_batch *next = next_batch_create(&options, NULL);
        const int32_t *tokens, *targets;
        for (int i = 0; i < taken % 4; i++)
            assert_int_equal(next_batch_take(next, i, &tokens, &targets, NULL), COUNT);
        next_batch_destroy(next);
    }
    next_batch_destroy(NULL);
    data_destroy(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_are_those_that_are_asked_for),
        cmocka_unit_test(it_ends_at_any_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
