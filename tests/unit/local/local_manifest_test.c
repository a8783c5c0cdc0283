/* local_manifest_test.c - the parts between a manifest and a job: quantities, expansion, words, problems; and
 * whole manifests with every allocation failing in turn. What pods get is held against data by tests/e2e. */
#include "launcher/local/manifest/manifest.h"

#include <stdio.h>

#include "launcher/local/pod/quantity.h"
#include "proto/base/mem.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/faults.h"
#include "tests/support/walk.h"

/* --- quantities --- */

static void quantities(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t thousandths;
    } good[] = {
        {"0", 0},
        {"2", 2000},
        {"500m", 500},
        {"1.5", 1500},
        {".5", 500},
        {"5.", 5000},
        {"-1", -1000},
        {"+1", 1000},
        {"2k", 2000000},
        {"1Ki", 1024000},
        {"1.5Gi", 1610612736000},
        {"1e3", 1000000},
        {"1E3", 1000000},
        {"25e-1", 2500},
        {"1500u", 2},
        {"1n", 1},
        {"1M", 1000000000},
    };
    quantity_thousandths value;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        if (!quantity_parse(good[i].text, &value))
            fail_msg("%s is refused", good[i].text);
        if (value != good[i].thousandths)
            fail_msg("%s is %lld", good[i].text, (long long)value);
    }
    assert_true(quantity_parse("8E", &value));
    assert_int_equal(quantity_in(value, 1000), 8000000000000000000);
    static const char *const bad[] = {
        "",    "m",  "1x",   "1 ",   " 1",  "1.2.3", "1mi",
        "1KI", "1e", "0x10", "1e99", "--1", "1e1.5", "9999999999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (quantity_parse(bad[i], &value))
            fail_msg("'%s' is accepted", bad[i]);
    assert_int_equal(quantity_in(2500, 1000), 3);
    assert_int_equal(quantity_in(2500, 1), 2500);
    assert_int_equal(quantity_in(3000, 1000), 3);
    assert_int_equal(quantity_in(0, 1000), 0);
    assert_int_equal(quantity_in(-1500, 1000), -1);
}

/* --- environments --- */

