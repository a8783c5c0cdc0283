/* stream_pace_test.c - when the TCPStore server naps between turns, and for how long. */
#include "rendezvous/stream_pace.h"

#include "tests/support/cmocka_all.h"

enum { FEW = 100 }; /* bytes of a turn */

/* Turns of FEW bytes, one every step_ns after the nap before it, until the stream is age_ns old. Returns the
 * nap after the last. */
static int64_t stream_for(struct stream_pace *pace, struct instant *now, int64_t age_ns, int64_t step_ns)
{
    struct instant until = instant_add(*now, age_ns);
    int64_t nap = stream_pace_nap(pace, FEW, true, *now);
    while (!instant_reached(*now, until)) {
        *now = instant_add(*now, nap + step_ns);
        nap = stream_pace_nap(pace, FEW, true, *now);
    }
    return nap;
}

static void naps_grow_with_the_stream(void **state)
{
    (void)state;
    struct stream_pace pace = {0};
    struct instant begin = {NS_PER_S}, now = begin;
    int64_t longest = 0;
    for (int i = 0; i < 2000; i++) {
        int64_t age = instant_diff_ns(now, begin), nap = stream_pace_nap(&pace, FEW, true, now);
        assert_true(nap == 0 || nap >= STREAM_PACE_SHORTEST_NS);
        assert_true(nap <= age / STREAM_PACE_SHARE);
        assert_true(nap >= longest); /* the older the longer */
        longest = nap;
        now = instant_add(now, nap + 10 * NS_PER_US);
    }
    assert_int_equal(longest, STREAM_PACE_LONGEST_NS);
}

static void a_few_requests_are_no_stream(void **state)
{
    (void)state;
    struct stream_pace pace = {0};
    struct instant now = {NS_PER_S};
    for (int i = 0; i < 10; i++) {
        assert_int_equal(stream_pace_nap(&pace, FEW, true, now), 0);
        now = instant_add(now, 20 * NS_PER_US);
    }
}

static void a_reply_ends_it(void **state)
{
    (void)state;
    struct stream_pace pace = {0};
    struct instant now = {NS_PER_S};
    assert_true(stream_for(&pace, &now, 10 * NS_PER_MS, 10 * NS_PER_US) > 0);
    stream_pace_stop(&pace);
    assert_int_equal(stream_pace_nap(&pace, FEW, true, now), 0);
    now = instant_add(now, 50 * NS_PER_US);
    assert_int_equal(stream_pace_nap(&pace, FEW, true, now), 0); /* 50 us old */
}

static void silence_ends_it(void **state)
{
    (void)state;
    struct stream_pace pace = {0};
    struct instant now = {NS_PER_S};
    int64_t nap = stream_for(&pace, &now, 10 * NS_PER_MS, 10 * NS_PER_US);
    assert_int_equal(nap, STREAM_PACE_LONGEST_NS);
    now = instant_add(now, nap + STREAM_PACE_GAP_NS);
    nap = stream_pace_nap(&pace, FEW, true, now); /* the nap itself is no silence */
    assert_int_equal(nap, STREAM_PACE_LONGEST_NS);
    now = instant_add(now, nap + STREAM_PACE_GAP_NS + 1);
    assert_int_equal(stream_pace_nap(&pace, FEW, true, now), 0);
    /* now and then a request, for hours: each is the first of its stream */
    for (int i = 0; i < 10; i++) {
        now = instant_add(now, NS_PER_S);
        assert_int_equal(stream_pace_nap(&pace, FEW, true, now), 0);
    }
}

static void plenty_needs_no_nap(void **state)
{
    (void)state;
    struct stream_pace pace = {0};
    struct instant now = {NS_PER_S};
    assert_true(stream_for(&pace, &now, 10 * NS_PER_MS, 10 * NS_PER_US) > 0);
    assert_int_equal(stream_pace_nap(&pace, STREAM_PACE_PLENTY, true, now), 0);
    now = instant_add(now, 10 * NS_PER_US);
    assert_int_equal(stream_pace_nap(&pace, STREAM_PACE_PLENTY - 1, true, now), STREAM_PACE_LONGEST_NS);
}

static void one_client_alone_is_not_kept_waiting(void **state)
{
    (void)state;
    struct stream_pace pace = {0};
    struct instant now = {NS_PER_S};
    for (int i = 0; i < 10000; i++) {
        assert_int_equal(stream_pace_nap(&pace, FEW, false, now), 0);
        now = instant_add(now, 10 * NS_PER_US);
    }
    /* another comes, and leaves again */
    assert_int_equal(stream_pace_nap(&pace, FEW, true, now), STREAM_PACE_LONGEST_NS);
    struct instant alone = instant_add(now, STREAM_PACE_ALONE_NS);
    while (!instant_reached(now, alone)) {
        assert_int_equal(stream_pace_nap(&pace, FEW, false, now), STREAM_PACE_LONGEST_NS);
        now = instant_add(now, STREAM_PACE_LONGEST_NS);
    }
    assert_int_equal(stream_pace_nap(&pace, FEW, false, instant_add(now, 1)), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(naps_grow_with_the_stream), cmocka_unit_test(a_few_requests_are_no_stream),
        cmocka_unit_test(a_reply_ends_it),           cmocka_unit_test(silence_ends_it),
        cmocka_unit_test(plenty_needs_no_nap),       cmocka_unit_test(one_client_alone_is_not_kept_waiting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
