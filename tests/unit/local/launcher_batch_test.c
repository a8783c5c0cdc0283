/* launcher_batch_test.c - Jobs and JobSets by their controllers' rules: counting, policies, order, restarts
 * of all; and the plan of a pod's mounts. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/local/run/lifecycle.h"
#include "launcher/local/run/mount_plan.h"
#include "launcher/local/run/volume_folders.h"
#include "proto/base/buffer.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/folder.h"

enum { PODS_LIMIT = 8, GROUPS_LIMIT = 3 };

struct fixture {
    struct local_job job;
    struct local_pod pods[PODS_LIMIT];
    struct local_group groups[GROUPS_LIMIT];
    char names[PODS_LIMIT][16];
    struct lifecycle life;
    struct instant now;
};

static void add_group(struct fixture *f, int count, enum local_restart_policy policy, int64_t backoff)
{
    int number = f->job.group_count++;
    f->groups[number] = (struct local_group){.name = (char *)"g",
                                             .replicated = (char *)"",
                                             .number = number,
                                             .first = f->job.pod_count,
                                             .count = count,
                                             .parallelism = count,
                                             .restart_policy = policy,
                                             .backoff_limit = backoff,
                                             .decides = true};
    for (int i = 0; i < count; i++) {
        int at = f->job.pod_count++;
        (void)snprintf(f->names[at], sizeof f->names[at], "g%d-%d", number, i);
        f->pods[at] = (struct local_pod){
            .name = f->names[at], .type = LOCAL_WORKER, .group = number, .index = i, .grace_s = 1};
    }
}

static void make(struct fixture *f)
{
    memset(f, 0, sizeof *f);
    f->job = (struct local_job){.kind = LOCAL_JOBSET,
                                .name = (char *)"j",
                                .pods = f->pods,
                                .groups = f->groups,
                                .clean_policy = LOCAL_CLEAN_RUNNING,
                                .backoff_limit = -1,
                                .active_deadline_s = -1,
                                .ttl_s = -1};
}

static void step(struct fixture *f, enum job_event_kind kind, int pod, int number)
{
    lifecycle_step(&f->life, &(struct job_event){.kind = kind, .pod = pod, .number = number}, f->now);
    for (int i = 0; i < f->life.pod_count; i++)
        f->life.pods[i].actions = 0; /* done */
}

static void begin(struct fixture *f)
{
    const struct lifecycle_options options = {
        .backoff_scale = 1, .grace_s = -1, .linger_ns = NS_PER_S, .kill_bound_ns = NS_PER_S};
    assert_int_equal(lifecycle_init(&f->life, &f->job, &options, NULL, NULL), 0);
    step(f, JOB_BEGIN, 0, 0);
}

static int64_t wait_s(struct fixture *f)
{
    struct instant next = lifecycle_deadline(&f->life);
    assert_true(next.ns != INSTANT_NEVER.ns);
    int64_t ns = instant_diff_ns(next, f->now);
    f->now = next;
    step(f, JOB_TIME, 0, 0);
    return ns / NS_PER_S;
}

static void assert_states(const struct fixture *f, const char *expected)
{
    char states[PODS_LIMIT + 1] = "";
    for (int i = 0; i < f->life.pod_count; i++)
        states[i] = "-prbsfdkx"[f->life.pods[i].state];
    assert_string_equal(states, expected);
}

/* --- a Job --- */

static void parallelism_bounds_the_pods(void **state)
{
    (void)state;
    struct fixture f;
    make(&f);
    add_group(&f, 3, LOCAL_RESTART_NEVER, 6);
    f.groups[0].parallelism = 2;
    begin(&f);
    assert_states(&f, "rr-");
    step(&f, JOB_POD_ENDED, 0, 0);
    assert_states(&f, "srr");
    step(&f, JOB_POD_ENDED, 2, 0);
    assert_int_equal(f.life.state, JOB_ACTIVE);
    step(&f, JOB_POD_ENDED, 1, 0);
    assert_int_equal(f.life.state, JOB_SUCCEEDED);
    assert_true(lifecycle_over(&f.life) && f.life.exit_code == 0);
    lifecycle_free(&f.life);
}

