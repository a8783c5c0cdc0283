/* stream_pace_test.c - when a server naps between turns, and for how long. */
#include "rendezvous/net/nap.h"

#include "tests/support/cmocka_all.h"

enum { FEW = 100 }; /* requests of a turn */

static const struct nap_limits limits = {.longest_ns = 200 * NS_PER_US,
                                         .shortest_ns = 50 * NS_PER_US,
                                         .gap_ns = 200 * NS_PER_US,
                                         .alone_ns = 10 * NS_PER_MS,
                                         .plenty = 16 << 10};

/* Turns of FEW bytes, one every step_ns after the nap before it, until the stream is age_ns old. Returns the
 * nap after the last. */
static int64_t stream_for(struct nap *pace, struct instant *now, int64_t age_ns, int64_t step_ns)
{
    struct instant until = instant_add(*now, age_ns);
    int64_t nap = nap_take(pace, &limits, FEW, true, *now);
    while (!instant_reached(*now, until)) {
        *now = instant_add(*now, nap + step_ns);
        nap = nap_take(pace, &limits, FEW, true, *now);
    }
    return nap;
}

static void naps_grow_with_the_stream(void **state)
{
    (void)state;
    struct nap pace = {0};
    struct instant begin = {NS_PER_S}, now = begin;
    int64_t longest = 0;
    for (int i = 0; i < 2000; i++) {
        int64_t age = instant_diff_ns(now, begin), nap = nap_take(&pace, &limits, FEW, true, now);
        assert_true(nap == 0 || nap >= limits.shortest_ns);
        assert_true(nap <= age / NAP_SHARE);
        assert_true(nap >= longest); /* the older the longer */
        longest = nap;
        now = instant_add(now, nap + 10 * NS_PER_US);
    }
    assert_int_equal(longest, limits.longest_ns);
}

static void a_few_requests_are_no_stream(void **state)
{
    (void)state;
    struct nap pace = {0};
    struct instant now = {NS_PER_S};
    for (int i = 0; i < 10; i++) {
        assert_int_equal(nap_take(&pace, &limits, FEW, true, now), 0);
        now = instant_add(now, 20 * NS_PER_US);
    }
}

static void a_reply_ends_it(void **state)
{
    (void)state;
    struct nap pace = {0};
    struct instant now = {NS_PER_S};
    assert_true(stream_for(&pace, &now, 10 * NS_PER_MS, 10 * NS_PER_US) > 0);
    nap_stop(&pace);
    assert_int_equal(nap_take(&pace, &limits, FEW, true, now), 0);
    now = instant_add(now, 50 * NS_PER_US);
    assert_int_equal(nap_take(&pace, &limits, FEW, true, now), 0); /* 50 us old */
}

static void silence_ends_it(void **state)
{
    (void)state;
    struct nap pace = {0};
    struct instant now = {NS_PER_S};
    int64_t nap = stream_for(&pace, &now, 10 * NS_PER_MS, 10 * NS_PER_US);
    assert_int_equal(nap, limits.longest_ns);
    now = instant_add(now, nap + limits.gap_ns);
    nap = nap_take(&pace, &limits, FEW, true, now); /* the nap itself is no silence */
    assert_int_equal(nap, limits.longest_ns);
    now = instant_add(now, nap + limits.gap_ns + 1);
    assert_int_equal(nap_take(&pace, &limits, FEW, true, now), 0);
    /* now and then a request, for hours: each is the first of its stream */
    for (int i = 0; i < 10; i++) {
        now = instant_add(now, NS_PER_S);
        assert_int_equal(nap_take(&pace, &limits, FEW, true, now), 0);
    }
}

static void plenty_needs_no_nap(void **state)
{
    (void)state;
    struct nap pace = {0};
    struct instant now = {NS_PER_S};
    assert_true(stream_for(&pace, &now, 10 * NS_PER_MS, 10 * NS_PER_US) > 0);
    assert_int_equal(nap_take(&pace, &limits, limits.plenty, true, now), 0);
    now = instant_add(now, 10 * NS_PER_US);
    assert_int_equal(nap_take(&pace, &limits, limits.plenty - 1, true, now), limits.longest_ns);
}

static void one_client_alone_is_not_kept_waiting(void **state)
{
    (void)state;
    struct nap pace = {0};
    struct instant now = {NS_PER_S};
    for (int i = 0; i < 10000; i++) {
        assert_int_equal(nap_take(&pace, &limits, FEW, false, now), 0);
        now = instant_add(now, 10 * NS_PER_US);
    }
    /* another comes, and leaves again */
    assert_int_equal(nap_take(&pace, &limits, FEW, true, now), limits.longest_ns);
    struct instant alone = instant_add(now, limits.alone_ns);
    while (!instant_reached(now, alone)) {
        assert_int_equal(nap_take(&pace, &limits, FEW, false, now), limits.longest_ns);
        now = instant_add(now, limits.longest_ns);
    }
    assert_int_equal(nap_take(&pace, &limits, FEW, false, instant_add(now, 1)), 0);
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
