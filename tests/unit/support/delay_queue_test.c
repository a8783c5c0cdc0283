/* delay_queue_test.c - the slow wire of the tests with many nodes: when frames come out, in which order, what
 * is lost. */
#include "tests/support/cmocka_all.h"
#include "tests/support/delay_queue.h"

#include <string.h>

enum { DELAY_MS = 200 };

static struct instant at_ms(int64_t ms)
{
    return (struct instant){ms * NS_PER_MS};
}

static void nothing_comes_out_of_an_empty_one(void **state)
{
    (void)state;
    GUARD(guard_delay_queue) struct delay_queue *queue = delay_queue_create(DELAY_MS * NS_PER_MS, 2);
    struct delay_frame frame;
    assert_int_equal(delay_queue_due(queue).ns, INSTANT_NEVER.ns);
    assert_false(delay_queue_pop(queue, at_ms(1000000), &frame));
    assert_null(delay_queue_create(0, 0));
}

static void frames_come_in_order_each_so_much_later(void **state)
{
    (void)state;
    GUARD(guard_delay_queue) struct delay_queue *queue = delay_queue_create(DELAY_MS * NS_PER_MS, 3);
    struct delay_frame frame;
    for (int i = 0; i < 10; i++) { /* goes round the ring */
        char first[] = {'a', (char)i}, second[] = {'b', (char)i, 'x'};
        int64_t start = 1000 * i;
        assert_true(delay_queue_push(queue, first, sizeof first, at_ms(start)));
        assert_true(delay_queue_push(queue, second, sizeof second, at_ms(start + 50)));
        assert_int_equal(delay_queue_due(queue).ns, at_ms(start + DELAY_MS).ns);
        assert_false(delay_queue_pop(queue, (struct instant){at_ms(start + DELAY_MS).ns - 1}, &frame));
        assert_true(delay_queue_pop(queue, at_ms(start + DELAY_MS), &frame));
        assert_int_equal(frame.length, sizeof first);
        assert_memory_equal(frame.data, first, sizeof first);
        assert_false(delay_queue_pop(queue, at_ms(start + DELAY_MS), &frame));
        assert_true(delay_queue_pop(queue, at_ms(start + DELAY_MS + 50), &frame));
        assert_int_equal(frame.length, sizeof second);
        assert_memory_equal(frame.data, second, sizeof second);
    }
    assert_int_equal(delay_queue_lost(queue), 0);
}

static void what_it_cannot_hold_is_lost_and_counted(void **state)
{
    (void)state;
    GUARD(guard_delay_queue) struct delay_queue *queue = delay_queue_create(DELAY_MS * NS_PER_MS, 2);
    unsigned char longest[DELAY_FRAME_LIMIT + 1];
    struct delay_frame frame;
    memset(longest, 7, sizeof longest);
    assert_false(delay_queue_push(queue, longest, sizeof longest, at_ms(0)));
    assert_true(delay_queue_push(queue, longest, DELAY_FRAME_LIMIT, at_ms(0)));
    assert_true(delay_queue_push(queue, "b", 1, at_ms(0)));
    assert_false(delay_queue_push(queue, "c", 1, at_ms(0)));
    assert_int_equal(delay_queue_lost(queue), 2);
    assert_true(delay_queue_pop(queue, at_ms(DELAY_MS), &frame));
    assert_int_equal(frame.length, DELAY_FRAME_LIMIT);
    assert_true(delay_queue_push(queue, "d", 1, at_ms(DELAY_MS)));
    assert_true(delay_queue_pop(queue, at_ms(DELAY_MS), &frame));
    assert_memory_equal(frame.data, "b", 1);
    assert_true(delay_queue_pop(queue, at_ms(2 * DELAY_MS), &frame));
    assert_memory_equal(frame.data, "d", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_comes_out_of_an_empty_one),
        cmocka_unit_test(frames_come_in_order_each_so_much_later),
        cmocka_unit_test(what_it_cannot_hold_is_lost_and_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
