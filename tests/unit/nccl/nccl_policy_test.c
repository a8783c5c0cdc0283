/* nccl_policy_test.c - the policy file: its settings, errors with their places, which setting counts, and
 * memory that runs out. */
#include "tests/support/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/nccl/decide/decide.h"
#include "runtime/nccl/files/description_json.h"
#include "runtime/nccl/files/policy_read.h"
#include "tests/support/faults.h"

static struct policy parse(const char *text)
{
    struct policy policy;
    struct muster_error err = {0};
    if (policy_parse("site.yaml", text, strlen(text), &policy, &err) < 0)
        fail_msg("%s", err.text);
    return policy;
}

static struct description read_machine(const char *text)
{
    struct description machine;
    struct muster_error err = {0};
    if (description_read("machine.json", text, strlen(text), &machine, &err) < 0)
        fail_msg("%s", err.text);
    return machine;
}

#define H100 "\"gpus\": [{\"index\": 0, \"name\": \"NVIDIA H100 80GB HBM3\"}]"

static void a_file_is_read(void **state)
{
    (void)state;
    struct policy policy = parse("version: 1\n"
                                 "rules:\n"
                                 "  - add: {NCCL_IB_TC: 106, NCCL_IB_SL: \"0\"}\n"
                                 "    when: {gpu: \"NVIDIA H100*\", nccl: \">=2.21,<2.28\", nodes: \">=2\"}\n"
                                 "    reason: lossless class\n"
                                 "  - pin: {NCCL_DEBUG: WARN}\n"
                                 "    forbid: [NCCL_IB_DISABLE]\n");
    assert_int_equal(policy.count, 4);
    assert_string_equal(policy.entries[0].name, "NCCL_IB_TC");
    assert_string_equal(policy.entries[0].value, "106");
    assert_string_equal(policy.entries[1].gpu, "NVIDIA H100*");
    assert_int_equal(policy.entries[1].nccl_least, 22100);
    assert_int_equal(policy.entries[1].nccl_below, 22800);
    assert_int_equal(policy.entries[1].nodes_least, 2);
    assert_string_equal(policy.entries[1].reason, "lossless class");
    assert_int_equal(policy.entries[2].kind, POLICY_PIN);
    assert_int_equal(policy.entries[2].line, 6);
    assert_int_equal(policy.entries[3].kind, POLICY_FORBID);
    assert_null(policy.entries[3].value);
    policy_free(&policy);
    policy = parse("");
    assert_int_equal(policy.count, 0);
    policy_free(&policy);
    policy = parse("version: 1\n");
    assert_int_equal(policy.count, 0);
    policy_free(&policy);
}