static void variables(void **state)
{
    (void)state;
    struct env_map map = {0};
    struct muster_error err = {0};
    assert_int_equal(env_map_set(&map, "A", "1", &err), 0);
    assert_int_equal(env_map_set(&map, "B", "2", &err), 0);
    assert_int_equal(env_map_set(&map, "A", "three", &err), 0);
    struct text_list list = {0};
    assert_int_equal(env_map_list(&map, &list), 0);
    assert_string_equal(list.items[0], "A=three");
    assert_string_equal(list.items[1], "B=2");
    assert_int_equal(list.count, 2);
    assert_int_equal(map.bytes, strlen("A=three") + 1 + strlen("B=2") + 1);
    text_list_free(&list);

    static const char *const cases[][2] = {
        {"", ""},
        {"plain", "plain"},
        {"$(A)", "three"},
        {"x$(B)y$(A)", "x2ythree"},
        {"$(C)", "$(C)"},
        {"$$(A)", "$(A)"},
        {"$$$(A)", "$three"},
        {"$$$$", "$$"},
        {"$A", "$A"},
        {"$", "$"},
        {"$(A", "$(A"},
        {"$()", "$()"},
        {"$($(A))", "$($(A))"},
        {"a$", "a$"},
        {"$(A)$", "three$"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buffer out = {0};
        assert_int_equal(env_expand(cases[i][0], &map, &out), 0);
        assert_string_equal(out.data ? out.data : "", cases[i][1]);
        buffer_free(&out);
    }
    struct buffer small = {.limit = 4};
    assert_int_equal(env_expand("$(A)", &map, &small), -1);
    buffer_free(&small);
    env_map_free(&map);
}

static void environments_are_bounded(void **state)
{
    (void)state;
    struct env_map map = {0};
    struct muster_error err = {0};
    char *large = mem_calloc(ENV_TEXT_LIMIT + 1, 1), name[16];
    memset(large, 'x', ENV_TEXT_LIMIT);
    assert_int_equal(env_map_set(&map, "L", large, &err), -1);
    assert_int_equal(err.code, MUSTER_E_LIMIT);
    large[ENV_TEXT_LIMIT - 100] = 0;
    int fitted = 0;
    for (; fitted < 100; fitted++) {
        (void)snprintf(name, sizeof name, "L%d", fitted);
        if (env_map_set(&map, name, large, &err) < 0)
            break;
    }
    assert_int_equal(fitted, 8);
    assert_int_equal(env_map_set(&map, "L3", "", &err), 0); /* replacing gives room back */
    assert_int_equal(env_map_set(&map, "L8", large, &err), 0);
    mem_free(large);
    env_map_free(&map);
    int count = 0;
    for (;; count++) {
        (void)snprintf(name, sizeof name, "V%d", count);
        if (env_map_set(&map, name, "", &err) < 0)
            break;
    }
    assert_int_equal(count, ENV_ENTRIES_LIMIT);
    env_map_free(&map);
}

/* --- words --- */

static void entrypoints(void **state)
{
    (void)state;
    struct text_list words = {0};
    struct muster_error err = {0};
    assert_int_equal(pod_command_split(" python3  -u 'a b'\"c d\"\\ e \"\\\"\" '' '\\'\t", &words, &err), 0);
    static const char *const expected[] = {"python3", "-u", "a bc d e", "\"", "", "\\"};
    assert_int_equal(words.count, 6);
    for (size_t i = 0; i < words.count; i++)
        assert_string_equal(words.items[i], expected[i]);
    text_list_free(&words);
    assert_int_equal(pod_command_split("  ", &words, &err), -1);
    assert_int_equal(pod_command_split("'a", &words, &err), -1);
    assert_int_equal(err.code, MUSTER_E_INVALID);
    text_list_free(&words);
}

/* --- problems --- */

static void problems_are_said_once_and_counted(void **state)
{
    (void)state;
    struct problems problems = {0};
    const struct tree_node at = {.line = 3, .column = 7};
    const struct path *path = PATH_INDEX(PATH_KEY(PATH_FIELD(NULL, "spec"), "Master"), 2);
    for (int i = 0; i < 2; i++)
        problems_add(&problems, PROBLEM_FORBIDDEN, "f.yaml", &at, path, "must be %d", 1);
    problems_add(&problems, PROBLEM_NOTE, "f.yaml", &at, path, "a note");
    problems_add(&problems, PROBLEM_WARNING, "f.yaml", NULL, NULL, "a warning");
    assert_int_equal(problems.count, 3);
    assert_int_equal(problems.errors, 2);
    assert_string_equal(problems.list[0].text, "f.yaml:3:7: spec[Master][2]: Forbidden: must be 1");
    assert_string_equal(problems.list[0].field, "spec[Master][2]");
    assert_string_equal(problems.list[1].text, "f.yaml: a note");
    assert_string_equal(problems.list[2].text, "f.yaml: a warning");
    for (int i = 0; i < 1000; i++)
        problems_add(&problems, PROBLEM_WARNING, "f.yaml", NULL, NULL, "%d", i);
    assert_int_equal(problems.count, PROBLEMS_LIMIT);
    assert_int_equal(problems.left_out, 1003 - PROBLEMS_LIMIT);
    assert_int_equal(problems.fatal, 0);
    problems_free(&problems);
}

/* --- whole manifests --- */

static const char everything[] =
    "apiVersion: kubeflow.org/v1\n"
    "kind: PyTorchJob\n"
    "metadata: {name: all, namespace: ml, labels: {a: b}}\n"
    "spec:\n"
    "  nprocPerNode: auto\n"
    "  surprise: 1\n"
    "  elasticPolicy: {minReplicas: 1, maxReplicas: 2, maxRestarts: 1, rdzvId: x, standalone: true,\n"
    "                  rdzvConf: [{key: k, value: v}]}\n"
    "  runPolicy: {cleanPodPolicy: All, backoffLimit: 3, activeDeadlineSeconds: 60, suspend: true}\n"
    "  pytorchReplicaSpecs:\n"
    "    Worker:\n"
    "      replicas: 2\n"
    "      restartPolicy: ExitCode\n"
    "      template:\n"
    "        metadata: {labels: {l: m}, annotations: {n: o}}\n"
    "        spec:\n"
    "          hostname: box\n"
    "          terminationGracePeriodSeconds: 5\n"
    "          containers:\n"
    "          - name: pytorch\n"
    "            image: i\n"
    "            command: [python3, -m, torch.distributed.run, \"--id=$(ID)\"]\n"
    "            args: [x.py]\n"
    "            workingDir: /tmp\n"
    "            ports: [{name: pytorchjob-port, containerPort: 1234}]\n"
    "            resources: {limits: {nvidia.com/gpu: 2, cpu: 1}, requests: {memory: 1Gi}}\n"
    "            envFrom: [{configMapRef: {name: c}, prefix: P_}, {secretRef: {name: s}}]\n"
    "            env:\n"
    "            - {name: ID, valueFrom: {fieldRef: {fieldPath: \"metadata.labels['l']\"}}}\n"
    "            - {name: UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}\n"
    "            - {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}\n"
    "            - {name: KEY, valueFrom: {secretKeyRef: {name: s, key: t}}}\n"
    "---\n"
    "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: ml}, data: {a: b}}\n"
    "---\n"
    "{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: ml}, data: {t: aHVzaA==}, stringData: {u: "
    "v}}\n"
    "---\n"
    "{apiVersion: v1, kind: Service, metadata: {name: other}}\n";

static int build(const char *text, struct local_job *job, struct problems *problems, struct muster_error *err)
{
    struct documents documents = {0};
    const struct manifest_settings settings = {.command = {.program = "/m"}, .machine = {"node", 4, 1 << 30}};
    int result = documents_add_text(&documents, "t.yaml", text, strlen(text), err);
    if (!result)
        result = manifest_build(&documents, &settings, job, problems, err);
    documents_free(&documents); /* the job must not lean on them */
    return result;
}

static void a_job_with_everything(void **state)
{
    (void)state;
    struct local_job job = {0};
    struct problems problems = {0};
    struct muster_error err = {0};
    assert_int_equal(build(everything, &job, &problems, &err), 0);
    assert_int_equal(problems.errors, 0);
    assert_string_equal(job.name, "all");
    assert_string_equal(job.namespace_, "ml");
    assert_true(job.elastic && job.min_replicas == 1 && job.max_replicas == 2 && job.suspended);
    assert_true(job.clean_policy == LOCAL_CLEAN_ALL && job.backoff_limit == 3 && job.active_deadline_s == 60);
    assert_true(job.pod_count == 2 && job.port == 1234 && job.replicas[LOCAL_MASTER].count == 0);
    assert_int_equal(job.replicas[LOCAL_WORKER].restart_policy, LOCAL_RESTART_EXIT_CODE);
    const struct local_pod *pod = &job.pods[1];
    assert_string_equal(pod->name, "all-worker-1");
    assert_string_equal(pod->hostname, "box");
    assert_string_equal(pod->address, "127.77.0.2");
    assert_string_equal(pod->working_dir, "/tmp");
    assert_true(pod->type == LOCAL_WORKER && pod->index == 1 && pod->gpus == 2 && pod->grace_s == 5);
    static const char *const command[] = {"/m", "run", "--id=m", "x.py"};
    for (int i = 0; i < 4; i++)
        assert_string_equal(pod->command[i], command[i]);
    assert_null(pod->command[4]);
    static const char *const env[][2] = {{"P_a", "b"},
                                         {"t", "hush"},
                                         {"u", "v"},
                                         {"KEY", "hush"},
                                         {"CPU", "1"},
                                         {"PET_NNODES", "1:2"},
                                         {"PET_RDZV_CONF", "k=v"},
                                         {"PET_STANDALONE", ""}};
    for (size_t i = 0; i < sizeof env / sizeof *env; i++)
        assert_string_equal(text_list_value(pod->env, env[i][0]), env[i][1]);
    assert_non_null(strstr(job.warnings, "spec.surprise: unknown field"));
    assert_non_null(strstr(job.warnings, "Service other is left aside"));
    local_job_free(&job);
    problems_free(&problems);
}

/* All of a job that a fault could leave out. */
static uint64_t digest_of(const struct local_job *job)
{
    struct walk walk = walk_begin(1);
    walk_saw_text(&walk, job->name);
    walk_saw_number(&walk, job->pod_count + job->spare_count);
    for (int i = 0; i < job->pod_count + job->spare_count; i++) {
        const struct local_pod *pod = &job->pods[i];
        walk_saw_text(&walk, pod->name);
        walk_saw_text(&walk, pod->hostname);
        walk_saw_text(&walk, pod->address);
        walk_saw_text(&walk, pod->working_dir);
        for (char **text = pod->env; text && *text; text++)
            walk_saw_text(&walk, *text);
        for (char **text = pod->command; text && *text; text++)
            walk_saw_text(&walk, *text);
    }
    return walk.digest;
}

/* A JobSet with volumes, and a TrainJob. */
static const char batch[] =
    "{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: s}, spec: {replicatedJobs: [\n"
    "{name: w, replicas: 2, template: {spec: {completions: 2, podFailurePolicy: {rules: [{action: FailJob,\n"
    "onExitCodes: {operator: In, values: [2]}}]}, template: {spec: {restartPolicy: Never, containers: [\n"
    "{name: t, image: i, command: [torchrun, --nnodes=1], volumeMounts: [{name: e, mountPath: /a/b},\n"
    "{name: c, mountPath: /c, subPath: k}, {name: p, mountPath: /p}]}], volumes: [{name: e, emptyDir: {}},\n"
    "{name: c, configMap: {name: m}}, {name: p, persistentVolumeClaim: {claimName: x}}]}}}}}]}}\n---\n"
    "{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {k: v}}\n";
static const char train[] =
    "{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, metadata: {name: t}, spec: {runtimeRef:\n"
    "{name: torch-distributed}, trainer: {numNodes: 2, command: [tune, run], args: [model.lora]}}}\n";

/* Rules, claims of templates, dependencies, attempts, a Job's own policies. */
static const char rules[] = "{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: s}, spec: "
                            "{failurePolicy: {maxRestarts: 1,\n"
                            "rules: [{name: r, action: RestartJob, targetReplicatedJobs: [w], "
                            "onJobFailureReasons: [DeadlineExceeded],\n"
                            "onJobFailureMessagePatterns: [\"a.*\"]}]}, volumeClaimPolicies: [{templates: "
                            "[{metadata: {name: q}}]}],\n"
                            "replicatedJobs: [{name: v, template: {spec: {template: {spec: {containers: "
                            "[{name: t, image: i, command: [x]}]}}}}},\n"
                            "{name: w, groupName: g, dependsOn: [{name: v, status: Ready}], template: {spec: "
                            "{completions: 2, parallelism: 2,\n"
                            "backoffLimitPerIndex: 1, successPolicy: {rules: [{succeededIndexes: \"0-1\"}]}, "
                            "template: {spec: {restartPolicy:\n"
                            "Never, hostAliases: [{ip: 10.0.0.1, hostnames: [db]}], containers: [{name: t, "
                            "image: i, command: [x, $(A)], env:\n"
                            "[{name: A, valueFrom: {fieldRef: {fieldPath: "
                            "\"metadata.labels['jobset.sigs.k8s.io/restart-attempt']\"}}}],\n"
                            "volumeMounts: [{name: q, mountPath: /q}, {name: d, mountPath: /d}]}], volumes: "
                            "[{name: d, downwardAPI: {items:\n"
                            "[{path: l, fieldRef: {fieldPath: metadata.labels}}]}}]}}}}}]}}\n";
static const char patched[] =
    "{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, metadata: {name: t}, spec: {runtimeRef:\n"
    "{name: torch-distributed}, trainer: {command: [x]}, runtimePatches: [{manager: m, trainingRuntimeSpec: "
    "{template:\n"
    "{spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: {containers: [{name: node, "
    "env: [{name: A,\n"
    "value: b}], volumeMounts: [{name: v, mountPath: /v}]}], volumes: [{name: v, emptyDir: "
    "{}}]}}}}}]}}}}]}}\n";

struct swept {
    const char *text;
    uint64_t whole; /* 0: not known yet */
};

static int build_everything(void *context)
{
    struct swept *swept = context;
    struct local_job job = {0};
    struct problems problems = {0};
    struct muster_error err = {0};
    uint64_t *whole = &swept->whole;
    int result = build(swept->text, &job, &problems, &err);
    if (result < 0)
        assert_true(err.code == MUSTER_E_NOMEM && !job.pods);
    else if (problems.fatal)
        result = -1; /* a Secret that could not be read */
    else if (*whole)
        assert_true(digest_of(&job) == *whole);
    else
        *whole = digest_of(&job);
    local_job_free(&job);
    problems_free(&problems);
    return result;
}

static void no_memory(void **state)
{
    (void)state;
    struct swept texts[] = {{everything, 0}, {batch, 0}, {train, 0}, {rules, 0}, {patched, 0}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        assert_int_equal(build_everything(&texts[i]), 0);
        faults_sweep_absorbed(build_everything, &texts[i]); /* a warning's text at most is absorbed */
    }
}

static void volumes_and_groups(void **state)
{
    (void)state;
    struct local_job job = {0};
    struct problems problems = {0};
    struct muster_error err = {0};
    assert_int_equal(build(batch, &job, &problems, &err), 0);
    assert_true(job.kind == LOCAL_JOBSET && job.group_count == 2 && job.pod_count == 4);
    assert_string_equal(job.groups[1].name, "s-w-1");
    assert_string_equal(job.pods[3].hostname, "s-w-1-1");
    assert_string_equal(job.pods[3].subdomain, "s");
    assert_int_equal(job.groups[0].rules[0].codes[0], 2);
    assert_int_equal(job.volumes.count, 3); /* pods of a template share them */
    assert_int_equal(job.pods[3].mount_count, 3);
    assert_string_equal(local_volume_file(&job.volumes.list[1], "k")->data, "v");
    const char *rest;
    assert_string_equal(local_mount_of(job.pods[0].mounts, 3, "/a/b/x/y", &rest)->path, "/a/b");
    assert_string_equal(rest, "x/y");
    assert_null(local_mount_of(job.pods[0].mounts, 3, "/a/bc", &rest));
    assert_non_null(strstr(job.apart, "4 pods are 4 worlds apart (--nnodes=1)"));
    local_job_free(&job);
    problems_free(&problems);
}

static void rules_and_patches(void **state)
{
    (void)state;
    struct local_job job = {0};
    struct problems problems = {0};
    struct muster_error err = {0};
    assert_int_equal(build(rules, &job, &problems, &err), 0);
    assert_int_equal(problems.errors, 0);
    const struct local_restart_rule *rule = &job.restart_rules[0];
    assert_true(rule->action == LOCAL_RESTART_JOB && rule->targets[1] && !rule->targets[0]);
    assert_true(rule->reasons == 1u << LOCAL_FAILED_DEADLINE && !strcmp(rule->patterns[0], "a.*"));
    const struct local_group *group = &job.groups[1];
    assert_true(group->per_index && group->index_limit == 1 && group->success[0].indexes[1]);
    assert_true(group->after_count == 1 && group->after[0].ready && group->after[0].number == 0);
    const struct local_pod *pod = &job.pods[2];
    assert_string_equal(pod->command[1], "0");
    char *third = local_attempt_text(pod->command_of_attempt[1], 3, 0);
    assert_string_equal(third, "3");
    mem_free(third);
    assert_string_equal(pod->aliases[0], "10.0.0.1 db");
    assert_string_equal(job.volumes.list[pod->mounts[0].volume].source, "q-s");
    local_job_free(&job);
    problems_free(&problems);

    assert_int_equal(build(patched, &job, &problems, &err), 0);
    assert_string_equal(text_list_value(job.pods[0].env, "A"), "b");
    assert_string_equal(job.pods[0].mounts[0].path, "/v");
    local_job_free(&job);
    problems_free(&problems);
}

/* A thousand pods with a large environment each are more than a machine should be asked for. */
static void what_costs_too_much_is_rejected(void **state)
{
    (void)state;
    struct buffer text = {0};
    struct local_job job = {0};
    struct problems problems = {0};
    struct muster_error err = {0};
    static const char head[] =
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: big}\nspec:\n"
        "  pytorchReplicaSpecs:\n    Worker:\n      replicas: %d\n      template: {spec: "
        "{containers: [{name: pytorch, image: i, command: [x], env: [";
    buffer_printf(&text, head, 1000);
    for (int i = 0; i < 1000; i++)
        buffer_printf(&text, "{name: V%d, value: \"%0100d\"}, ", i, i);
    buffer_text(&text, "]}]}}\n");
    assert_int_equal(build(text.data, &job, &problems, &err), -1);
    assert_int_equal(err.code, MUSTER_E_LIMIT);
    problems_free(&problems);
    buffer_clear(&text);
    buffer_printf(&text, head, 1001);
    buffer_text(&text, "]}]}}\n");
    assert_int_equal(build(text.data, &job, &problems, &err), 0);
    assert_int_equal(problems.fatal, 1);
    assert_non_null(strstr(problems.list[0].text, "1001 pods are more than the 1000"));
    problems_free(&problems);
    buffer_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantities),
        cmocka_unit_test(volumes_and_groups),
        cmocka_unit_test(rules_and_patches),
        cmocka_unit_test(variables),
        cmocka_unit_test(environments_are_bounded),
        cmocka_unit_test(entrypoints),
        cmocka_unit_test(problems_are_said_once_and_counted),
        cmocka_unit_test(a_job_with_everything),
        cmocka_unit_test(no_memory),
        cmocka_unit_test(what_costs_too_much_is_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