static void failures_are_counted_and_pauses_double(void **state)
{
    (void)state;
    struct fixture f;
    make(&f);
    add_group(&f, 2, LOCAL_RESTART_NEVER, 2);
    begin(&f);
    step(&f, JOB_POD_ENDED, 1, 5);
    assert_states(&f, "rp");
    assert_int_equal(wait_s(&f), 10);
    step(&f, JOB_POD_ENDED, 0, 5);
    assert_int_equal(wait_s(&f), 20);
    assert_states(&f, "rr");
    step(&f, JOB_POD_ENDED, 1, 6);
    assert_int_equal(f.life.state, JOB_FAILED);
    assert_int_equal(f.life.exit_code, 6);
    assert_states(&f, "df"); /* the other is told to end */
    lifecycle_free(&f.life);
}

static void restarts_in_place_count_too(void **state)
{
    (void)state;
    struct fixture f;
    make(&f);
    add_group(&f, 2, LOCAL_RESTART_ON_FAILURE, 2);
    begin(&f);
    step(&f, JOB_POD_ENDED, 0, 3);
    assert_int_equal(f.life.state, JOB_ACTIVE);
    step(&f, JOB_POD_ENDED, 1, 4);
    assert_int_equal(f.life.state, JOB_FAILED);
    assert_int_equal(f.life.exit_code, 4);
    lifecycle_free(&f.life);
}

static void rules_decide_by_the_first_that_fits(void **state)
{
    (void)state;
    int permanent[] = {2, 126}, known[] = {1, 2, 126};
    struct local_failure_rule rules[] = {{LOCAL_FAILURE_FAIL_JOB, false, permanent, 2},
                                         {LOCAL_FAILURE_IGNORE, true, known, 3}};
    static const struct {
        int code, failures;
        enum job_state end;
    } cases[] = {{2, 0, JOB_FAILED}, {143, 0, JOB_ACTIVE}, {1, 1, JOB_ACTIVE}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        make(&f);
        add_group(&f, 1, LOCAL_RESTART_NEVER, 6);
        f.groups[0].rules = rules;
        f.groups[0].rule_count = 2;
        begin(&f);
        step(&f, JOB_POD_ENDED, 0, cases[i].code);
        assert_int_equal(f.life.state, cases[i].end);
        assert_int_equal(f.life.groups[0].failures, cases[i].failures);
        lifecycle_free(&f.life);
    }
}

static void what_is_complete_outlives_a_suspension(void **state)
{
    (void)state;
    struct fixture f;
    make(&f);
    add_group(&f, 2, LOCAL_RESTART_NEVER, 6);
    begin(&f);
    step(&f, JOB_POD_ENDED, 0, 0);
    step(&f, JOB_SUSPEND, 0, 0);
    assert_states(&f, "sd");
    step(&f, JOB_POD_ENDED, 1, 143);
    assert_states(&f, "s-");
    step(&f, JOB_RESUME, 0, 0);
    assert_states(&f, "sr");
    lifecycle_free(&f.life);
}

static void a_job_succeeds_by_its_policy(void **state)
{
    (void)state;
    bool leader[] = {true, false, false};
    struct local_success_rule rules[] = {{leader, 0}, {NULL, 2}};
    struct fixture f;
    for (int by_count = 0; by_count < 2; by_count++) {
        make(&f);
        add_group(&f, 3, LOCAL_RESTART_NEVER, 6);
        add_group(&f, 1, LOCAL_RESTART_NEVER, 6);
        f.groups[0].success = rules;
        f.groups[0].success_count = 2;
        begin(&f);
        step(&f, JOB_POD_ENDED, by_count ? 1 : 0, 0);
        assert_states(&f, by_count ? "rsrr" : "sddr"); /* the rest of it is deleted, the other Job goes on */
        if (by_count) {
            step(&f, JOB_POD_ENDED, 2, 0);
            assert_states(&f, "dssr");
        }
        assert_int_equal(f.life.state, JOB_ACTIVE);
        step(&f, JOB_POD_ENDED, 3, 0);
        assert_int_equal(f.life.state, JOB_SUCCEEDED);
        lifecycle_free(&f.life);
    }
}

