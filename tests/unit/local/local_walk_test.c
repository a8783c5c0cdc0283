/* local_walk_test.c - random courses of PyTorchJobs, their conditions, quantities and environments: what the
 * operator and the kubelet do and say, one line a seed (walk.h); environments against a slow model. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/local/pod/env_map.h"
#include "launcher/local/pod/quantity.h"
#include "launcher/local/run/lifecycle.h"
#include "proto/base/buffer.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/faults.h"
#include "tests/support/golden.h"
#include "tests/support/walk.h"

enum { SEEDS = 300, JOBS = 10, STEPS = 60, PODS = 6 };

/* -- courses of jobs -- */

struct job {
    struct walk walk;
    struct local_job job;
    struct local_pod pods[PODS];
    char names[PODS][32];
    struct lifecycle life;
    struct instant now;
    struct log_sink log;
};

static void keep_line(void *context, enum log_level level, const char *line)
{
    struct job *j = context;
    walk_saw_number(&j->walk, level);
    walk_saw_text(&j->walk, line);
}

static void make_job(struct job *j)
{
    static const int64_t limits[] = {-1, -1, 0, 1, 2, 30};
    struct walk *walk = &j->walk;
    int masters = (int)walk_below(walk, 2),
        workers = masters ? (int)walk_below(walk, 4) : 1 + (int)walk_below(walk, 3);
    int spare = walk_one_in(walk, 3) ? (int)walk_below(walk, 3) : 0;
    j->job = (struct local_job){.name = "j",
                                .namespace_ = "n",
                                .pods = j->pods,
                                .pod_count = masters + workers,
                                .spare_count = spare,
                                .elastic = spare || walk_one_in(walk, 4),
                                .min_replicas = 1,
                                .max_replicas = workers + spare,
                                .clean_policy = (enum local_clean_policy)walk_below(walk, 3),
                                .backoff_limit = walk_pick(walk, limits),
                                .active_deadline_s = walk_one_in(walk, 4) ? walk_pick(walk, limits) : -1,
                                .ttl_s = walk_one_in(walk, 3) ? walk_pick(walk, limits) : -1,
                                .suspended = walk_one_in(walk, 8)};
    j->job.replicas[LOCAL_MASTER] =
        (struct local_replica){masters, (enum local_restart_policy)walk_below(walk, 4)};
    j->job.replicas[LOCAL_WORKER] =
        (struct local_replica){workers, (enum local_restart_policy)walk_below(walk, 4)};
    for (int i = 0; i < masters + workers + spare; i++) {
        enum local_replica_type type = i < masters ? LOCAL_MASTER : LOCAL_WORKER;
        int index = type == LOCAL_MASTER ? i : i - masters;
        (void)snprintf(j->names[i], sizeof j->names[i], "%s-%d", type == LOCAL_MASTER ? "master" : "worker",
                       index);
        j->pods[i] = (struct local_pod){.name = j->names[i], .type = type, .index = index, .grace_s = 5};
    }
}

static void saw_life(struct job *j)
{
    struct lifecycle *life = &j->life;
    struct walk *walk = &j->walk;
    const int64_t numbers[] = {life->state,
                               life->leaving,
                               life->exit_code,
                               lifecycle_over(life),
                               lifecycle_deadline(life).ns,
                               life->conditions.count};
    walk_saw(walk, numbers, sizeof numbers);
    for (int i = 0; i < life->conditions.count; i++) {
        walk_saw_text(walk, condition_name(life->conditions.list[i].type));
        walk_saw_number(walk, life->conditions.list[i].status);
        walk_saw_text(walk, life->conditions.list[i].reason);
    }
    for (int i = 0; i < life->pod_count; i++) {
        struct lifecycle_pod *pod = &life->pods[i];
        const int64_t of_pod[] = {
            pod->actions,  pod->restart_count, pod->failures_in_row, pod->restarts,       pod->recreated,
            pod->has_code, pod->exit_code,     pod->deadline.ns,     pod->first_start.ns, pod->last_end.ns};
        walk_saw_text(walk, pod_state_name(pod->state));
        walk_saw(walk, of_pod, sizeof of_pod);
        pod->actions = 0;
    }
}

