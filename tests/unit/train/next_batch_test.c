/* Batches that a thread makes ahead belong to their steps, at any pace of their user and wherever it
 * goes back; a taken batch stays unchanged until the next is taken; and the thread ends at any time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/guard.h"
#include "tests/support/cmocka_all.h"
#include "trainer/run/batches.h"

enum { BATCH = 11, MICRO = 2, T = 16, STEPS = 200, RANKS = 3 };

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

static void check_sample(const struct data *data, const struct step_batch *batch, int64_t i, uint64_t id)
{
    int32_t tokens[T], targets[T];
    assert_int_equal(batch->ids[i], id);
    assert_int_equal(data_sample(data, id, tokens, targets, NULL), T);
    assert_memory_equal(((const int32_t *)batch->arrays[0]) + i * T, tokens, sizeof tokens);
    assert_memory_equal(((const int32_t *)batch->arrays[1]) + i * T, targets, sizeof targets);
}

static void batches_are_those_that_are_asked_for(void **state)
{
    (void)state;
    struct data *data = open_text();
    for (int rank = 0; rank < RANKS; rank++) {
        const struct train_batch part = {BATCH, MICRO, rank, RANKS};
        const int64_t samples = train_batch_samples(&part);
        struct next_batch *next =
            next_batch_create(&(struct next_batch_options){batch_source_texts(data, T), part}, NULL);
        assert_non_null(next);
        for (int64_t step = 0; step < STEPS; step++) {
            struct step_batch batch;
            const int64_t first = BATCH * (step % 17 ? step : step / 2); /* now and then a run goes back */
            assert_int_equal(next_batch_take(next, first, &batch, NULL), 0);
            if (step % 5 == 0)
                (void)usleep(500); /* the thread makes the next batch during this time */
            assert_int_equal(batch.samples, samples);
            assert_int_equal(batch.targets_next, samples * T);
            for (int64_t i = 0; i < samples; i++)
                check_sample(data, &batch, i, (uint64_t)(first + train_batch_row(&part, i)));
        }
        next_batch_destroy(next);
    }
    data_destroy(data);
}

/* More ranks than samples. */
static void a_rank_may_have_none(void **state)
{
    (void)state;
    struct data *data = open_text();
    const struct next_batch_options options = {batch_source_texts(data, T), {3, 1, 4, 5}};
    struct next_batch *next = next_batch_create(&options, NULL);
    for (int64_t step = 0; step < 5; step++) {
        struct step_batch batch;
        assert_int_equal(next_batch_take(next, 3 * step, &batch, NULL), 0);
        assert_true(batch.samples == 0 && batch.targets_next == 0 && batch.arrays[0] && batch.arrays[1]);
    }
    next_batch_destroy(next);
    data_destroy(data);
}

static void it_ends_at_any_time(void **state)
{
    (void)state;
    struct data *data = open_text();
    const struct next_batch_options options = {batch_source_texts(data, T), {BATCH, MICRO, 0, 1}};
    for (int taken = 0; taken < 50; taken++) {
        struct next_batch *next = next_batch_create(&options, NULL);
        struct step_batch batch;
        for (int i = 0; i < taken % 4; i++)
            assert_int_equal(next_batch_take(next, BATCH * (int64_t)i, &batch, NULL), 0);
        next_batch_destroy(next);
    }
    next_batch_destroy(NULL);
    data_destroy(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_are_those_that_are_asked_for),
        cmocka_unit_test(a_rank_may_have_none),
        cmocka_unit_test(it_ends_at_any_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
