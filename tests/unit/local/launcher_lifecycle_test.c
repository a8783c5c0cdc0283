/* launcher_lifecycle_test.c - a job's life: the operator's rows (tests/data), every cell of a pod's table,
 * and what rows do not say: pauses, limits, clean-up, signals. */
#include <jansson.h>
#include <signal.h>
#include <stdio.h>

#include "launcher/local/run/kubelet.h"
#include "launcher/local/run/lifecycle.h"
#include "proto/base/buffer.h"
#include "proto/base/mem.h"
#include "proto/exit_code.h"
#include "tests/support/cmocka_all.h"

enum { PODS_LIMIT = 8 };

/* A job whose pods are named master-0, worker-0, ...; `spare` workers are there for scaling up. */
struct fixture {
    struct local_job job;
    struct local_pod pods[PODS_LIMIT];
    char names[PODS_LIMIT][32];
    struct lifecycle life;
    struct instant now;
    struct buffer logged; /* log lines */
    struct log_sink log;
};

static void hear(void *context, enum log_level level, const char *line)
{
    (void)level;
    buffer_printf(context, "%s\n", line);
}

static void add_pod(struct fixture *f, enum local_replica_type type, int index)
{
    int at = f->job.pod_count++;
    assert_in_range(at, 0, PODS_LIMIT - 1);
    (void)snprintf(f->names[at], sizeof f->names[at], "%s-%d", type == LOCAL_MASTER ? "master" : "worker",
                   index);
    f->pods[at] = (struct local_pod){.name = f->names[at], .type = type, .index = index, .grace_s = 30};
}

static void make_job(struct fixture *f, int masters, int workers, int spare, enum local_restart_policy policy)
{
    memset(f, 0, sizeof *f);
    f->job = (struct local_job){
        .name = "j", .pods = f->pods, .backoff_limit = -1, .active_deadline_s = -1, .ttl_s = -1};
    f->job.replicas[LOCAL_MASTER] = (struct local_replica){masters, policy};
    f->job.replicas[LOCAL_WORKER] = (struct local_replica){workers, policy};
    for (int i = 0; i < masters; i++)
        add_pod(f, LOCAL_MASTER, i);
    for (int i = 0; i < workers + spare; i++)
        add_pod(f, LOCAL_WORKER, i);
    f->job.pod_count -= spare;
    f->job.spare_count = spare;
}

static struct lifecycle_options usual(void)
{
    return (struct lifecycle_options){
        .backoff_scale = 1, .grace_s = -1, .linger_ns = 10 * NS_PER_S, .kill_bound_ns = 30 * NS_PER_S};
}

static void step(struct fixture *f, enum job_event_kind kind, int pod, int number)
{
    lifecycle_step(&f->life, &(struct job_event){.kind = kind, .pod = pod, .number = number}, f->now);
}

/* Begins; the job may have been changed after make_job. */
static void begin_with(struct fixture *f, struct lifecycle_options options)
{
    f->log = (struct log_sink){.write = hear, .context = &f->logged, .threshold = LOG_LEVEL_INFO};
    assert_int_equal(lifecycle_init(&f->life, &f->job, &options, &f->log, NULL), 0);
    step(f, JOB_BEGIN, 0, 0);
}

static void begin(struct fixture *f)
{
    begin_with(f, usual());
}

static void finish(struct fixture *f)
{
    lifecycle_free(&f->life);
    buffer_free(&f->logged);
}

static void pass(struct fixture *f, int64_t ns)
{
    f->now = instant_add(f->now, ns);
    step(f, JOB_TIME, 0, 0);
}

/* Goes to the next deadline and says how far that was. */
static int64_t wait_ns(struct fixture *f)
{
    struct instant next = lifecycle_deadline(&f->life);
    assert_true(next.ns != INSTANT_NEVER.ns);
    int64_t ns = instant_diff_ns(next, f->now);
    pass(f, ns);
    return ns;
}

/* The actions that were asked for since the last look. */
static unsigned take_actions(struct fixture *f, int pod)
{
    unsigned actions = f->life.pods[pod].actions;
    f->life.pods[pod].actions = 0;
    return actions;
}

