/* Which samples a rank runs: for every batch, micro-batch and number of ranks each row of the global batch is
 * run once, by one rank, and all ranks run as many micro-batches as the batch needs and no more. */
#include <string.h>

#include "runtime/config/train_batch.h"
#include "tests/support/cmocka_all.h"

enum { BATCHES = 40, MICROS = 6, RANKS = 11 };

static void check(int64_t batch, int64_t micro, int ranks)
{
    int seen[BATCHES + 1] = {0};
    const struct train_batch first = {batch, micro, 0, ranks};
    const int64_t micro_batches = train_batch_micro_batches(&first);
    assert_true(micro_batches * micro * ranks >= batch && (micro_batches - 1) * micro * ranks < batch);
    for (int rank = 0; rank < ranks; rank++) {
        const struct train_batch b = {batch, micro, rank, ranks};
        const int64_t samples = train_batch_samples(&b), rows = micro_batches * micro;
        assert_int_equal(train_batch_micro_batches(&b), micro_batches);
        assert_true(samples >= 0 && samples <= rows);
        for (int64_t i = 0; i < rows; i++) {
            const int64_t row = train_batch_row(&b, i);
            assert_int_equal(row < batch, i < samples); /* the empty ones are the last */
            if (row < batch)
                assert_int_equal(seen[row]++, 0);
        }
    }
    for (int64_t row = 0; row < batch; row++)
        assert_int_equal(seen[row], 1);
}

static void every_row_is_run_once(void **state)
{
    (void)state;
    for (int64_t batch = 1; batch <= BATCHES; batch++)
        for (int64_t micro = 1; micro <= MICROS; micro++)
            for (int ranks = 1; ranks <= RANKS; ranks++)
                check(batch, micro, ranks);
}

/* As README says: 16 samples on 3 ranks, and more ranks than samples. */
static void some_by_hand(void **state)
{
    (void)state;
    const struct train_batch three[] = {{16, 1, 0, 3}, {16, 1, 1, 3}, {16, 1, 2, 3}};
    assert_int_equal(train_batch_micro_batches(&three[0]), 6);
    assert_int_equal(train_batch_samples(&three[0]), 6);
    assert_int_equal(train_batch_samples(&three[1]), 5);
    assert_int_equal(train_batch_samples(&three[2]), 5);
    assert_int_equal(train_batch_row(&three[1], 4), 13);
    const struct train_batch fourth = {3, 1, 3, 5}, pairs = {10, 4, 1, 2};
    assert_int_equal(train_batch_micro_batches(&fourth), 1);
    assert_int_equal(train_batch_samples(&fourth), 0);
    assert_int_equal(train_batch_micro_batches(&pairs), 2);
    assert_int_equal(train_batch_samples(&pairs), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_run_once),
        cmocka_unit_test(some_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
