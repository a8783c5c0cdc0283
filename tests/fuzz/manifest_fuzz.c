/* manifest_fuzz.c - arbitrary bytes as a file for muster local: a job whose pods can be printed, or words
 * that name the fault; never a crash, a leak or a long wait. */
#include <stdlib.h>
#include <string.h>

#include "launcher/local/local_internal.h"
#include "launcher/local/manifest/manifest.h"
#include "tests/fuzz/random_main.h"

static void must(bool holds)
{
    if (!holds)
        abort();
}

static void check_job(const struct local_job *job, bool dry)
{
    must(job->name && *job->name && job->namespace_ && job->pod_count > 0);
    for (int i = 0; i < job->pod_count; i++) {
        const struct local_pod *pod = &job->pods[i];
        must(pod->name && pod->hostname && pod->address && pod->env && pod->gpus >= 0);
        must(dry || (pod->command && pod->command[0]));
        for (char *const *entry = pod->env; *entry; entry++)
            must(**entry != '=' && strchr(*entry, '='));
    }
    struct buffer out = {0};
    must(job->pod_count > 20 || (local_print_json(job, &out) == 0 && local_print_text(job, &out) == 0));
    buffer_free(&out);
}

static void build(const struct documents *documents, bool dry)
{
    static char *const entrypoint[] = {(char *)"python3", (char *)"-u", NULL};
    const struct manifest_settings settings = {
        .command = {dry ? NULL : entrypoint, "/muster", dry},
        .machine = {"node", 4, 1 << 30},
    };
    struct local_job job;
    struct problems problems = {0};
    struct muster_error err = {0};
    int result = manifest_build(documents, &settings, &job, &problems, &err);
    must(result == 0 || err.text[0]);
    must((!problems.fatal || problems.errors) && (!problems.errors || problems.count));
    if (result == 0 && !problems.fatal)
        check_job(&job, dry);
    else
        must(!job.pods && !job.name);
    local_job_free(&job);
    problems_free(&problems);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct documents documents = {0};
    struct muster_error err = {0};
    if (documents_add_text(&documents, "fuzz.yaml", (const char *)data, size, &err) == 0) {
        build(&documents, true);
        build(&documents, false);
    } else {
        must(err.text[0]);
    }
    documents_free(&documents);
    return 0;
}

#ifndef MUSTER_LIBFUZZER
int main(int argc, char **argv)
{
    static const char least[] =
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: j}\n"
        "spec: {pytorchReplicaSpecs: {Master: {replicas: 1, template: {spec: {containers: "
        "[{name: pytorch, image: i}]}}}}}\n";
    static const char set[] =
        "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: s}\nspec: {failurePolicy: "
        "{maxRestarts: 2}, replicatedJobs: [{name: w, replicas: 2, template: {spec: {completions: 2, "
        "podFailurePolicy: {rules: [{action: FailJob, onExitCodes: {operator: In, values: [2]}}]}, template: "
        "{spec: {restartPolicy: Never, containers: [{name: t, image: i, command: [torchrun, --nnodes=1], "
        "volumeMounts: [{name: v, mountPath: /a/b}, {name: c, mountPath: /c, subPath: k}]}], volumes: "
        "[{name: "
        "v, emptyDir: {medium: Memory, sizeLimit: 1Mi}}, {name: c, configMap: {name: m}}]}}}}}]}\n---\n"
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {k: v}}\n";
    static const char train[] =
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: t}\nspec: {runtimeRef: "
        "{name: torch-distributed}, trainer: {numNodes: 2, command: [tune, run], args: [model.lora], env: "
        "[{name: A, value: b}], resourcesPerNode: {limits: {cpu: 2}}}}\n";
    const struct fuzz_seed seeds[] = {
        {least, sizeof least - 1}, {set, sizeof set - 1}, {train, sizeof train - 1}};
    return fuzz_main(argc, argv, seeds, sizeof seeds / sizeof *seeds);
}
#endif