/* Mostly time and containers that end. */
static void one_event(struct job *j)
{
    static const int codes[] = {0, 0, 0, 1, 2, 137, 143, 128, 127};
    static const int64_t pauses[] = {0, 1, NS_PER_S / 2, NS_PER_S, 11 * NS_PER_S, 700 * NS_PER_S};
    struct walk *walk = &j->walk;
    struct job_event event = {.kind = JOB_TIME, .pod = (int)walk_below(walk, j->life.pod_count)};
    enum pod_state state = j->life.pods[event.pod].state;
    struct instant due = lifecycle_deadline(&j->life);
    int64_t what = walk_below(walk, 20);
    bool runs = state == POD_RUNNING || state == POD_DELETING || state == POD_KILLING || state == POD_STUCK;
    if (due.ns != INSTANT_NEVER.ns && due.ns > j->now.ns && walk_one_in(walk, 2))
        j->now.ns = due.ns - walk_below(walk, 2);
    else
        j->now.ns += walk_pick(walk, pauses);
    if (what < 10 && runs) {
        event.kind = JOB_POD_ENDED;
        event.number = walk_pick(walk, codes);
    } else if (what == 10 && runs) {
        event.kind = JOB_POD_LOST;
    } else if (what == 11) {
        event.kind = walk_one_in(walk, 2) ? JOB_SUSPEND : JOB_RESUME;
    } else if (what == 12 && j->job.elastic) {
        event.kind = JOB_SCALE;
        event.number = 1 + (int)walk_below(walk, j->job.max_replicas > 0 ? j->job.max_replicas : 1);
    } else if (what == 13 && walk_one_in(walk, 4)) {
        event.kind = JOB_DELETE;
        event.number = walk_one_in(walk, 2) ? SIGTERM : SIGINT;
    }
    lifecycle_step(&j->life, &event, j->now);
    saw_life(j);
}

static void random_jobs_live_as_they_did(void **state)
{
    (void)state;
    static const int64_t lingers[] = {0, 1, NS_PER_S, 10 * NS_PER_S, INT64_MAX};
    scope_buffer text = {0};
    int ends[JOB_STATE_COUNT] = {0};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        static struct job j;
        j = (struct job){.walk = walk_begin(seed)};
        for (int i = 0; i < JOBS; i++) {
            make_job(&j);
            struct lifecycle_options options = {.backoff_scale = walk_one_in(&j.walk, 2) ? 1 : 0.1,
                                                .grace_s = walk_one_in(&j.walk, 2) ? -1 : 2,
                                                .linger_ns = walk_pick(&j.walk, lingers),
                                                .kill_bound_ns = 3 * NS_PER_S};
            j.now.ns = 5 * NS_PER_S;
            j.log = (struct log_sink){.write = keep_line, .context = &j, .threshold = LOG_LEVEL_INFO};
            assert_int_equal(lifecycle_init(&j.life, &j.job, &options, &j.log, NULL), 0);
            lifecycle_step(&j.life, &(struct job_event){.kind = JOB_BEGIN}, j.now);
            saw_life(&j);
            for (int k = 0; k < STEPS && !lifecycle_over(&j.life); k++)
                one_event(&j);
            ends[j.life.state]++;
            lifecycle_free(&j.life);
        }
        buffer_printf(&text, "%llu: %016llx\n", (unsigned long long)seed, (unsigned long long)j.walk.digest);
    }
    for (int i = 0; i < JOB_STATE_COUNT; i++)
        assert_int_not_equal(ends[i], 0); /* or they do not go far */
    golden_check("tests/unit/local/golden/lifecycle_walks.txt", &text);
}