static void take_all_actions(struct fixture *f)
{
    for (int i = 0; i < f->life.pod_count; i++)
        (void)take_actions(f, i);
}

static enum pod_state state_of(const struct fixture *f, int pod)
{
    return f->life.pods[pod].state;
}

/* --- the operator's rows --- */

static int pod_named(const struct fixture *f, const char *name)
{
    for (int i = 0; i < f->life.pod_count; i++)
        if (!strcmp(f->names[i], name))
            return i;
    fail_msg("no pod %s", name);
    return -1;
}

static int integer_of(const json_t *object, const char *key, int otherwise)
{
    const json_t *value = json_object_get(object, key);
    return value ? (int)json_integer_value(value) : otherwise;
}

static enum local_restart_policy policy_named(const char *name)
{
    static const char *const names[] = {"OnFailure", "Always", "Never", "ExitCode"};
    for (int i = 0; i < 4; i++)
        if (!strcmp(names[i], name))
            return (enum local_restart_policy)i;
    fail_msg("no policy %s", name);
    return LOCAL_RESTART_NEVER;
}

/* A container that waits in back-off is started first: only what runs can end. */
static void end_pod(struct fixture *f, int pod, int code)
{
    while (state_of(f, pod) == POD_BACKOFF || state_of(f, pod) == POD_PENDING)
        (void)wait_ns(f);
    step(f, JOB_POD_ENDED, pod, code);
}

static void apply(struct fixture *f, const json_t *event)
{
    const json_t *pod = json_object_get(event, "pod");
    if (json_object_get(event, "scale"))
        step(f, JOB_SCALE, 0, integer_of(event, "scale", 0));
    else if (json_object_get(event, "suspend"))
        step(f, JOB_SUSPEND, 0, 0);
    else if (json_object_get(event, "evicted"))
        step(f, JOB_POD_LOST, pod_named(f, json_string_value(pod)), 0);
    else
        end_pod(f, pod_named(f, json_string_value(pod)), integer_of(event, "exit", -1));
}

static void check_job(const struct fixture *f, const char *id, const char *expected)
{
    for (int type = 0; type < CONDITION_TYPE_COUNT; type++)
        if (!strcmp(condition_name((enum condition_type)type), expected) &&
            conditions_hold(&f->life.conditions, (enum condition_type)type))
            return;
    fail_msg("%s: the job is not %s", id, expected);
}

static void check_pod(const struct fixture *f, const char *id, int pod, const char *expected)
{
    const struct lifecycle_pod *p = &f->life.pods[pod];
    bool right =
        (!strcmp(expected, "restarted in place") && kubelet_is_active(p->state) && !p->recreated) ||
        (!strcmp(expected, "recreated") && p->recreated == 1 && p->restart_count == 0) ||
        (!strcmp(expected, "created") && p->state == POD_RUNNING && p->actions & 1u << POD_START) ||
        (!strcmp(expected, "deleted") && p->state == POD_DELETING && p->actions == 1u << POD_TERMINATE);
    if (!right)
        fail_msg("%s: %s is not %s but %s, restarts %d, recreated %d", id, f->names[pod], expected,
                 pod_state_name(p->state), p->restarts, p->recreated);
}

static json_t *read_vectors(void)
{
    json_error_t error;
    json_t *all = json_load_file("tests/data/pytorchjob_vectors.json", 0, &error);
    if (!all)
        fail_msg("%s", error.text);
    return all;
}

