/* rendezvous_connection_test.c - attempts to reach the server, in words. */
#include <string.h>

#include "rendezvous/connection.h"
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
    assert_non_null(strstr(TELL({CONNECTION_BEGINS, 0}, {CONNECTION_FAILS, 3000}), "there is no answer"));
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
    assert_string_equal(
        TELL({CONNECTION_OPENS, 1}, {CONNECTION_CLOSES, 1}, {CONNECTION_OPENS, 1}, {CONNECTION_GREETS, 1}),
        "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_story)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