static void what_is_wrong_is_named_with_its_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"rules: []\n", "site.yaml:1:1: no version that is known; expected version: 1"},
        {"version: 2\n", "site.yaml:1:"},
        {"version: 1\nrule: []\n", "site.yaml:2:1: unknown key 'rule'; did you mean rules"},
        {"version: 1\nrules: {}\n", "site.yaml:2:8: rules are no list"},
        {"version: 1\nrules:\n  - x\n", "site.yaml:3:5: a rule is no map"},
        {"version: 1\nrules:\n  - forbidden: [A]\n",
         "site.yaml:3:5: unknown key 'forbidden'; did you mean forbid"},
        {"version: 1\nrules:\n  - reason: none\n", "site.yaml:3:5: a rule without effect"},
        {"version: 1\nrules:\n  - add: [A]\n", "site.yaml:3:10: no map; expected {NAME: value}"},
        {"version: 1\nrules:\n  - add: {nccl_debug: WARN}\n",
         "site.yaml:3:11: nccl_debug; expected a variable's name"},
        {"version: 1\nrules:\n  - pin: {A: [1]}\n", "site.yaml:3:11: no value"},
        {"version: 1\nrules:\n  - forbid: A\n", "site.yaml:3:13: no list"},
        {"version: 1\nrules:\n  - forbid: [a]\n", "site.yaml:3:14: no name"},
        {"version: 1\nrules:\n  - pin: {A: b}\n    when: {pol: x}\n",
         "site.yaml:4:12: unknown key 'pol'; did you mean pool"},
        {"version: 1\nrules:\n  - pin: {A: b}\n    when: {gpu: [x]}\n", "site.yaml:4:12: no text"},
        {"version: 1\nrules:\n  - pin: {A: b}\n    when: {nccl: 2.21}\n", "site.yaml:4:18: no version range"},
        {"version: 1\nrules:\n  - pin: {A: b}\n    when: {nccl: \">=new\"}\n",
         "site.yaml:4:18: no version number"},
        {"version: 1\nrules:\n  - pin: {A: b}\n    when: {nodes: 2}\n", "site.yaml:4:19: no number of nodes"},
        {"version: 1\nrules:\n  - pin: {A: b}\n    reason: [x]\n", "site.yaml:4:13: the reason is no text"},
        {"version: 1\nrules:\n  - pin: {A: }\n", "site.yaml:3:11: no value"},
        {"version: 1\nrules:\n  - pin: {A: {B: c}}\n", "site.yaml:3:11: no value"},
        {"version: 1\nrules:\n  - forbid: [{A: b}]\n", "site.yaml:3:14: no name"},
        {"version: 1\nrules:\n  - pin: {A: b}\n    when: {nccl: \"<=2.28\"}\n",
         "site.yaml:4:18: no version range"},
        {"version: 1\nrules:\n  - pin: {A: b}\n    when: {nccl: [x]}\n", "site.yaml:4:18: no text"},
        {"version: 1\nrules:\n  - pin: {A: b}\n    when: {nccl: \">=2.21.00000000000000000000000000001\"}\n",
         "site.yaml:4:18: no version number"},
        {"version: 1\nrules:\n  - pin: {A: b}\n    when: {nodes: [x]}\n",
         "site.yaml:4:19: no number of nodes"},
        {"version: 1\nrules:\n  - pin: {A: b}\n    when: {nodes: \">=x\"}\n",
         "site.yaml:4:19: no number of nodes"},
        {"version: 1\nrules:\n  - pin: {A: b}\n    when: {nodes: \">=0\"}\n",
         "site.yaml:4:19: no number of nodes"},
        {"version: 1\nrules:\n  - pin: {A: b}\n    when: {nodes: \">=1000001\"}\n",
         "site.yaml:4:19: no number of nodes"},
        {"version: 1\nrule: []\nrules: []\n", "site.yaml:2:1: unknown key 'rule'"},
        {"rule: 1\nversion: 1\n", "site.yaml:1:1: unknown key 'rule'"},
        {"version: 1\nrules:\n  - {pin: {A: b}\n", "site.yaml:"},
        {"version: 1\n---\nversion: 1\n", "no policy"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct policy policy;
        struct muster_error err = {0};
        assert_int_equal(policy_parse("site.yaml", cases[i].text, strlen(cases[i].text), &policy, &err), -1);
        assert_int_equal(err.code, MUSTER_E_INVALID);
        if (!strstr(err.text, cases[i].says))
            fail_msg("'%s' does not say '%s'", err.text, cases[i].says);
        assert_null(policy.entries);
    }
}

