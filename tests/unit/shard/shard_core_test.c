/* The core of a sharded model: groups gathered ahead, kept and released, for given and for random orders. */
#include "tests/support/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "runtime/shard/shard_core.h"
#include "tests/support/walk.h"

enum { GROUPS = 6 };

static const char *name_of(const void *context, int group)
{
    static const char *const names[] = {"g0", "g1", "g2", "g3", "g4", "g5", "g6", "g7", "g8", "g9"};
    (void)context;
    return names[group];
}
static const struct shard_names names = {name_of, NULL};

static const char *actions_text(const struct shard_core *core)
{
    static const char *const kinds[] = {"start", "wait", "drop", "take", "send", "add", "settle", "abandon"};
    static char text[1024];
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < core->action_count; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s %d", i ? ", " : "",
                                 kinds[core->actions[i].kind], core->actions[i].group);
    return text;
}

static struct shard_core make(int count, int depth)
{
    struct shard_core core;
    assert_int_equal(shard_core_init(&core, count, depth), 0);
    return core;
}

#define GATHERS(core, group, expected)                                                                       \
    {                                                                                                        \
        assert_int_equal(shard_core_gather(core, group, NULL), 0);                                           \
        assert_string_equal(actions_text(core), expected);                                                   \
    }
#define RELEASES(core, group, expected)                                                                      \
    {                                                                                                        \
        assert_int_equal(shard_core_release(core, group, &names, NULL), 0);                                  \
        assert_string_equal(actions_text(core), expected);                                                   \
    }

/* forward 0 1 2, backward 2 1 0 */
static void the_recorded_order_is_gathered_ahead(void **state)
{
    (void)state;
    struct shard_core core = make(3, 1);
    shard_core_begin(&core, 0);
    assert_string_equal(actions_text(&core), "");
    static const int order[] = {0, 1, 2, 2, 1, 0};
    for (int i = 0; i < 6; i++) {
        char text[64];
        snprintf(text, sizeof text, "start %d, wait %d", order[i], order[i]);
        GATHERS(&core, order[i], text);
        snprintf(text, sizeof text, "drop %d", order[i]);
        RELEASES(&core, order[i], text);
    }
    shard_core_updated(&core);
    assert_string_equal(actions_text(&core), "start 0");
    shard_core_begin(&core, 0);
    assert_string_equal(actions_text(&core), "");
    GATHERS(&core, 0, "start 1, wait 0");
    RELEASES(&core, 0, "drop 0");
    GATHERS(&core, 1, "start 2, wait 1");
    RELEASES(&core, 1, "drop 1");
    GATHERS(&core, 2, "wait 2");
    RELEASES(&core, 2, ""); /* kept: it comes next */
    GATHERS(&core, 2, "start 1");
    RELEASES(&core, 2, "drop 2");
    GATHERS(&core, 1, "start 0, wait 1");
    RELEASES(&core, 1, "drop 1");
    GATHERS(&core, 0, "wait 0");
    RELEASES(&core, 0, "drop 0");
    assert_int_equal(shard_core_settle(&core, &names, NULL), 0);
    assert_string_equal(actions_text(&core), "");
    shard_core_free(&core);
}

static void what_was_gathered_in_vain_is_given_up(void **state)
{
    (void)state;
    struct shard_core core = make(4, 2);
    static const int order[] = {0, 1, 2, 3};
    shard_core_begin(&core, 1);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(shard_core_gather(&core, order[i], NULL), 0);
        assert_int_equal(shard_core_release(&core, order[i], &names, NULL), 0);
    }
    shard_core_begin(&core, 1);
    assert_string_equal(actions_text(&core), "start 0, start 1");
    GATHERS(&core, 2,
            "wait 0, drop 0, wait 1, drop 1, start 2, start 3, wait 2"); /* not the recorded order */
    RELEASES(&core, 2, "drop 2");
    GATHERS(&core, 0, "start 0, wait 0"); /* it has no later place */
    RELEASES(&core, 0, "drop 0");
    shard_core_begin(&core, 1); /* the new order holds now */
    assert_string_equal(actions_text(&core), "wait 3, drop 3, start 2, start 0");
    assert_int_equal(shard_core_settle(&core, &names, NULL), 0);
    assert_string_equal(actions_text(&core), "wait 0, drop 0, wait 2, drop 2");
    /* another kind of pass knows nothing */
    shard_core_begin(&core, 0);
    assert_string_equal(actions_text(&core), "");
    shard_core_free(&core);
}