/* Any condition after any other. */
static void conditions_follow_each_other_as_they_did(void **state)
{
    (void)state;
    static const char *const reasons[] = {"A", "B"};
    scope_buffer text = {0};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct walk walk = walk_begin(seed);
        struct conditions c = {0};
        for (int i = 0; i < STEPS; i++) {
            const char *reason = walk_pick(&walk, reasons); /* arguments have no order */
            const bool holds = !walk_one_in(&walk, 3);
            const enum condition_type kind = (enum condition_type)walk_below(&walk, CONDITION_TYPE_COUNT);
            walk_saw_number(&walk, conditions_set(&c, kind, holds, reason));
            for (int type = 0; type < CONDITION_TYPE_COUNT; type++) {
                const struct condition *found = conditions_find(&c, (enum condition_type)type);
                walk_saw_number(&walk, conditions_hold(&c, (enum condition_type)type));
                walk_saw_number(&walk, found ? found - c.list : -1);
                walk_saw_text(&walk, found ? found->reason : NULL);
            }
            if (walk_one_in(&walk, 8))
                c = (struct conditions){0};
        }
        buffer_printf(&text, "%llu: %016llx\n", (unsigned long long)seed, (unsigned long long)walk.digest);
    }
    golden_check("tests/unit/local/golden/condition_walks.txt", &text);
}

static void names_and_pauses(void **state)
{
    (void)state;
    assert_string_equal(pod_state_name(POD_STATE_COUNT), "?");
    assert_string_equal(pod_event_name(POD_EVENT_COUNT), "?");
    assert_string_equal(pod_action_name(POD_ACTION_COUNT), "?");
    static const int64_t seconds[] = {0, 0, 10, 20, 40, 80, 160, 300, 300};
    for (int i = 0; i < 9; i++)
        assert_int_equal(lifecycle_backoff_ns(i), seconds[i] * NS_PER_S);
}

/* -- quantities: n x 10^e and what Kubernetes makes of it -- */

static void quantities(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t thousandths; /* -1: it is none */
    } rows[] = {{"0", 0},
                {"9", 9000},
                {"19", 19000},
                {"1.5", 1500},
                {".5", 500},
                {"5.", 5000},
                {"1m", 1},
                {"1u", 1},
                {"1n", 1},
                {"1001u", 2},
                {"2k", 2000000},
                {"1Ki", 1024000},
                {"1e0", 1000},
                {"1e3", 1000000},
                {"1E3", 1000000},
                {"1e-3", 1},
                {"5e-1", 500},
                {"1e-18", 1},
                {"1e-19", -1},
                {"1e19", -1},
                {"1e1x", -1},
                {"1f3", -1},
                {"", -1},
                {".", -1},
                {"1.2.3", -1},
                {"1 ", -1},
                {"x", -1},
                {"+3", 3000},
                {"1KiB", -1},
                {"e3", -1},
                {"000000000000000000000001", 1000},
                {"0000000000000000000000001", -1}};
    quantity_thousandths value;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        value = -1;
        assert_int_equal(quantity_parse(rows[i].text, &value), rows[i].thousandths >= 0);
        assert_true(value == rows[i].thousandths);
    }
    assert_true(quantity_parse("-1.5", &value) && value == -1500);
    assert_true(quantity_parse("-1u", &value) && value == -1);
    assert_true(quantity_parse("1e18", &value) && value == (quantity_thousandths)1000000000000000000 * 1000);
    assert_false(quantity_parse("999999999999999999999999Ei", &value)); /* it does not fit */
    assert_int_equal(quantity_in(1001, 1000), 2);
    assert_int_equal(quantity_in(2000, 1000), 2);
    assert_int_equal(quantity_in(1, 1000), 1);
    assert_int_equal(quantity_in(0, 1000), 0);
    assert_int_equal(quantity_in(-1500, 1000), -1);
    const quantity_thousandths most = INT64_MAX, least = INT64_MIN;
    assert_true(quantity_in(most, 1) == INT64_MAX && quantity_in(most + 1, 1) == INT64_MAX);
    assert_true(quantity_in(most - 1, 1) == INT64_MAX - 1);
    assert_true(quantity_in(least, 1) == INT64_MIN && quantity_in(least - 1, 1) == INT64_MIN);
    assert_true(quantity_in(least + 1, 1) == INT64_MIN + 1);
}

/* -- environments -- */

