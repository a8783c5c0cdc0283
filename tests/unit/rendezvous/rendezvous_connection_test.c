/* rendezvous_connection_test.c - attempts to reach the server, in words. */
#include <string.h>

#include "rendezvous/client/connection.h"
#include "tests/support/cmocka_all.h"

struct note {
    enum connection_event event;
    int after_ms;
};

static const char *tell(const struct note *notes, size_t count)
{
    static struct connection connection;
    struct instant now = {NS_PER_S};
    connection = (struct connection){0};
    for (size_t i = 0; i < count; i++) {
        now = instant_add(now, notes[i].after_ms * NS_PER_MS);
        (void)connection_step(&connection, notes[i].event, now);
    }
    return connection_words(&connection);
}

#define TELL(...)                                                                                            \
    tell((const struct note[]){__VA_ARGS__}, sizeof(struct note[]){__VA_ARGS__} / sizeof(struct note))

static void every_story(void **state)
{
    (void)state;
    assert_string_equal(TELL({CONNECTION_BEGINS, 0}), "");
    assert_string_equal(TELL({CONNECTION_BEGINS, 0}, {CONNECTION_FAILS, 5}), "nothing listens there");
    assert_non_null(
        strstr(TELL({CONNECTION_BEGINS, 0}, {CONNECTION_FAILS, 3000}), "no response from that address"));
    assert_string_equal(TELL({CONNECTION_BEGINS, 0}, {CONNECTION_FAILS, 5}, {CONNECTION_BEGINS, 100},
                             {CONNECTION_OPENS, 1}, {CONNECTION_GREETS, 1}),
                        "");
    assert_string_equal(TELL({CONNECTION_OPENS, 1}, {CONNECTION_GREETS, 1}, {CONNECTION_CLOSES, 1}),
                        "the connection broke");
    /* what closes at our greeting, or answers in another language, or not at all */
    assert_non_null(strstr(TELL({CONNECTION_OPENS, 1}, {CONNECTION_CLOSES, 1}), "torchrun"));
    assert_non_null(strstr(TELL({CONNECTION_OPENS, 1}, {CONNECTION_CONFUSES, 1}), "torchrun"));
    assert_non_null(strstr(TELL({CONNECTION_OPENS, 1}, {CONNECTION_CLOSES, 1}, {CONNECTION_FAILS, 0},
                                {CONNECTION_BEGINS, 100}, {CONNECTION_OPENS, 1}),
                           "torchrun"));
    /* what takes connections and says nothing until the greeting's time is over; and is killed then */
    assert_non_null(
        strstr(TELL({CONNECTION_OPENS, 1}, {CONNECTION_CONFUSES, 2000}), "does not complete the handshake"));
    assert_non_null(strstr(TELL({CONNECTION_OPENS, 1}, {CONNECTION_BREAKS_OFF, 2000}),
                           "does not complete the handshake"));
    assert_non_null(
        strstr(TELL({CONNECTION_OPENS, 1}, {CONNECTION_CONFUSES, 2000}, {CONNECTION_FAILS, 0},
                    {CONNECTION_BEGINS, 100}, {CONNECTION_OPENS, 1}),
               "does not complete the handshake: a hung process, or not a muster server (torchrun"));
    assert_string_equal(TELL({CONNECTION_BEGINS, 0}, {CONNECTION_OPENS, 1}, {CONNECTION_GREETS, 1},
                             {CONNECTION_CLOSES, 9000}, {CONNECTION_FAILS, 0}),
                        "the connection broke");
    assert_string_equal(TELL({CONNECTION_OPENS, 1}, {CONNECTION_CONFUSES, 2000}, {CONNECTION_BEGINS, 1000},
                             {CONNECTION_FAILS, 1}),
                        "nothing listens there");
    assert_string_equal(
        TELL({CONNECTION_OPENS, 1}, {CONNECTION_CLOSES, 1}, {CONNECTION_OPENS, 1}, {CONNECTION_GREETS, 1}),
        "");
}

/* A connection that ends in its greeting after so many milliseconds, as libzmq reports it. */
static const char *cut(struct connection *connection, enum connection_event end, int after_ms)
{
    static struct instant now = {NS_PER_S};
    now = instant_add(now, after_ms * NS_PER_MS);
    (void)connection_step(connection, CONNECTION_OPENS, now);
    (void)connection_step(connection, end, now);
    (void)connection_step(connection, CONNECTION_CLOSES, now);
    (void)connection_step(connection, CONNECTION_FAILS, now);
    (void)connection_step(connection, CONNECTION_BEGINS, now);
    return connection_words(connection);
}