static void uses_are_counted(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct shard_core core = make(2, 1);
    GATHERS(&core, 1, "start 1, wait 1");
    GATHERS(&core, 1, "");
    RELEASES(&core, 1, "");
    assert_int_equal(shard_core_settle(&core, &names, &err), -1);
    assert_non_null(strstr(err.text, "group g1 is gathered"));
    RELEASES(&core, 1, "drop 1");
    assert_int_equal(shard_core_release(&core, 1, &names, &err), -1);
    assert_non_null(strstr(err.text, "group g1 is released, but was not gathered"));
    shard_core_free(&core);
}

static void gradients_go_through_their_states(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct shard_core core = make(2, 1);
    shard_core_fill(&core, 0);
    assert_string_equal(actions_text(&core), "take 0");
    shard_core_fill(&core, 0);
    assert_string_equal(actions_text(&core), "");
    assert_int_equal(shard_core_settle(&core, &names, &err), -1);
    assert_non_null(strstr(err.text, "group g0 has gradients that were not reduced"));
    shard_core_reduce(&core, 0);
    assert_string_equal(actions_text(&core), "send 0");
    shard_core_reduce(&core, 0);
    assert_string_equal(actions_text(&core), "settle 0, take 0, add 0");
    shard_core_reduced(&core, 0);
    shard_core_fill(&core, 0);
    assert_string_equal(actions_text(&core), "take 0");
    shard_core_discard(&core);
    assert_string_equal(actions_text(&core), "abandon 0");
    shard_core_reduce(&core, 0); /* the first again */
    assert_string_equal(actions_text(&core), "take 0, send 0");
    assert_int_equal(shard_core_settle(&core, &names, &err), 0);
    assert_string_equal(actions_text(&core), "settle 0");
    shard_core_updated(&core);
    shard_core_reduce(&core, 0);
    assert_string_equal(actions_text(&core), "take 0, send 0");
    shard_core_discard(&core);
    assert_string_equal(actions_text(&core), "settle 0");
    shard_core_free(&core);
}

/* ---- random orders ---- */

/* A shell's view: which groups have memory, which have a gather under way. */
struct seen {
    bool mapped[GROUPS], moving[GROUPS], slot[GROUPS], sent[GROUPS];
    int starts;
};

static void follow(const struct shard_core *core, struct seen *seen)
{
    for (int i = 0; i < core->action_count; i++) {
        int g = core->actions[i].group;
        switch (core->actions[i].kind) {
        case SHARD_START:
            assert_false(seen->mapped[g]);
            seen->mapped[g] = seen->moving[g] = true;
            seen->starts++;
            break;
        case SHARD_WAIT:
            assert_true(seen->mapped[g]);
            seen->moving[g] = false;
            break;
        case SHARD_DROP:
            assert_true(seen->mapped[g] && !seen->moving[g]); /* memory that a gather writes stays */
            seen->mapped[g] = false;
            break;
        case SHARD_TAKE:
            assert_false(seen->slot[g]);
            seen->slot[g] = true;
            break;
        case SHARD_SEND:
        case SHARD_ADD:
            assert_true(seen->slot[g] && !seen->sent[g]);
            seen->sent[g] = true;
            break;
        case SHARD_SETTLE:
            assert_true(seen->sent[g]);
            seen->slot[g] = seen->sent[g] = false;
            break;
        case SHARD_ABANDON:
            assert_true(seen->slot[g] && !seen->sent[g]);
            seen->slot[g] = false;
            break;
        }
    }
}