static void lifecycle_rows(void **state)
{
    (void)state;
    json_t *all = read_vectors(), *rows = json_object_get(all, "lifecycle"), *row, *event, *expected;
    size_t i, k;
    const char *name;
    assert_true(json_array_size(rows) >= 16);
    json_array_foreach(rows, i, row)
    {
        struct fixture f;
        const json_t *replicas = json_object_get(row, "replicas");
        const char *id = json_string_value(json_object_get(row, "id"));
        make_job(&f, integer_of(replicas, "Master", 0), integer_of(replicas, "Worker", 0), 2,
                 policy_named(json_string_value(json_object_get(row, "policy"))));
        f.job.elastic = json_is_true(json_object_get(row, "elastic"));
        f.job.backoff_limit = integer_of(row, "backoff_limit", -1);
        begin(&f);
        take_all_actions(&f);
        json_array_foreach(json_object_get(row, "events"), k, event) apply(&f, event);
        if (!strcmp(id, "backoff-limit-0") || !strcmp(id, "backoff-limit-3"))
            while (f.life.state == JOB_ACTIVE) /* the restart that is one too many comes after the pause */
                (void)wait_ns(&f);
        check_job(&f, id, json_string_value(json_object_get(row, "job")));
        json_object_foreach(json_object_get(row, "pods"), name, expected)
            check_pod(&f, id, pod_named(&f, name), json_string_value(expected));
        finish(&f);
    }
    json_decref(all);
}

static enum pod_state pod_state_of_phase(const char *phase)
{
    static const struct {
        const char *phase;
        enum pod_state state;
    } phases[] = {{"Running", POD_RUNNING},
                  {"Succeeded", POD_SUCCEEDED},
                  {"Failed", POD_FAILED},
                  {"Pending", POD_PENDING}};
    for (size_t i = 0; i < sizeof phases / sizeof *phases; i++)
        if (!strcmp(phases[i].phase, phase))
            return phases[i].state;
    fail_msg("no phase %s", phase);
    return POD_ABSENT;
}

static enum local_clean_policy clean_policy_named(const char *name)
{
    return !strcmp(name, "None")      ? LOCAL_CLEAN_NONE
           : !strcmp(name, "Running") ? LOCAL_CLEAN_RUNNING
                                      : LOCAL_CLEAN_ALL;
}

static bool contains(const json_t *list, const char *name)
{
    size_t i;
    const json_t *item;
    json_array_foreach(list, i, item) if (!strcmp(json_string_value(item), name)) return true;
    return false;
}

/* The job was decided elsewhere; the next look cleans up. A pod that was never started is deleted by not
 * being made any more, with any policy. */
static void clean_up_row(const json_t *row)
{
    struct fixture f;
    const char *job = json_string_value(json_object_get(row, "job")), *name;
    json_t *pods = json_object_get(row, "pods"), *phase;
    int pod = 0;
    make_job(&f, 0, (int)json_object_size(pods), 0, LOCAL_RESTART_NEVER);
    f.job.clean_policy = clean_policy_named(json_string_value(json_object_get(row, "policy")));
    begin(&f);
    take_all_actions(&f);
    json_object_foreach(pods, name, phase)
    {
        f.life.pods[pod].state = pod_state_of_phase(json_string_value(phase));
        f.life.pods[pod++].deadline = INSTANT_NEVER;
    }
    f.life.linger_until = instant_add(f.now, NS_PER_S);
    f.life.state = !strcmp(job, "Succeeded") ? JOB_SUCCEEDED : JOB_FAILED;
    if (!strcmp(job, "Suspended"))
        f.life.state = JOB_SUSPENDED;
    step(&f, JOB_TIME, 0, 0);
    pod = 0;
    json_object_foreach(pods, name, phase)
    {
        enum pod_state before = pod_state_of_phase(json_string_value(phase)), now = state_of(&f, pod++);
        bool deleted = now == POD_ABSENT || now == POD_DELETING;
        if (deleted != contains(json_object_get(row, "deleted"), name) || (!deleted && now != before))
            fail_msg("%s, %s: pod %s is %s", job, json_string_value(json_object_get(row, "policy")), name,
                     pod_state_name(now));
    }
    finish(&f);
}

static void clean_up_rows(void **state)
{
    (void)state;
    json_t *all = read_vectors(), *rows = json_object_get(all, "clean_pod_policy"), *row;
    size_t i;
    assert_true(json_array_size(rows) >= 6);
    json_array_foreach(rows, i, row) clean_up_row(row);
    json_decref(all);
}