/* A server that is killed may end a new connection before its port. A foreign program does it each time. */
static void a_killed_server_is_no_foreign_program(void **state)
{
    static const char word[] = "the peer ended the connection during the handshake";
    static const enum connection_event ends[] = {CONNECTION_ENDS, CONNECTION_ENDS_SECRET};
    static const char *const faults[] = {"does not speak", "is not the one"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct connection connection = {0};
        for (int n = 0; n < 2; n++)
            assert_non_null(strstr(cut(&connection, ends[i], 100), word));
        assert_non_null(strstr(cut(&connection, ends[i], 100), faults[i]));
        (void)connection_step(&connection, CONNECTION_GREETS, (struct instant){NS_PER_S});
        for (int n = 0; n < 6; n++) /* a server has greeted here before */
            assert_non_null(strstr(cut(&connection, ends[i], 900), word));
        assert_non_null(strstr(cut(&connection, ends[i], 900), faults[i]));
    }
    /* a wrong byte is enough, and so is a long silence */
    assert_non_null(strstr(TELL({CONNECTION_OPENS, 1}, {CONNECTION_GREETS, 1}, {CONNECTION_CLOSES, 9000},
                                {CONNECTION_OPENS, 10}, {CONNECTION_CONFUSES, 1}),
                           "does not speak"));
    assert_non_null(
        strstr(TELL({CONNECTION_OPENS, 1}, {CONNECTION_ENDS, 2000}), "does not complete the handshake"));
    assert_string_equal(TELL({CONNECTION_OPENS, 1}, {CONNECTION_ENDS, 1}, {CONNECTION_CLOSES, 0},
                             {CONNECTION_FAILS, 0}, {CONNECTION_BEGINS, 100}, {CONNECTION_FAILS, 1}),
                        "nothing listens there");
}

static bool is_lost(const struct note *notes, size_t count)
{
    struct connection connection = {0};
    struct instant now = {NS_PER_S};
    for (size_t i = 0; i + 1 < count; i++)
        (void)connection_step(&connection, notes[i].event,
                              now = instant_add(now, notes[i].after_ms * NS_PER_MS));
    return connection_is_lost_by(&connection, notes[count - 1].event);
}

#define IS_LOST(...)                                                                                         \
    is_lost((const struct note[]){__VA_ARGS__}, sizeof(struct note[]){__VA_ARGS__} / sizeof(struct note))

/* Events that end the workers of a static job, and events that do not. */
static void a_server_that_stands_still_is_not_lost(void **state)
{
    (void)state;
    assert_true(IS_LOST({CONNECTION_OPENS, 1}, {CONNECTION_GREETS, 1}, {CONNECTION_CLOSES, 1}));
    assert_false(IS_LOST({CONNECTION_OPENS, 1}, {CONNECTION_GREETS, 1}, {CONNECTION_CLOSES, 1},
                         {CONNECTION_FAILS, 0}));
    assert_true(IS_LOST({CONNECTION_OPENS, 1}, {CONNECTION_GREETS, 1}, {CONNECTION_CLOSES, 1},
                        {CONNECTION_FAILS, 0}, {CONNECTION_BEGINS, 100}, {CONNECTION_FAILS, 0}));
    assert_true(IS_LOST({CONNECTION_BEGINS, 1}, {CONNECTION_FAILS, 3000})); /* no answer at all */
    assert_false(IS_LOST({CONNECTION_BEGINS, 1}, {CONNECTION_OPENS, 1}, {CONNECTION_CONFUSES, 2000}));
    assert_false(IS_LOST({CONNECTION_BEGINS, 1}, {CONNECTION_OPENS, 1}, {CONNECTION_CONFUSES, 2000},
                         {CONNECTION_CLOSES, 0}));
    assert_false(IS_LOST({CONNECTION_BEGINS, 1}, {CONNECTION_OPENS, 1}, {CONNECTION_CONFUSES, 2000},
                         {CONNECTION_CLOSES, 0}, {CONNECTION_FAILS, 0}));
    assert_true(IS_LOST({CONNECTION_OPENS, 1}, {CONNECTION_CONFUSES, 2000}, {CONNECTION_CLOSES, 0},
                        {CONNECTION_FAILS, 0}, {CONNECTION_BEGINS, 100},
                        {CONNECTION_FAILS, 0})); /* and then killed */
}