static void failures_count_for_each_index(void **state)
{
    (void)state;
    int permanent[] = {9};
    struct local_failure_rule rule = {LOCAL_FAILURE_FAIL_INDEX, false, permanent, 1};
    struct fixture f;
    make(&f);
    add_group(&f, 3, LOCAL_RESTART_NEVER, INT32_MAX);
    f.groups[0].per_index = true;
    f.groups[0].index_limit = 1;
    f.groups[0].failed_indexes = -1;
    f.groups[0].rules = &rule;
    f.groups[0].rule_count = 1;
    begin(&f);
    step(&f, JOB_POD_ENDED, 1, 4);
    assert_states(&f, "rpr");
    assert_int_equal(wait_s(&f), 10);
    step(&f, JOB_POD_ENDED, 1, 5);
    assert_states(&f, "rfr"); /* that index has failed; the others go on */
    step(&f, JOB_POD_ENDED, 0, 9);
    assert_states(&f, "ffr"); /* at once, by its exit code */
    assert_int_equal(f.life.state, JOB_ACTIVE);
    step(&f, JOB_POD_ENDED, 2, 0);
    assert_int_equal(f.life.state, JOB_FAILED);
    assert_int_equal(f.life.groups[0].reason, LOCAL_FAILED_INDEXES);
    lifecycle_free(&f.life);

    make(&f);
    add_group(&f, 2, LOCAL_RESTART_NEVER, INT32_MAX);
    f.groups[0].per_index = true;
    begin(&f); /* maxFailedIndexes 0 */
    step(&f, JOB_POD_ENDED, 1, 4);
    assert_int_equal(f.life.state, JOB_FAILED);
    assert_int_equal(f.life.groups[0].reason, LOCAL_FAILED_MAX_INDEXES);
    assert_int_equal(f.life.exit_code, 4);
    lifecycle_free(&f.life);
}

/* --- a JobSet --- */

static void depend(struct fixture *f, int group, int on, bool ready)
{
    struct local_group *spec = &f->groups[group];
    spec->after[spec->after_count++] = (struct local_dependency){on, ready};
}

static void all_dependencies_have_to_hold(void **state)
{
    (void)state;
    struct fixture f;
    make(&f);
    for (int i = 0; i < 3; i++)
        add_group(&f, 1, LOCAL_RESTART_NEVER, 6);
    depend(&f, 2, 0, false);
    depend(&f, 2, 1, false);
    begin(&f);
    step(&f, JOB_POD_ENDED, 0, 0);
    assert_states(&f, "sr-"); /* half of the pods are complete */
    step(&f, JOB_POD_ENDED, 1, 0);
    assert_states(&f, "ssr");
    lifecycle_free(&f.life);
}

static void a_job_of_a_set_has_its_own_deadline(void **state)
{
    (void)state;
    struct fixture f;
    make(&f);
    add_group(&f, 1, LOCAL_RESTART_NEVER, 6);
    add_group(&f, 1, LOCAL_RESTART_NEVER, 6);
    depend(&f, 1, 0, false);
    f.groups[1].active_deadline_s = 30;
    begin(&f);
    assert_true(lifecycle_deadline(&f.life).ns == INSTANT_NEVER.ns); /* it has not begun */
    step(&f, JOB_POD_ENDED, 0, 0);
    assert_int_equal(wait_s(&f), 30);
    assert_int_equal(f.life.state, JOB_FAILED);
    assert_int_equal(f.life.groups[1].reason, LOCAL_FAILED_DEADLINE);
    lifecycle_free(&f.life);
}

/* Two Jobs, of which the second one fails with this code; maxRestarts is 1. */
static void fail_with_rule(struct fixture *f, struct local_restart_rule *rule, int code)
{
    make(f);
    add_group(f, 1, LOCAL_RESTART_NEVER, 0);
    add_group(f, 1, LOCAL_RESTART_NEVER, 0);
    f->job.max_restarts = 1;
    f->job.restart_rules = rule;
    f->job.restart_rule_count = 1;
    begin(f);
    step(f, JOB_POD_ENDED, 1, code);
}

static void rules_of_a_set_decide(void **state)
{
    (void)state;
    bool first[] = {true, false}, second[] = {false, true};
    char pattern[] = "backoff (limit|end)$", other[] = "^deadline";
    char *matching[] = {pattern, NULL}, *strange[] = {other, NULL};
    const struct {
        struct local_restart_rule rule;
        const char *states;
        enum job_state end;
    } cases[] = {
        {{LOCAL_FAIL_SET, (char *)"r", NULL, 0, NULL}, "df", JOB_FAILED},
        {{LOCAL_FAIL_SET, (char *)"r", second, 0, NULL}, "df", JOB_FAILED},
        {{LOCAL_FAIL_SET, (char *)"r", first, 0, NULL}, "d-", JOB_ACTIVE}, /* does not fit: all anew */
        {{LOCAL_FAIL_SET, (char *)"r", NULL, 1u << LOCAL_FAILED_BACKOFF, NULL}, "df", JOB_FAILED},
        {{LOCAL_FAIL_SET, (char *)"r", NULL, 1u << LOCAL_FAILED_DEADLINE, NULL}, "d-", JOB_ACTIVE},
        {{LOCAL_FAIL_SET, (char *)"r", NULL, 0, matching}, "df", JOB_FAILED},
        {{LOCAL_FAIL_SET, (char *)"r", NULL, 0, strange}, "d-", JOB_ACTIVE},
        {{LOCAL_RESTART_JOB, (char *)"r", NULL, 0, NULL}, "rr", JOB_ACTIVE}, /* the other one goes on */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        struct local_restart_rule rule = cases[i].rule;
        fail_with_rule(&f, &rule, 3);
        assert_states(&f, cases[i].states);
        assert_int_equal(f.life.state, cases[i].end);
        lifecycle_free(&f.life);
    }
}