static void exit_code_rows(void **state)
{
    (void)state;
    json_t *all = read_vectors(), *classes = json_object_get(all, "exit_codes"), *range;
    size_t i;
    int seen = 0;
    json_array_foreach(json_object_get(classes, "retryable"), i, range)
    {
        int first = (int)json_integer_value(json_array_get(range, 0));
        for (int code = first; code <= json_integer_value(json_array_get(range, 1)); code++, seen++)
            assert_true(lifecycle_is_retryable(code));
    }
    json_array_foreach(json_object_get(classes, "permanent"), i, range)
    {
        int first = (int)json_integer_value(json_array_get(range, 0));
        for (int code = first; code <= json_integer_value(json_array_get(range, 1)); code++, seen++)
            assert_false(lifecycle_is_retryable(code));
    }
    assert_int_equal(seen, 255);
    json_decref(all);
}

/* --- a pod's table --- */

static void every_cell_of_a_pod(void **state)
{
    (void)state;
    static const char *const expected =
        "absent CREATE -> pending\nabsent DELETE -> absent\n"
        "pending DELETE -> absent\npending DEADLINE -> running START\n"
        "running ENDED -> failed\nrunning LOST -> failed\nrunning DELETE -> deleting TERMINATE\n"
        "back-off DELETE -> absent\nback-off DEADLINE -> running START\n"
        "succeeded DELETE -> absent\nfailed DELETE -> absent\n"
        "deleting ENDED -> absent\ndeleting LOST -> absent\ndeleting DELETE -> deleting\n"
        "deleting DEADLINE -> killing KILL\n"
        "killing ENDED -> absent\nkilling LOST -> absent\nkilling DELETE -> killing\n"
        "killing DEADLINE -> stuck NAME_STUCK\n"
        "stuck ENDED -> absent\nstuck LOST -> absent\nstuck DELETE -> stuck\n";
    scope_buffer seen = {0};
    for (int from = 0; from < POD_STATE_COUNT; from++)
        for (int event = 0; event < POD_EVENT_COUNT; event++) {
            struct fixture f;
            make_job(&f, 1, 0, 0, LOCAL_RESTART_NEVER);
            begin(&f);
            take_all_actions(&f);
            f.life.pods[0].state = (enum pod_state)from;
            buffer_clear(&f.logged);
            kubelet_step(&f.life, 0, (enum pod_event)event, 9, f.now);
            if (f.logged.length && strstr(f.logged.data, "internal")) {
                assert_int_equal(state_of(&f, 0), from);
                assert_int_equal(take_actions(&f, 0), 0);
                finish(&f);
                continue;
            }
            buffer_printf(&seen, "%s %s -> %s", pod_state_name((enum pod_state)from),
                          pod_event_name((enum pod_event)event), pod_state_name(state_of(&f, 0)));
            unsigned actions = take_actions(&f, 0);
            for (int i = 0; i < POD_ACTION_COUNT; i++)
                if (actions & 1u << i)
                    buffer_printf(&seen, " %s", pod_action_name((enum pod_action)i));
            buffer_text(&seen, "\n");
            finish(&f);
        }
    assert_string_equal(seen.data, expected);
}

static void back_off_doubles_and_is_forgotten(void **state)
{
    (void)state;
    static const int seconds[] = {0, 10, 20, 40, 80, 160, 300, 300};
    struct fixture f;
    make_job(&f, 1, 0, 0, LOCAL_RESTART_ON_FAILURE);
    begin(&f);
    for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++) {
        assert_int_equal(lifecycle_backoff_ns((int)i + 1), seconds[i] * NS_PER_S);
        step(&f, JOB_POD_ENDED, 0, 1);
        if (seconds[i])
            assert_int_equal(wait_ns(&f), seconds[i] * NS_PER_S);
        assert_int_equal(state_of(&f, 0), POD_RUNNING);
        assert_int_equal(f.life.pods[0].restart_count, (int)i + 1);
        assert_true(conditions_hold(&f.life.conditions, CONDITION_RUNNING));
    }
    pass(&f, 600 * NS_PER_S);
    step(&f, JOB_POD_ENDED, 0, 1);
    assert_int_equal(state_of(&f, 0), POD_RUNNING); /* as the first time: at once */
    assert_int_equal(lifecycle_backoff_ns(1000000), 300 * NS_PER_S);
    step(&f, JOB_SUSPEND, 0, 0);
    step(&f, JOB_POD_ENDED, 0, 143);
    step(&f, JOB_RESUME, 0, 0);
    step(&f, JOB_POD_ENDED, 0, 1);
    assert_int_equal(state_of(&f, 0), POD_RUNNING); /* a new pod has not failed before */
    finish(&f);
}

