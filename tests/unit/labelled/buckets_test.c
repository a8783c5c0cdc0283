/* buckets_test.c - an order by length: every epoch has each sample once, with any sizes; the samples of a
 * step follows from the sample's number alone, in any order of asking; and steps have samples of about one
 * length. */
#include "tests/support/cmocka_all.h"

#include "proto/base/mem.h"
#include "trainer/data/order.h"
#include "trainer/labelled/labelled_internal.h"

enum { SAMPLES = 1000, EPOCHS = 3 };

/* Drawn, from 1 to 64. */
static int length_of(const void *context, int64_t index)
{
    (void)context;
    return 1 + (int)(order_permute(5, 0, (uint64_t)index, SAMPLES) * 64 / SAMPLES);
}

static struct buckets *create(int64_t samples, int64_t step, int64_t window, uint64_t seed)
{
    const struct buckets_options options = {samples, step, window, seed, length_of, NULL};
    struct muster_error err = {0};
    struct buckets *buckets = buckets_create(&options, &err);
    if (!buckets)
        fail_msg("%s", err.text);
    return buckets;
}

static const struct {
    int64_t samples, step, window;
} sizes[] = {{1, 1, 1},          {1, 5, 2},         {7, 3, 2},    {SAMPLES, 64, 4},
             {SAMPLES, 64, 1},   {SAMPLES, 1, 16},  {999, 7, 11}, {SAMPLES, 64, 1000000},
             {SAMPLES, 3000, 2}, {SAMPLES, 250, 4}, {50, 64, 3}};

static void each_epoch_has_each_sample_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int64_t n = sizes[i].samples;
        GUARD(guard_buckets) struct buckets *buckets = create(n, sizes[i].step, sizes[i].window, 3 + i);
        scope_free int *seen = mem_calloc((size_t)n, sizeof *seen);
        assert_non_null(seen);
        for (int64_t g = 0; g < EPOCHS * n; g++) {
            const int64_t index = buckets_at(buckets, (uint64_t)g);
            assert_in_range(index, 0, n - 1);
            if (seen[index]++ != g / n)
                fail_msg("samples %lld, step %lld, window %lld: sample %lld of epoch %lld has come %d times",
                         (long long)n, (long long)sizes[i].step, (long long)sizes[i].window, (long long)index,
                         (long long)(g / n), seen[index]);
        }
    }
}

/* A resume, another rank and the thread that makes batches ask in other orders. */
static void it_follows_from_the_number_alone(void **state)
{
    int64_t wanted[EPOCHS * SAMPLES];
    (void)state;
    GUARD(guard_buckets) struct buckets *one = create(SAMPLES, 64, 5, 9);
    for (int64_t g = 0; g < EPOCHS * SAMPLES; g++)
        wanted[g] = buckets_at(one, (uint64_t)g);
    GUARD(guard_buckets) struct buckets *other = create(SAMPLES, 64, 5, 9);
    for (int64_t g = EPOCHS * SAMPLES - 1; g >= 0; g -= 7)
        assert_int_equal(buckets_at(other, (uint64_t)g), wanted[g]);
    GUARD(guard_buckets) struct buckets *seeded = create(SAMPLES, 64, 5, 10);
    int same = 0, again = 0;
    for (int64_t g = 0; g < SAMPLES; g++) {
        same += buckets_at(seeded, (uint64_t)g) == wanted[g];
        again += wanted[g] == wanted[SAMPLES + g];
    }
    assert_true(same < SAMPLES / 10 && again < SAMPLES / 10); /* other seeds and epochs have other orders */
}

/* Positions of an epoch's steps, each as long as its longest sample. */
static int64_t positions(struct buckets *buckets, int64_t first, int64_t step, int *ascents)
{
    int64_t sum = 0;
    int before = 0;
    for (int64_t from = first; from < first + SAMPLES; from += step) {
        int longest = 0;
        for (int64_t g = from; g < from + step && g < first + SAMPLES; g++) {
            const int length = length_of(NULL, buckets_at(buckets, (uint64_t)g));
            longest = length > longest ? length : longest;
        }
        *ascents += longest > before;
        before = longest;
        sum += longest * step;
    }
    return sum;
}

static void steps_have_one_length(void **state)
{
    enum { STEP = 50 }; /* a divisor: no step has samples of two epochs */
    int64_t tokens = 0;
    int steps_up = 0, drawn_up = 0;
    (void)state;
    for (int64_t i = 0; i < SAMPLES; i++)
        tokens += length_of(NULL, i);
    GUARD(guard_buckets) struct buckets *whole = create(SAMPLES, STEP, SAMPLES, 4);
    GUARD(guard_buckets) struct buckets *drawn = create(SAMPLES, STEP, 1, 4);
    const int64_t found = positions(whole, SAMPLES, STEP, &steps_up),
                  other = positions(drawn, SAMPLES, STEP, &drawn_up);
    /* 20 steps over 64 lengths: each has four lengths or fewer, of which the longest is at most three above
     */
    assert_in_range(found, tokens, tokens + 3 * SAMPLES);
    assert_true(other > tokens * 3 / 2);
    assert_in_range(steps_up, 4, 16); /* and they do not come by length */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_epoch_has_each_sample_once),
        cmocka_unit_test(it_follows_from_the_number_alone),
        cmocka_unit_test(steps_have_one_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