static void restarts_count_or_do_not(void **state)
{
    (void)state;
    struct fixture f;
    struct local_restart_rule freely = {LOCAL_RESTART_SET_FREELY, (char *)"r", NULL, 0, NULL},
                              job = {LOCAL_RESTART_JOB, (char *)"r", NULL, 0, NULL},
                              job_freely = {LOCAL_RESTART_JOB_FREELY, (char *)"r", NULL, 0, NULL};
    fail_with_rule(&f, &freely, 3);
    for (int i = 0; i < 5; i++) {
        step(&f, JOB_POD_ENDED, 0, 143);
        assert_states(&f, "rr");
        step(&f, JOB_POD_ENDED, 1, 3);
    }
    assert_int_equal(f.life.state, JOB_ACTIVE);
    assert_true(f.life.remakes == 6 && f.life.counted == 0);
    lifecycle_free(&f.life);

    fail_with_rule(&f, &job, 3);
    assert_true(f.life.groups[1].restarts == 1 && f.life.groups[0].restarts == 0);
    step(&f, JOB_POD_ENDED, 1, 4);
    assert_int_equal(f.life.state, JOB_FAILED); /* maxRestarts 1 */
    assert_int_equal(f.life.exit_code, 4);
    lifecycle_free(&f.life);

    fail_with_rule(&f, &job_freely, 3);
    for (int i = 0; i < 5; i++)
        step(&f, JOB_POD_ENDED, 1, 3);
    assert_int_equal(f.life.state, JOB_ACTIVE);
    assert_int_equal(f.life.groups[1].restarts, 6);
    step(&f, JOB_POD_ENDED, 0, 0);
    step(&f, JOB_POD_ENDED, 1, 0);
    assert_int_equal(f.life.state, JOB_SUCCEEDED);
    lifecycle_free(&f.life);
}

static void jobs_start_in_order(void **state)
{
    (void)state;
    struct fixture f;
    make(&f);
    add_group(&f, 1, LOCAL_RESTART_NEVER, 6);
    add_group(&f, 1, LOCAL_RESTART_NEVER, 6);
    add_group(&f, 1, LOCAL_RESTART_NEVER, 6);
    depend(&f, 1, 0, true);
    depend(&f, 2, 1, false);
    begin(&f);
    assert_states(&f, "rp-"); /* the first one runs already: the second is created */
    step(&f, JOB_TIME, 0, 0);
    step(&f, JOB_POD_ENDED, 1, 0);
    assert_states(&f, "rsr");
    lifecycle_free(&f.life);
}

static void all_jobs_are_made_anew(void **state)
{
    (void)state;
    struct fixture f;
    make(&f);
    add_group(&f, 1, LOCAL_RESTART_NEVER, 0);
    add_group(&f, 1, LOCAL_RESTART_NEVER, 0);
    f.job.max_restarts = 1;
    begin(&f);
    step(&f, JOB_POD_ENDED, 1, 9);
    assert_states(&f, "d-");
    step(&f, JOB_POD_ENDED, 0, 143);
    assert_states(&f, "rr");
    step(&f, JOB_POD_ENDED, 0, 8);
    assert_int_equal(f.life.state, JOB_FAILED);
    assert_int_equal(f.life.exit_code, 8);
    lifecycle_free(&f.life);
}

static void one_job_may_be_enough(void **state)
{
    (void)state;
    struct fixture f;
    make(&f);
    add_group(&f, 1, LOCAL_RESTART_NEVER, 0);
    add_group(&f, 1, LOCAL_RESTART_NEVER, 0);
    add_group(&f, 1, LOCAL_RESTART_NEVER, 0);
    f.groups[0].decides = false;
    f.job.success_any = true;
    begin(&f);
    step(&f, JOB_POD_ENDED, 0, 0);
    assert_int_equal(f.life.state, JOB_ACTIVE);
    step(&f, JOB_POD_ENDED, 2, 0);
    assert_int_equal(f.life.state, JOB_SUCCEEDED);
    assert_states(&f, "sds");
    lifecycle_free(&f.life);
}