static void back_off_is_scaled(void **state)
{
    (void)state;
    struct fixture f;
    struct lifecycle_options options = usual();
    options.backoff_scale = 0.1;
    make_job(&f, 1, 0, 0, LOCAL_RESTART_ALWAYS);
    begin_with(&f, options);
    step(&f, JOB_POD_ENDED, 0, 0);
    step(&f, JOB_POD_ENDED, 0, 0);
    assert_int_equal(wait_ns(&f), NS_PER_S);
    finish(&f);
    options.backoff_scale = 0; /* not even a turn of waiting */
    make_job(&f, 1, 0, 0, LOCAL_RESTART_EXIT_CODE);
    begin_with(&f, options);
    for (int i = 0; i < 5; i++) {
        take_all_actions(&f);
        step(&f, JOB_POD_ENDED, 0, 137);
        assert_int_equal(take_actions(&f, 0), 1u << POD_START);
    }
    assert_int_equal(f.life.pods[0].recreated, 5);
    finish(&f);
}

/* --- the job --- */

static void restarting_lasts_until_the_pod_is_back(void **state)
{
    (void)state;
    struct fixture f;
    make_job(&f, 1, 1, 0, LOCAL_RESTART_EXIT_CODE);
    f.job.backoff_limit = 3; /* never reached by pods that are made anew */
    begin(&f);
    for (int i = 0; i < 20; i++) {
        step(&f, JOB_POD_ENDED, 1, 143);
        assert_true(conditions_hold(&f.life.conditions, CONDITION_RESTARTING));
        assert_null(conditions_find(&f.life.conditions, CONDITION_RUNNING));
        assert_int_equal(wait_ns(&f), LIFECYCLE_RECREATE_S * NS_PER_S);
        assert_true(conditions_hold(&f.life.conditions, CONDITION_RUNNING));
        assert_null(conditions_find(&f.life.conditions, CONDITION_RESTARTING));
    }
    assert_non_null(strstr(f.logged.data, "pod worker-0 failed with exit code 143\n"));
    assert_non_null(strstr(f.logged.data, "pod worker-0: recreated (20)\n"));
    finish(&f);
}

static void the_code_that_failed_the_job(void **state)
{
    (void)state;
    struct fixture f;
    make_job(&f, 1, 2, 0, LOCAL_RESTART_NEVER);
    begin(&f);
    step(&f, JOB_POD_ENDED, 2, 77);
    assert_int_equal(f.life.state, JOB_FAILED);
    step(&f, JOB_POD_ENDED, 0, 0); /* too late: never overwritten */
    step(&f, JOB_POD_ENDED, 1, 3);
    assert_true(lifecycle_over(&f.life));
    assert_int_equal(f.life.exit_code, 77);
    assert_true(conditions_hold(&f.life.conditions, CONDITION_FAILED));
    assert_null(conditions_find(&f.life.conditions, CONDITION_SUCCEEDED));
    finish(&f);
    make_job(&f, 1, 1, 0, LOCAL_RESTART_ALWAYS); /* a limit, with ends that were no failures */
    f.job.backoff_limit = 1;
    begin(&f);
    step(&f, JOB_POD_ENDED, 0, 0);
    assert_int_equal(f.life.state, JOB_FAILED);
    assert_int_equal(f.life.exit_code, EXIT_CODE_FAILURE);
    finish(&f);
}