static void secrets_that_do_not_go_together(void **state)
{
    (void)state;
    static const char *const words[] = {"started without one", "the server without", "another job id"};
    for (int i = 0; i < 3; i++) {
        enum connection_event refusal = (enum connection_event)(CONNECTION_WANTS_SECRET + i);
        assert_non_null(strstr(TELL({CONNECTION_OPENS, 1}, {refusal, 1}, {CONNECTION_CLOSES, 0}), words[i]));
        /* what else is seen of the same refusal says less */
        assert_non_null(strstr(TELL({CONNECTION_OPENS, 1}, {refusal, 1}, {CONNECTION_CLOSES, 0},
                                    {CONNECTION_FAILS, 0}, {CONNECTION_BEGINS, 100}, {CONNECTION_OPENS, 1},
                                    {CONNECTION_CONFUSES, 1}, {CONNECTION_BREAKS_OFF, 1}),
                               words[i]));
        assert_string_equal(TELL({CONNECTION_OPENS, 1}, {refusal, 1}, {CONNECTION_CLOSES, 0},
                                 {CONNECTION_OPENS, 1000}, {CONNECTION_GREETS, 1}),
                            "");
    }
    assert_non_null(strstr(TELL({CONNECTION_OPENS, 1}, {CONNECTION_BREAKS_OFF, 1}), "is not the one"));
}

static void a_mismatch_is_of_secrets_alone(void **state)
{
    (void)state;
    for (int event = 0; event < CONNECTION_EVENT_COUNT; event++) {
        struct connection connection = {0};
        (void)connection_step(&connection, (enum connection_event)event, (struct instant){NS_PER_S});
        assert_int_equal(connection_is_mismatch(&connection),
                         event == CONNECTION_WANTS_SECRET || event == CONNECTION_WANTS_NO_SECRET);
    }
}

static void hope_ends_when_the_same_is_said_for_long(void **state)
{
    (void)state;
    struct connection connection = {0};
    struct instant now = {NS_PER_S};
    for (int second = 0; second < 5; second++, now = instant_add(now, NS_PER_S)) {
        (void)connection_step(&connection, CONNECTION_OPENS, now);
        (void)connection_step(&connection, CONNECTION_DENIES, now);
        (void)connection_step(&connection, CONNECTION_CLOSES, now);
        assert_false(connection_is_hopeless(&connection));
    }
    (void)connection_step(&connection, CONNECTION_FAILS, instant_add(now, 3600 * NS_PER_S));
    assert_false(connection_is_hopeless(&connection)); /* it is gone */
    (void)connection_step(&connection, CONNECTION_DENIES, now);
    assert_true(connection_is_hopeless(&connection));
    (void)connection_step(&connection, CONNECTION_GREETS, now);
    assert_false(connection_is_hopeless(&connection));

    /* it says why once, and then ends the connection before we have read that */
    connection = (struct connection){0};
    (void)connection_step(&connection, CONNECTION_OPENS, now);
    (void)connection_step(&connection, CONNECTION_CONFUSES, now);
    (void)connection_step(&connection, CONNECTION_WANTS_SECRET, instant_add(now, NS_PER_S));
    (void)connection_step(&connection, CONNECTION_CONFUSES, instant_add(now, 5 * NS_PER_S));
    assert_false(connection_is_hopeless(&connection));
    (void)connection_step(&connection, CONNECTION_CONFUSES, instant_add(now, 6 * NS_PER_S));
    assert_true(connection_is_hopeless(&connection));
    assert_non_null(strstr(connection_words(&connection), "started without one"));

    /* a guess is no reason to give up */
    connection = (struct connection){0};
    (void)connection_step(&connection, CONNECTION_BREAKS_OFF, now);
    (void)connection_step(&connection, CONNECTION_BREAKS_OFF, instant_add(now, 3600 * NS_PER_S));
    assert_false(connection_is_hopeless(&connection));
}

static void what_libzmq_gives_up_is_begun_again(void **state)
{
    (void)state;
    struct connection connection = {0};
    struct instant now = {NS_PER_S};
    (void)connection_step(&connection, CONNECTION_OPENS, now);
    assert_int_equal(connection_retry(&connection).ns, INT64_MAX);
    (void)connection_step(&connection, CONNECTION_CLOSES, now);
    assert_int_equal(connection_retry(&connection).ns, 2 * NS_PER_S);
    (void)connection_step(&connection, CONNECTION_FAILS, now); /* libzmq: I try again */
    assert_int_equal(connection_retry(&connection).ns, INT64_MAX);
    (void)connection_step(&connection, CONNECTION_DENIES, now);
    assert_int_equal(connection_retry(&connection).ns, 2 * NS_PER_S);
    connection_retried(&connection);
    assert_int_equal(connection_retry(&connection).ns, INT64_MAX);
}

