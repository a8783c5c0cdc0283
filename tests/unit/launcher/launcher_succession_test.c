/* launcher_succession_test.c - when an agent serves in place of another one of its machine. */
#include "launcher/policy/server_takeover.h"

#include "tests/support/cmocka_all.h"

static struct instant at(int64_t ms)
{
    return (struct instant){ms * NS_PER_MS};
}

static const struct succession_view heir = {
    .waits = true, .may_succeed = true, .silent = true, .named = true, .choice = SERVER_CHOICE_SERVE};

static void who_finds_the_port_taken_joins_an_agent_of_the_job(void **state)
{
    (void)state;
    assert_true(succession_joins_holder(true, false, true));
    assert_false(succession_joins_holder(false, false, true)); /* rank 0 serves, or nobody */
    assert_false(succession_joins_holder(true, true, true));   /* it was told to serve */
    assert_false(succession_joins_holder(true, false, false)); /* another program */
}

static void it_tries_once_a_second(void **state)
{
    (void)state;
    struct succession s = {.next = true};
    struct succession_view view = heir;
    view.named = false;
    assert_int_equal(succession_next(&s, &view, at(10000)), SUCCESSION_SERVE);
    assert_int_equal(succession_next(&s, &view, at(10999)), SUCCESSION_WAIT);
    assert_int_equal(succession_next(&s, &view, at(11000)), SUCCESSION_SERVE);
}

/* The name that is its own machine's is looked up as well: it may stand for another one by now. */
static void a_name_is_looked_up_every_five_seconds(void **state)
{
    (void)state;
    for (int own = 0; own < 2; own++) {
        struct succession s = {.next = own, .serve_at = at(60000)};
        assert_int_equal(succession_next(&s, &heir, at(10000)), SUCCESSION_LOOK_UP);
        assert_int_equal(succession_next(&s, &heir, at(14999)), SUCCESSION_WAIT);
        assert_int_equal(succession_next(&s, &heir, at(15000)), SUCCESSION_LOOK_UP);
    }
    struct succession s = {.next = true};
    struct succession_view heard = heir;
    heard.silent = heard.may_succeed = false;
    assert_int_equal(succession_next(&s, &heard, at(10000)), SUCCESSION_WAIT);
}

static void another_name_is_looked_up_before_it_serves(void **state)
{
    (void)state;
    struct succession s = {.next = true};
    struct succession_view view = heir;
    view.choice = SERVER_CHOICE_RESOLVE;
    assert_int_equal(succession_next(&s, &view, at(10000)), SUCCESSION_LOOK_UP);
    assert_true(succession_serves(&s, &view, true));
    assert_false(succession_serves(&s, &view, false)); /* it stands for another machine */
}

static void it_serves_only_where_nothing_speaks_against_it(void **state)
{
    (void)state;
    struct succession s = {.next = true}, stranger = {.next = false};
    struct succession_view works = heir, knows_nothing = heir;
    works.waits = works.named = false;
    knows_nothing.may_succeed = knows_nothing.named = false;
    assert_int_equal(succession_next(&s, &works, at(10000)), SUCCESSION_WAIT);
    assert_false(succession_serves(&s, &works, true));
    assert_int_equal(succession_next(&s, &knows_nothing, at(10000)), SUCCESSION_WAIT);
    assert_false(succession_serves(&s, &knows_nothing, true));
    assert_int_equal(succession_next(&stranger, &heir, at(10000)), SUCCESSION_LOOK_UP);
    assert_false(succession_serves(&stranger, &heir, true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_finds_the_port_taken_joins_an_agent_of_the_job),
        cmocka_unit_test(it_tries_once_a_second),
        cmocka_unit_test(a_name_is_looked_up_every_five_seconds),
        cmocka_unit_test(another_name_is_looked_up_before_it_serves),
        cmocka_unit_test(it_serves_only_where_nothing_speaks_against_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