/* The sum over all pods counts, and the last container's code is the job's. */
static void backoff_limit_sums_pods(void **state)
{
    (void)state;
    struct fixture f;
    make_job(&f, 1, 2, 0, LOCAL_RESTART_ON_FAILURE);
    f.job.backoff_limit = 3;
    begin(&f);
    step(&f, JOB_POD_ENDED, 0, 4);
    pass(&f, NS_PER_S);
    step(&f, JOB_POD_ENDED, 1, 5);
    pass(&f, NS_PER_S);
    assert_int_equal(f.life.state, JOB_ACTIVE);
    step(&f, JOB_POD_ENDED, 2, 6);
    assert_int_equal(f.life.state, JOB_FAILED);
    assert_int_equal(f.life.exit_code, 6);
    finish(&f);
}

static void active_deadline(void **state)
{
    (void)state;
    struct fixture f;
    make_job(&f, 1, 1, 0, LOCAL_RESTART_ON_FAILURE);
    f.job.active_deadline_s = 60;
    f.job.clean_policy = LOCAL_CLEAN_RUNNING;
    begin(&f);
    take_all_actions(&f);
    assert_int_equal(wait_ns(&f), 60 * NS_PER_S);
    assert_int_equal(f.life.state, JOB_FAILED);
    assert_int_equal(f.life.exit_code, EXIT_CODE_FAILURE);
    assert_int_equal(take_actions(&f, 0), 1u << POD_TERMINATE);
    assert_int_equal(take_actions(&f, 1), 1u << POD_TERMINATE);
    assert_int_equal(wait_ns(&f), 30 * NS_PER_S); /* grace */
    assert_int_equal(take_actions(&f, 1), 1u << POD_KILL);
    step(&f, JOB_POD_ENDED, 0, 143);
    step(&f, JOB_POD_ENDED, 1, 137);
    assert_true(lifecycle_over(&f.life));
    assert_int_equal(lifecycle_deadline(&f.life).ns, INSTANT_NEVER.ns);
    finish(&f);
}

static void pods_of_a_decided_job_linger(void **state)
{
    (void)state;
    struct fixture f;
    make_job(&f, 1, 3, 0, LOCAL_RESTART_ON_FAILURE);
    begin(&f);
    step(&f, JOB_POD_ENDED, 3, 1);
    step(&f, JOB_POD_ENDED, 3, 1);
    assert_int_equal(state_of(&f, 3), POD_BACKOFF);
    step(&f, JOB_POD_ENDED, 0, 0);
    assert_int_equal(f.life.state, JOB_SUCCEEDED);
    assert_int_equal(state_of(&f, 3), POD_ABSENT); /* it would come back when we are gone */
    assert_false(lifecycle_over(&f.life));
    step(&f, JOB_POD_ENDED, 1, 1); /* not started again either */
    assert_int_equal(state_of(&f, 1), POD_FAILED);
    take_all_actions(&f);
    assert_null(strstr(f.logged.data, "leaves"));
    assert_int_equal(wait_ns(&f), NS_PER_S); /* logged for a pod that did not end at once */
    assert_non_null(strstr(f.logged.data, "cleanPodPolicy None leaves 1 pod running: ended in 9.0 s\n"));
    assert_int_equal(take_actions(&f, 2), 0);
    assert_int_equal(wait_ns(&f), 9 * NS_PER_S);
    assert_int_equal(take_actions(&f, 2), 1u << POD_TERMINATE);
    step(&f, JOB_POD_ENDED, 2, 143);
    assert_true(lifecycle_over(&f.life));
    assert_int_equal(f.life.exit_code, 0);
    finish(&f);
}

/* The job is deleted, and its pods with it, however patient we are. */
static void time_to_live(void **state)
{
    (void)state;
    struct fixture f;
    struct lifecycle_options options = usual();
    options.linger_ns = INT64_MAX;
    make_job(&f, 1, 1, 0, LOCAL_RESTART_ON_FAILURE);
    f.job.ttl_s = 5;
    begin_with(&f, options);
    step(&f, JOB_POD_ENDED, 0, 0);
    step(&f, JOB_POD_ENDED, 1, 1);
    assert_int_equal(state_of(&f, 1), POD_RUNNING); /* started again as long as there is a job */
    take_all_actions(&f);
    assert_int_equal(wait_ns(&f), NS_PER_S);
    assert_non_null(strstr(f.logged.data, "leaves 1 pod running: ended in 4.0 s\n"));
    assert_int_equal(wait_ns(&f), 4 * NS_PER_S);
    assert_int_equal(take_actions(&f, 1), 1u << POD_TERMINATE);
    finish(&f);
    make_job(&f, 1, 1, 0, LOCAL_RESTART_ON_FAILURE);
    f.job.ttl_s = 0;
    begin_with(&f, options);
    take_all_actions(&f);
    step(&f, JOB_POD_ENDED, 0, 0);
    assert_int_equal(take_actions(&f, 1), 1u << POD_TERMINATE);
    assert_null(strstr(f.logged.data, "leaves"));
    finish(&f);
}