/* --- mounts --- */

static void plans_cover_what_is_missing(void **state)
{
    (void)state;
    struct mount_plan plan;
    struct muster_error err = {0};
    const struct mount_request requests[] = {{.from = "/tmp", .to = "/etc/not/there", .read_only = true},
                                             {.from = "/tmp", .to = "/usr"},
                                             {.to = "/usr/x/y"}};
    assert_int_equal(mount_plan_make(requests, 3, "/stage", &plan, &err), 0);
    scope_buffer shown = {0};
    static const char *const names[] = {"cover", "dir", "file", "link", "show", "root", "place", "lock"};
    for (int i = 0; i < plan.count; i++)
        if (strncmp(plan.ops[i].to, "/stage/", 7))
            buffer_printf(&shown, "%s %s\n", names[plan.ops[i].kind], plan.ops[i].to);
    assert_string_equal(shown.data, "cover /stage\nshow /etc\ndir /etc/not\ndir /etc/not/there\n"
                                    "place /etc/not/there\nplace /usr\ndir /usr/x\ndir /usr/x/y\n"
                                    "cover /usr/x/y\nlock /etc/not/there\n");
    mount_plan_free(&plan);
}

static void the_root_is_covered_first(void **state)
{
    (void)state;
    struct mount_plan plan;
    struct muster_error err = {0};
    const struct mount_request requests[] = {{.from = "/tmp", .to = "/etc/not"},
                                             {.from = "/tmp", .to = "/surely-not-there"}};
    assert_int_equal(mount_plan_make(requests, 2, "/stage", &plan, &err), 0);
    int root = -1, etc = -1;
    for (int i = 0; i < plan.count; i++) {
        if (plan.ops[i].kind == MOUNT_OP_ROOT)
            root = i;
        if (plan.ops[i].kind == MOUNT_OP_SHOW && !strcmp(plan.ops[i].to, "/etc"))
            etc = i;
    }
    assert_true(root > 0 && etc > root);
    mount_plan_free(&plan);
}

static void folders_are_removed_without_following_links(void **state)
{
    (void)state;
    char folder[FOLDER_PATH], path[200];
    assert_int_equal(folder_make(folder, "batch-test"), 0);
    static const char *const made[] = {"kept", "gone", "gone/a", "gone/a/b"};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, made[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    char kept[100];
    (void)snprintf(kept, sizeof kept, "%s/kept", folder);
    (void)snprintf(path, sizeof path, "%s/gone/link", folder);
    assert_int_equal(symlink(kept, path), 0);
    (void)snprintf(path, sizeof path, "%s/gone/a", folder);
    assert_int_equal(chmod(path, 0), 0);
    (void)snprintf(path, sizeof path, "%s/kept/file", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
    (void)snprintf(path, sizeof path, "%s/gone", folder);
    folder_remove_content(path);
    assert_int_equal(rmdir(path), 0); /* empty */
    (void)snprintf(path, sizeof path, "%s/kept/file", folder);
    assert_int_equal(access(path, F_OK), 0);
    folder_remove_content(folder);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parallelism_bounds_the_pods),
        cmocka_unit_test(failures_are_counted_and_pauses_double),
        cmocka_unit_test(restarts_in_place_count_too),
        cmocka_unit_test(rules_decide_by_the_first_that_fits),
        cmocka_unit_test(what_is_complete_outlives_a_suspension),
        cmocka_unit_test(a_job_succeeds_by_its_policy),
        cmocka_unit_test(failures_count_for_each_index),
        cmocka_unit_test(all_dependencies_have_to_hold),
        cmocka_unit_test(a_job_of_a_set_has_its_own_deadline),
        cmocka_unit_test(rules_of_a_set_decide),
        cmocka_unit_test(restarts_count_or_do_not),
        cmocka_unit_test(jobs_start_in_order),
        cmocka_unit_test(all_jobs_are_made_anew),
        cmocka_unit_test(one_job_may_be_enough),
        cmocka_unit_test(plans_cover_what_is_missing),
        cmocka_unit_test(the_root_is_covered_first),
        cmocka_unit_test(folders_are_removed_without_following_links),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