static void conditions(void **state)
{
    (void)state;
    static const struct {
        const char *when, *machine;
        bool holds;
    } rows[] = {
        {"gpu: \"NVIDIA H100*\"", H100, true},
        {"gpu: null, pool: ~, nccl: , nodes: Null", H100, true}, /* not set */
        {"gpu: \"NVIDIA A100*\"", H100, false},
        {"gpu: \"*\"", "\"nnodes\": 1", false}, /* no GPU */
        {"pool: \"a3-*\"", "\"node_pool\": \"a3-mega\"", true},
        {"pool: \"a3-*\"", "\"nnodes\": 1", false},
        {"nccl: \">=2.21\"", "\"nccl\": \"2.21.5\"", true},
        {"nccl: \">=2.21\"", "\"nccl\": \"2.20.5\"", false},
        {"nccl: \"<2.28\"", "\"nccl\": \"2.28.3\"", false},
        {"nccl: \">=2.27,<2.28\"", "\"nccl\": \"2.27.5\"", true},
        {"nccl: \"<2.28\"", "\"nnodes\": 1", false},        /* unknown */
        {"nccl: \">=2.21\"", "\"nccl\": \"2.21.0\"", true}, /* the first, and the first that is not */
        {"nccl: \"<2.28\"", "\"nccl\": \"2.28.0\"", false},
        {"pool: \"a?b\"", "\"node_pool\": \"a/b\"", true}, /* a pattern, and not of paths or escapes */
        {"pool: 'a\\*'", "\"node_pool\": \"a*\"", true},
        {"gpu: 'NVIDIA\\ H100*'", H100, true},
        {"nodes: \">=1\"", "\"nnodes\": 1", true},
        {"nodes: \">=1000000\"", "\"nnodes\": 2", false},
        {"nodes: \">=2\"", "\"nnodes\": 2", true},
        {"nodes: \">=2\"", "\"nnodes\": 1", false},
        {"nodes: \">=2\", pool: b", "\"nnodes\": 2, \"node_pool\": \"a\"", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        scope_free char *text =
            mem_printf("version: 1\nrules:\n  - pin: {A: b}\n    when: {%s}\n", rows[i].when);
        scope_free char *json = mem_printf("{\"version\": 1, %s}", rows[i].machine);
        struct policy policy = parse(text);
        struct description machine = read_machine(json);
        if (policy_applies(&policy.entries[0], &machine) != rows[i].holds)
            fail_msg("%s on %s", rows[i].when, rows[i].machine);
        description_free(&machine);
        policy_free(&policy);
    }
}

/* "kind name=value ...": a policy's decisions about a user's settings, without muster's own rules. */
static void check(const char *rules, const char *settings, const char *wanted)
{
    scope_free char *text = mem_printf("version: 1\nrules:\n%s", rules);
    scope_free char *json = mem_printf("{\"version\": 1, \"settings\": [%s]}", settings);
    struct policy policy = parse(text);
    struct description machine = read_machine(json);
    struct decision_list list = {0};
    scope_buffer found = {0};
    assert_int_equal(decide_policy(&machine, &policy, &list, NULL), 0);
    for (int i = 0; i < list.count; i++)
        buffer_printf(&found, "%s%s %s=%s", i ? ", " : "", decision_kind_name(list.items[i].kind),
                      list.items[i].name, list.items[i].value);
    assert_string_equal(found.length ? found.data : "", wanted);
    decision_list_free(&list);
    description_free(&machine);
    policy_free(&policy);
}

#define USER(name, value) "{\"name\": \"" name "\", \"value\": \"" value "\", \"source\": \"environment\"}"

static void whose_word_counts(void **state)
{
    (void)state;
    check("  - add: {NCCL_A: x}\n", "", "set NCCL_A=x");
    check("  - add: {NCCL_A: x}\n", USER("NCCL_A", "y"), "kept NCCL_A=y");
    check("  - pin: {NCCL_A: x}\n", USER("NCCL_A", "y"), "set NCCL_A=x");
    check("  - add: {NCCL_A: x}\n  - add: {NCCL_A: z}\n", "", "set NCCL_A=x");
    check("  - add: {NCCL_A: x}\n  - pin: {NCCL_A: z}\n", "", "set NCCL_A=z");
    check("  - pin: {NCCL_A: x}\n  - pin: {NCCL_A: z}\n", "", "set NCCL_A=x");
    check("  - add: {NCCL_A: x}\n    when: {pool: b}\n  - add: {NCCL_A: z}\n", "", "set NCCL_A=z");
    check("  - forbid: [NCCL_A, NCCL_B]\n", USER("NCCL_B", "1"), "forbidden NCCL_B=1");
    check("  - forbid: [NCCL_A]\n", "", "");
    check("  - pin: {NCCL_A: x}\n  - forbid: [NCCL_A]\n", "", "");
}

static void a_pin_silences_what_is_said_of_the_users_value(void **state)
{
    (void)state;
    struct policy policy = parse("version: 1\nrules:\n  - pin: {NCCL_IB_DISABLE: 0}\n    reason: fabric\n");
    struct description machine =
        read_machine("{\"version\": 1, \"settings\": [" USER("NCCL_IB_DISABLE", "true") "], " H100 "}");
    struct decision_list list = {0};
    assert_int_equal(decide(&machine, &policy, &list, NULL), 0);
    int found = 0;
    for (int i = 0; i < list.count; i++)
        if (!strcmp(list.items[i].name, "NCCL_IB_DISABLE")) {
            assert_int_equal(list.items[i].kind, DECISION_SET);
            assert_string_equal(list.items[i].reason, "pinned by site.yaml:3 (fabric); environment has true");
            found++;
        }
    assert_int_equal(found, 1);
    decision_list_free(&list);
    description_free(&machine);
    policy_free(&policy);
}

/* As long as a name or a value may be, and one longer; and more rules than there is room for at first. */
static void the_longest(void **state)
{
    (void)state;
    static const struct {
        size_t name, value;
        bool fits;
    } rows[] = {{DESCRIPTION_NAME - 1, 1023, true}, {DESCRIPTION_NAME, 1, false}, {1, 1024, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char name[DESCRIPTION_NAME + 1] = "", value[1025] = "";
        struct policy policy;
        struct muster_error err = {0};
        memset(name, 'A', rows[i].name);
        memset(value, 'v', rows[i].value);
        scope_free char *text = mem_printf("version: 1\nrules:\n  - pin: {%s: %s}\n", name, value);
        int result = policy_parse("site.yaml", text, strlen(text), &policy, &err);
        assert_int_equal(result, rows[i].fits ? 0 : -1);
        if (rows[i].fits)
            assert_string_equal(policy.entries[0].value, value);
        policy_free(&policy);
        assert_null(policy.entries); /* twice is once */
        policy_free(&policy);
    }
    scope_buffer text = {0};
    buffer_text(&text, "version: 1\nrules:\n");
    for (int i = 0; i < 100; i++)
        buffer_printf(&text, "  - add: {NCCL_%d: \"%d\"}\n", i, i);
    struct policy policy = parse(text.data);
    assert_int_equal(policy.count, 100);
    for (int i = 0; i < policy.count; i++)
        assert_int_equal(atoi(policy.entries[i].value), i);
    policy_free(&policy);
}

static int parse_and_decide(void *context)
{
    static const char text[] = "version: 1\nrules:\n  - add: {NCCL_A: x}\n    when: {pool: \"*\"}\n"
                               "  - pin: {NCCL_B: y}\n  - forbid: [NCCL_IB_DISABLE]\n";
    static const char json[] =
        "{\"version\": 1, \"nnodes\": 2, " H100 ", \"settings\": [" USER("NCCL_IB_DISABLE", "true") "]}";
    struct policy policy;
    struct description machine;
    struct decision_list list = {0};
    struct muster_error err = {0};
    (void)context;
    if (policy_parse("site.yaml", text, strlen(text), &policy, &err) < 0)
        return -1;
    int result = description_read("machine.json", json, strlen(json), &machine, &err);
    if (result == 0) {
        result = decide(&machine, &policy, &list, &err);
        decision_list_free(&list);
        description_free(&machine);
    }
    policy_free(&policy);
    return result;
}

static void no_memory_leaks_nothing(void **state)
{
    (void)state;
    faults_sweep(parse_and_decide, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_read),
        cmocka_unit_test(what_is_wrong_is_named_with_its_place),
        cmocka_unit_test(conditions),
        cmocka_unit_test(whose_word_counts),
        cmocka_unit_test(a_pin_silences_what_is_said_of_the_users_value),
        cmocka_unit_test(the_longest),
        cmocka_unit_test(no_memory_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