/* linger without end: the cluster's way, restarts included. */
static void kept_going(void **state)
{
    (void)state;
    struct fixture f;
    struct lifecycle_options options = usual();
    options.linger_ns = INT64_MAX;
    make_job(&f, 1, 1, 0, LOCAL_RESTART_ON_FAILURE);
    begin_with(&f, options);
    step(&f, JOB_POD_ENDED, 0, 0);
    step(&f, JOB_POD_ENDED, 1, 1);
    assert_int_equal(state_of(&f, 1), POD_RUNNING);
    assert_int_equal(wait_ns(&f), NS_PER_S);
    assert_non_null(strstr(f.logged.data, "leaves 1 pod running: waiting for them\n"));
    assert_int_equal(lifecycle_deadline(&f.life).ns, INSTANT_NEVER.ns);
    assert_false(lifecycle_over(&f.life));
    take_all_actions(&f);
    step(&f, JOB_DELETE, 0, SIGINT); /* it was decided before */
    assert_int_equal(take_actions(&f, 1), 1u << POD_TERMINATE);
    step(&f, JOB_POD_ENDED, 1, 130);
    assert_true(lifecycle_over(&f.life));
    assert_int_equal(f.life.exit_code, 0);
    finish(&f);
}

static void a_signal_deletes_the_job(void **state)
{
    (void)state;
    struct fixture f;
    struct lifecycle_options options = usual();
    options.grace_s = 2;
    make_job(&f, 1, 2, 0, LOCAL_RESTART_ON_FAILURE);
    begin_with(&f, options);
    step(&f, JOB_POD_ENDED, 2, 0);
    take_all_actions(&f);
    step(&f, JOB_DELETE, 0, SIGTERM);
    step(&f, JOB_DELETE, 0, SIGINT); /* the first word counts, and nothing is skipped */
    assert_int_equal(take_actions(&f, 0), 1u << POD_TERMINATE);
    assert_int_equal(state_of(&f, 2), POD_ABSENT);
    step(&f, JOB_POD_ENDED, 0, 0);
    assert_int_equal(state_of(&f, 0), POD_ABSENT); /* nobody makes it anew */
    assert_int_equal(wait_ns(&f), 2 * NS_PER_S);
    assert_int_equal(take_actions(&f, 1) & 1u << POD_KILL, 1u << POD_KILL);
    assert_int_equal(wait_ns(&f), 30 * NS_PER_S);
    assert_int_equal(take_actions(&f, 1), 1u << POD_NAME_STUCK);
    assert_true(lifecycle_over(&f.life));
    assert_int_equal(f.life.exit_code, EXIT_CODE_NODE);
    finish(&f);
    make_job(&f, 1, 0, 0, LOCAL_RESTART_ON_FAILURE);
    begin(&f);
    step(&f, JOB_DELETE, 0, SIGINT);
    step(&f, JOB_POD_ENDED, 0, 0);
    assert_int_equal(f.life.exit_code, EXIT_CODE_INTERRUPT);
    finish(&f);
}

static void assert_conditions(const struct fixture *f, const char *expected)
{
    scope_buffer seen = {0};
    for (int i = 0; i < f->life.conditions.count; i++) {
        const struct condition *c = &f->life.conditions.list[i];
        buffer_printf(&seen, "%s%s=%s(%s)", i ? " " : "", condition_name(c->type),
                      c->status ? "True" : "False", c->reason + strlen("PyTorchJob"));
    }
    assert_string_equal(seen.data, expected);
}