static void check(const struct shard_core *core, const struct seen *seen)
{
    int ahead = 0;
    for (int g = 0; g < core->count; g++) {
        const struct shard_core_group *group = &core->groups[g];
        ahead += group->state == SHARD_GATHERING || group->state == SHARD_HELD;
        assert_int_equal(group->state == SHARD_FULL, group->uses > 0);
        assert_int_equal(group->state != SHARD_SHARDED, seen->mapped[g]);
        assert_int_equal(group->state == SHARD_GATHERING, seen->moving[g]);
        assert_int_equal(group->grad == SHARD_GRAD_FILLING || group->grad == SHARD_GRAD_REDUCING,
                         seen->slot[g]);
    }
    assert_true(ahead <= core->depth); /* the bound of memory */
}

static void random_call(struct walk *w, struct shard_core *core, struct seen *seen)
{
    int g = (int)walk_below(w, GROUPS);
    switch (walk_below(w, 8)) {
    case 0:
        shard_core_begin(core, (int)walk_below(w, SHARD_PASSES));
        break;
    case 1:
    case 2:
    case 3:
        assert_int_equal(shard_core_gather(core, g, NULL), 0);
        break;
    case 4:
    case 5: {
        const int expected = core->groups[g].uses ? 0 : -1;
        assert_int_equal(shard_core_release(core, g, &names, NULL), expected);
        break;
    }
    case 6:
        walk_one_in(w, 2) ? shard_core_fill(core, g) : shard_core_reduce(core, g);
        break;
    default:
        if (walk_one_in(w, 2))
            shard_core_discard(core);
        else if (!shard_core_settle(core, &names, NULL)) {
            follow(core, seen);
            shard_core_updated(core);
        }
    }
    follow(core, seen);
    check(core, seen);
}

static void random_calls_keep_the_states_consistent(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct walk w = walk_begin(seed);
        struct shard_core core = make(GROUPS, (int)walk_below(&w, 4));
        struct seen seen = {0};
        for (int i = 0; i < 400; i++) {
            int uses = 0;
            for (int g = 0; g < GROUPS; g++)
                uses += core.groups[g].uses;
            core.action_count = 0;
            if (uses < 12)
                random_call(&w, &core, &seen);
            else
                for (int g = 0; g < GROUPS; g++) {
                    while (core.groups[g].uses) {
                        assert_int_equal(shard_core_release(&core, g, &names, NULL), 0);
                        follow(&core, &seen);
                    }
                }
        }
        shard_core_free(&core);
    }
}

/* A pass that is repeated waits for nothing that was not begun ahead, but its first group. */
static void a_repeated_pass_is_gathered_ahead(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct walk w = walk_begin(seed);
        int order[64], count = 1 + (int)walk_below(&w, 63);
        struct shard_core core = make(GROUPS, 1 + (int)walk_below(&w, 3));
        for (int i = 0; i < count; i++)
            order[i] = (int)walk_below(&w, GROUPS);
        for (int round = 0; round < 3; round++) {
            shard_core_begin(&core, 0);
            for (int i = 0; i < count; i++) {
                enum shard_state before = core.groups[order[i]].state;
                if (round > 0)
                    assert_true(before == SHARD_GATHERING || before == SHARD_HELD);
                assert_int_equal(shard_core_gather(&core, order[i], NULL), 0);
                assert_int_equal(shard_core_release(&core, order[i], &names, NULL), 0);
            }
            assert_int_equal(shard_core_settle(&core, &names, NULL), 0);
            shard_core_updated(&core);
        }
        shard_core_free(&core);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_recorded_order_is_gathered_ahead),
        cmocka_unit_test(what_was_gathered_in_vain_is_given_up),
        cmocka_unit_test(uses_are_counted),
        cmocka_unit_test(gradients_go_through_their_states),
        cmocka_unit_test(random_calls_keep_the_states_consistent),
        cmocka_unit_test(a_repeated_pass_is_gathered_ahead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