static bool is_slow_after(int lasted_ms, bool greeted, enum connection_event end)
{
    struct connection connection = {0};
    struct instant now = {NS_PER_S};
    (void)connection_step(&connection, CONNECTION_BEGINS, now);
    (void)connection_step(&connection, CONNECTION_OPENS, now);
    if (greeted)
        (void)connection_step(&connection, CONNECTION_GREETS, now);
    (void)connection_step(&connection, end, instant_add(now, lasted_ms * NS_PER_MS));
    return connection_first_interval_ms(&connection) == 100;
}

static void what_ends_connections_at_once_is_tried_slowly(void **state)
{
    (void)state;
    for (int end = CONNECTION_CONFUSES; end < CONNECTION_EVENT_COUNT; end++)
        for (int greeted = 0; greeted < 2; greeted++) {
            assert_true(is_slow_after(0, greeted, (enum connection_event)end));
            assert_true(is_slow_after(999, greeted, (enum connection_event)end));
            assert_false(is_slow_after(1000, greeted, (enum connection_event)end));
        }
    struct connection connection = {0};
    struct instant now = {NS_PER_S};
    (void)connection_step(&connection, CONNECTION_BEGINS, now);
    (void)connection_step(&connection, CONNECTION_FAILS, now); /* nothing listens, which ends nothing */
    assert_int_equal(connection_first_interval_ms(&connection), 10);
    (void)connection_step(&connection, CONNECTION_CONFUSES, now); /* without a connection that opened */
    assert_int_equal(connection_first_interval_ms(&connection), 10);
}

static void attempts_of_a_whole_job_are_limited(void **state)
{
    (void)state;
    assert_int_equal(connection_longest_interval_ms(1), 250);
    assert_int_equal(connection_longest_interval_ms(62), 250);
    assert_int_equal(connection_longest_interval_ms(63), 252);
    assert_int_equal(connection_longest_interval_ms(500), 2000);
    assert_int_equal(connection_longest_interval_ms(1250), 5000);
    assert_int_equal(connection_longest_interval_ms(1 << 30), 5000);
}

static void a_large_job_comes_spread(void **state)
{
    (void)state;
    assert_int_equal(connection_first_delay_ns(500, UINT64_MAX), 0);
    int64_t sum_ns = 0, latest_ns = 0;
    for (uint64_t i = 0; i < 16384; i++) {
        int64_t delay_ns = connection_first_delay_ns(16384, i * UINT64_C(0x9e3779b97f4a7c15));
        sum_ns += delay_ns;
        latest_ns = delay_ns > latest_ns ? delay_ns : latest_ns;
    }
    assert_in_range(latest_ns, 1600 * NS_PER_MS, 1639 * NS_PER_MS);
    assert_in_range(sum_ns / 16384, 800 * NS_PER_MS, 840 * NS_PER_MS);
    assert_int_equal(connection_limit_ms(2), 3000);
    assert_int_equal(connection_limit_ms(16384), 49152);
}

static void the_pace_changes_between_connections(void **state)
{
    (void)state;
    struct connection connection = {0};
    struct instant now = {NS_PER_S};
    assert_false(connection_changes_pace(&connection, 10));
    (void)connection_step(&connection, CONNECTION_OPENS, now);
    (void)connection_step(&connection, CONNECTION_CLOSES, now);
    assert_false(connection_changes_pace(&connection, 10));    /* libzmq may have given up: our own attempt */
    (void)connection_step(&connection, CONNECTION_FAILS, now); /* libzmq: I try again */
    assert_true(connection_changes_pace(&connection, 10));
    assert_false(connection_changes_pace(&connection, 100));
    (void)connection_step(&connection, CONNECTION_OPENS, now);
    (void)connection_step(&connection, CONNECTION_GREETS, now);
    assert_false(connection_changes_pace(&connection, 10)); /* it is not ended for its pace */
    now = instant_add(now, NS_PER_S);
    (void)connection_step(&connection, CONNECTION_CLOSES, now);
    (void)connection_step(&connection, CONNECTION_FAILS, now);
    assert_true(connection_changes_pace(&connection, 100)); /* it lasted: quickly again */
    assert_false(connection_changes_pace(&connection, 10));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_story),
        cmocka_unit_test(a_killed_server_is_no_foreign_program),
        cmocka_unit_test(a_server_that_stands_still_is_not_lost),
        cmocka_unit_test(secrets_that_do_not_go_together),
        cmocka_unit_test(a_mismatch_is_of_secrets_alone),
        cmocka_unit_test(hope_ends_when_the_same_is_said_for_long),
        cmocka_unit_test(what_libzmq_gives_up_is_begun_again),
        cmocka_unit_test(what_ends_connections_at_once_is_tried_slowly),
        cmocka_unit_test(attempts_of_a_whole_job_are_limited),
        cmocka_unit_test(a_large_job_comes_spread),
        cmocka_unit_test(the_pace_changes_between_connections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