static void suspended_and_resumed(void **state)
{
    (void)state;
    struct fixture f;
    make_job(&f, 1, 1, 0, LOCAL_RESTART_ON_FAILURE);
    f.job.active_deadline_s = 100;
    begin(&f);
    pass(&f, 90 * NS_PER_S);
    step(&f, JOB_POD_ENDED, 1, 0);
    take_all_actions(&f);
    step(&f, JOB_SUSPEND, 0, 0);
    assert_conditions(&f, "Created=True(Created) Running=False(Suspended) Suspended=True(Suspended)");
    assert_int_equal(state_of(&f, 1), POD_ABSENT);
    step(&f, JOB_RESUME, 0, 0); /* while the master is still going */
    assert_int_equal(state_of(&f, 0), POD_DELETING);
    assert_int_equal(state_of(&f, 1), POD_RUNNING);
    take_all_actions(&f);
    step(&f, JOB_POD_ENDED, 0, 143);
    assert_int_equal(take_actions(&f, 0), 1u << POD_START);
    assert_conditions(&f, "Created=True(Created) Suspended=False(Resumed) Running=True(Running)");
    assert_int_equal(wait_ns(&f), 100 * NS_PER_S); /* the start time is new */
    assert_int_equal(f.life.state, JOB_FAILED);
    finish(&f);
}

static void suspended_from_the_start(void **state)
{
    (void)state;
    struct fixture f;
    make_job(&f, 1, 1, 0, LOCAL_RESTART_ON_FAILURE);
    f.job.suspended = true;
    begin(&f);
    assert_conditions(&f, "Created=True(Created) Suspended=True(Suspended)");
    assert_int_equal(take_actions(&f, 0), 0);
    assert_false(lifecycle_over(&f.life));
    assert_int_equal(lifecycle_deadline(&f.life).ns, INSTANT_NEVER.ns);
    step(&f, JOB_RESUME, 0, 0);
    assert_int_equal(take_actions(&f, 0), 1u << POD_START);
    finish(&f);
}

static void conditions_at_the_end(void **state)
{
    (void)state;
    struct fixture f;
    make_job(&f, 0, 1, 0, LOCAL_RESTART_ON_FAILURE);
    begin(&f);
    step(&f, JOB_POD_ENDED, 0, 0);
    assert_conditions(&f, "Created=True(Created) Running=False(Running) Succeeded=True(Succeeded)");
    finish(&f);
}

/* A pod that is deleted in the same look in which it would have been started has no process to end. */
static void deleted_before_it_started(void **state)
{
    (void)state;
    struct fixture f;
    make_job(&f, 0, 1, 0, LOCAL_RESTART_ON_FAILURE);
    f.job.backoff_limit = 1;
    f.job.clean_policy = LOCAL_CLEAN_ALL;
    begin(&f);
    take_all_actions(&f);
    step(&f, JOB_POD_ENDED, 0, 9);
    assert_int_equal(f.life.state, JOB_FAILED);
    assert_int_equal(take_actions(&f, 0), 0);
    assert_true(lifecycle_over(&f.life));
    assert_int_equal(f.life.exit_code, 9);
    finish(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lifecycle_rows),
        cmocka_unit_test(clean_up_rows),
        cmocka_unit_test(exit_code_rows),
        cmocka_unit_test(every_cell_of_a_pod),
        cmocka_unit_test(back_off_doubles_and_is_forgotten),
        cmocka_unit_test(back_off_is_scaled),
        cmocka_unit_test(restarting_lasts_until_the_pod_is_back),
        cmocka_unit_test(the_code_that_failed_the_job),
        cmocka_unit_test(backoff_limit_sums_pods),
        cmocka_unit_test(active_deadline),
        cmocka_unit_test(pods_of_a_decided_job_linger),
        cmocka_unit_test(time_to_live),
        cmocka_unit_test(kept_going),
        cmocka_unit_test(a_signal_deletes_the_job),
        cmocka_unit_test(suspended_and_resumed),
        cmocka_unit_test(suspended_from_the_start),
        cmocka_unit_test(conditions_at_the_end),
        cmocka_unit_test(deleted_before_it_started),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