static void environments_keep_the_last_value_of_a_name(void **state)
{
    (void)state;
    enum { NAMES = 200 };
    for (uint64_t seed = 1; seed <= 30; seed++) {
        struct walk walk = walk_begin(seed);
        struct env_map map = {0};
        struct muster_error err = {0};
        int values[NAMES], order[NAMES], names = 0;
        memset(values, -1, sizeof values);
        for (int i = 0; i < 400; i++) {
            char name[16], value[16];
            int which = (int)walk_below(&walk, NAMES);
            (void)snprintf(name, sizeof name, "N%d", which);
            (void)snprintf(value, sizeof value, "%d", i);
            assert_int_equal(env_map_set(&map, name, value, &err), 0);
            if (values[which] < 0)
                order[names++] = which;
            values[which] = i;
        }
        assert_int_equal(map.count, names);
        scope_text_list list = {0};
        assert_int_equal(env_map_list(&map, &list), 0);
        for (int i = 0; i < names; i++) {
            char entry[32], reference[32];
            (void)snprintf(entry, sizeof entry, "N%d=%d", order[i], values[order[i]]);
            assert_string_equal(list.items[i], entry);
            scope_buffer out = {0};
            (void)snprintf(reference, sizeof reference, "$(N%d)", order[i]);
            assert_int_equal(env_expand(reference, &map, &out), 0);
            assert_string_equal(out.data, strchr(entry, '=') + 1);
        }
        env_map_free(&map);
    }
}

/* A variable of so many bytes, as they are counted: with its "=" and its end. */
static int set_sized(struct env_map *map, const char *name, size_t bytes)
{
    struct muster_error err = {0};
    scope_free char *value = mem_calloc(bytes, 1);
    memset(value, 'v', bytes - strlen(name) - 2);
    int result = env_map_set(map, name, value, &err);
    assert_int_equal(err.code, result ? MUSTER_E_LIMIT : 0);
    return result;
}

/* The largest that is taken, and one byte or one entry more. */
static void environments_have_limits(void **state)
{
    (void)state;
    enum { LARGEST = ENV_TEXT_LIMIT, VARIABLES = ENV_TOTAL_LIMIT / ENV_TEXT_LIMIT };
    struct env_map full = {0};
    assert_int_equal(set_sized(&full, "A", LARGEST + 1), -1);
    for (int i = 0; i < VARIABLES; i++)
        assert_int_equal(set_sized(&full, (char[]){(char)('A' + i), 0}, LARGEST), 0);
    assert_int_equal(set_sized(&full, "Z", 3), -1); /* even an empty one */
    assert_int_equal(set_sized(&full, "A", LARGEST), 0);
    assert_int_equal(set_sized(&full, "A", LARGEST - 4), 0);
    assert_int_equal(set_sized(&full, "Z", 5), -1);
    assert_int_equal(set_sized(&full, "Z", 4), 0);
    env_map_free(&full);
    env_map_free(&full); /* twice is once */
    struct env_map map = {0};
    struct muster_error err = {0};
    for (int i = 0; i <= ENV_ENTRIES_LIMIT; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "N%d", i);
        assert_int_equal(env_map_set(&map, name, "v", &err), i < ENV_ENTRIES_LIMIT ? 0 : -1);
    }
    assert_int_equal(env_map_set(&map, "N7", "w", &err), 0); /* an existing name */
    env_map_free(&map);
}

static int build_environment(void *context)
{
    (void)context;
    struct env_map map = {0};
    struct muster_error err = {0};
    scope_text_list list = {0};
    int result = 0;
    for (int i = 0; i < 40 && !result; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "N%d", i % 30);
        result = env_map_set(&map, name, "value", &err);
    }
    if (!result)
        result = env_map_list(&map, &list);
    env_map_free(&map);
    return result;
}

static void environments_without_memory(void **state)
{
    (void)state;
    faults_sweep(build_environment, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_jobs_live_as_they_did),
        cmocka_unit_test(conditions_follow_each_other_as_they_did),
        cmocka_unit_test(names_and_pauses),
        cmocka_unit_test(quantities),
        cmocka_unit_test(environments_keep_the_last_value_of_a_name),
        cmocka_unit_test(environments_have_limits),
        cmocka_unit_test(environments_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
