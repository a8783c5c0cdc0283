/* manifest_write.c - see manifest_options.h: the objects of each kind around their pod, and the script for
 * Slurm. */
#include <stdio.h>
#include <string.h>

#include "launcher/manifest/manifest_options.h"

static int manifest_write_slurm(const struct manifest_options *o, struct buffer *out);

enum { NAME_SIZE = 80 };

int64_t manifest_workers(const struct manifest_options *o)
{
    return o->workers ? o->workers : o->gpus ? o->gpus : 1;
}

bool manifest_has_secret(const struct manifest_options *o)
{
    return o->nodes > 1;
}

void manifest_secret_name(const struct manifest_options *o, struct buffer *out)
{
    buffer_printf(out, "%s%s", o->secret ? o->secret : o->name, o->secret ? "" : "-secret");
}

/* apiVersion, kind and metadata. */
static void head(const struct manifest_options *o, const char *api_version, const char *kind,
                 const char *name, bool queued, struct buffer *out)
{
    buffer_printf(out, "apiVersion: %s\nkind: %s\nmetadata:\n  name: %s\n", api_version, kind, name);
    if (o->namespace_)
        buffer_printf(out, "  namespace: %s\n", o->namespace_);
    if (queued && o->queue)
        buffer_printf(out, "  labels:\n    kueue.x-k8s.io/queue-name: %s\n", o->queue);
}

static void write_secret(const struct manifest_options *o, const char *secret, struct buffer *out)
{
    scope_buffer name = {0};
    manifest_secret_name(o, &name);
    buffer_text(out, "# Only pods with it can join the job. Made for this file: do not commit it.\n");
    head(o, "v1", "Secret", name.data ? name.data : "", false, out);
    buffer_printf(out, "type: Opaque\nstringData:\n  secret: \"%s\"\n---\n", secret);
}

/* --- kinds --- */

static void write_replica(const struct manifest_options *o, const char *type, int64_t count,
                          struct buffer *out)
{
    const struct manifest_place place = {0};
    buffer_printf(
        out,
        "    %s:\n      replicas: %lld\n      restartPolicy: ExitCode # codes from 128 are tried again\n"
        "      template:\n",
        type, (long long)count);
    manifest_pod(o, "pytorch", NULL, NULL, &place, 8, out);
}

static void write_pytorchjob(const struct manifest_options *o, struct buffer *out)
{
    head(o, "kubeflow.org/v1", "PyTorchJob", o->name, true, out);
    buffer_printf(
        out,
        "spec:\n  nprocPerNode: \"%lld\"\n  runPolicy:\n    cleanPodPolicy: None\n  pytorchReplicaSpecs:\n",
        (long long)manifest_workers(o));
    write_replica(o, "Master", 1, out);
    if (o->nodes > 1)
        write_replica(o, "Worker", o->nodes - 1, out);
}

/* A Job's failure policy, indented: failures that a retry does not mend are final. */
static void write_batch(const struct manifest_options *o, const char *container, int indent,
                        struct buffer *out)
{
    buffer_printf(
        out,
        "%*scompletionMode: Indexed\n%*scompletions: %lld\n%*sparallelism: %lld\n%*sbackoffLimit: %lld\n",
        indent, "", indent, "", (long long)o->nodes, indent, "", (long long)o->nodes, indent, "",
        (long long)(o->nodes * (o->restarts + 1)));
    buffer_printf(
        out, "%*spodFailurePolicy:\n%*srules:\n%*s- action: FailJob # bad usage, not executable, not found\n",
        indent, "", indent + 2, "", indent + 4, "");
    buffer_printf(out, "%*sonExitCodes: {containerName: %s, operator: In, values: [2, 126, 127]}\n",
                  indent + 6, "", container);
    buffer_printf(out,
                  "%*s- action: Ignore # the node was drained\n%*sonPodConditions: [{type: DisruptionTarget, "
                  "status: \"True\"}]\n%*stemplate:\n",
                  indent + 4, "", indent + 6, "", indent, "");
}

static void write_job(const struct manifest_options *o, struct buffer *out)
{
    char master[2 * NAME_SIZE];
    const struct manifest_place place = {true, master};
    (void)snprintf(master, sizeof master, "%s-0.%s", o->name, o->name);
    head(o, "v1", "Service", o->name, false, out);
    buffer_printf(
        out,
        "spec:\n  clusterIP: None\n  publishNotReadyAddresses: true # pods wait for each other's names\n"
        "  selector:\n    batch.kubernetes.io/job-name: %s\n---\n",
        o->name);
    head(o, "batch/v1", "Job", o->name, true, out);
    buffer_text(out, "spec:\n");
    write_batch(o, "trainer", 2, out);
    manifest_pod(o, "trainer", "Never", o->name, &place, 4, out);
}

static void write_jobset(const struct manifest_options *o, struct buffer *out)
{
    char master[2 * NAME_SIZE];
    const struct manifest_place place = {true, master};
    (void)snprintf(master, sizeof master, "%s-node-0-0.%s", o->name, o->name);
    head(o, "jobset.x-k8s.io/v1alpha2", "JobSet", o->name, true, out);
    buffer_printf(
        out,
        "spec:\n  network:\n    enableDNSHostnames: true\n    publishNotReadyAddresses: true\n"
        "  failurePolicy:\n    maxRestarts: %lld\n  replicatedJobs:\n  - name: node\n    replicas: 1\n"
        "    template:\n      spec:\n",
        (long long)o->restarts);
    write_batch(o, "trainer", 8, out);
    manifest_pod(o, "trainer", "Never", NULL, &place, 10, out);
}

/* The runtime is the namespace's own; the TrainJob itself is short. */
static void write_trainjob(const struct manifest_options *o, struct buffer *out)
{
    const struct manifest_place place = {0};
    char runtime[NAME_SIZE];
    (void)snprintf(runtime, sizeof runtime, "%s-runtime", o->name);
    head(o, "trainer.kubeflow.org/v1alpha1", "TrainingRuntime", runtime, false, out);
    buffer_printf(out,
                  "  %s\nspec:\n  mlPolicy:\n    numNodes: %lld\n    torch: {}\n  template:\n    spec:\n     "
                  " replicatedJobs:\n"
                  "      - name: node\n        template:\n          metadata:\n            labels:\n"
                  "              trainer.kubeflow.org/trainjob-ancestor-step: trainer\n          spec:\n     "
                  "       template:\n",
                  "labels: {trainer.kubeflow.org/framework: torch}", (long long)o->nodes);
    manifest_pod(o, "node", NULL, NULL, &place, 14, out);
    buffer_text(out, "---\n");
    head(o, "trainer.kubeflow.org/v1alpha1", "TrainJob", o->name, true, out);
    buffer_printf(
        out,
        "spec:\n  runtimeRef:\n    apiGroup: trainer.kubeflow.org\n    kind: TrainingRuntime\n    name: %s\n"
        "  trainer: # without this section Trainer sets no variables\n    numNodes: %lld\n    "
        "numProcPerNode: %lld\n",
        runtime, (long long)o->nodes, (long long)manifest_workers(o));
}

int manifest_write(const struct manifest_options *o, const char *secret, struct buffer *out)
{
    static void (*const writers[])(const struct manifest_options *, struct buffer *) = {
        [MANIFEST_PYTORCHJOB] = write_pytorchjob,
        [MANIFEST_TRAINJOB] = write_trainjob,
        [MANIFEST_JOB] = write_job,
        [MANIFEST_JOBSET] = write_jobset,
    };
    if (o->kind == MANIFEST_SLURM)
        return manifest_write_slurm(o, out);
    buffer_printf(
        out, "# %lld node%s with %lld worker%s each. Tried without a cluster by: muster local -f FILE%s\n",
        (long long)o->nodes, o->nodes == 1 ? "" : "s", (long long)manifest_workers(o),
        manifest_workers(o) == 1 ? "" : "s", o->gpus ? " --allow-gpu-shortage" : "");
    if (secret)
        write_secret(o, secret, out);
    writers[o->kind](o, out);
    return out->failed ? -1 : 0;
}

/* --- Slurm --- */

/* What Slurm gives the job. */
static void write_request(const struct manifest_options *o, struct buffer *out)
{
    buffer_printf(out,
                  "#!/bin/bash\n#SBATCH --job-name=%s\n#SBATCH --nodes=%lld\n#SBATCH --ntasks-per-node=1 # "
                  "one agent a node\n",
                  o->name, (long long)o->nodes);
    if (o->gpus)
        buffer_printf(out, "#SBATCH --gpus-per-node=%lld\n", (long long)o->gpus);
    if (o->cpus)
        buffer_printf(out, "#SBATCH --cpus-per-task=%lld\n", (long long)o->cpus);
    if (o->memory)
        buffer_printf(out, "#SBATCH --mem=%s\n", o->memory);
    buffer_printf(out,
                  "#SBATCH --signal=TERM@%lld # to the agents, before the time limit: the last checkpoint\n",
                  (long long)o->grace_s);
    buffer_text(out, "#SBATCH --output=%x-%j.log\nset -u\n");
}

/* The batch shell waits for srun also where a signal ends its waiting. */
static int manifest_write_slurm(const struct manifest_options *o, struct buffer *out)
{
    write_request(o, out);
    if (manifest_has_secret(o)) {
        buffer_text(
            out,
            "\n# Only a reader of this file can join the job. The submit folder is one that all nodes see.\n"
            "secret=$(mktemp \"${SLURM_SUBMIT_DIR:-.}/.muster-secret-${SLURM_JOB_ID:-0}-XXXXXX\") || exit\n"
            "trap 'rm -f \"$secret\"' EXIT\n"
            "muster secret > \"$secret\" || exit\n"
            "export MUSTER_SECRET_FILE=\"$secret\"\n");
    }
    buffer_printf(out, "\nexport PET_NPROC_PER_NODE=%lld PET_MAX_RESTARTS=%lld PET_SHUTDOWN_TIMEOUT=%lld\n",
                  (long long)manifest_workers(o), (long long)o->restarts,
                  (long long)o->grace_s - MANIFEST_GRACE_MARGIN_S);
    if (o->metrics_port)
        buffer_printf(out, "export MUSTER_METRICS_PORT=%lld\n", (long long)o->metrics_port);
    for (char *const *entry = o->env; entry && *entry; entry++) {
        buffer_printf(out, "export %.*s=", (int)strcspn(*entry, "="), *entry);
        buffer_shell_word(out, strchr(*entry, '=') + 1);
        buffer_text(out, "\n");
    }
    buffer_text(
        out,
        "\n# The agents find each other by Slurm's variables; all of them end with the job's exit code.\n"
        "srun --kill-on-bad-exit=0 --wait=0");
    if (o->image) {
        buffer_text(out, " --container-image=");
        buffer_shell_word(out, o->image);
    }
    buffer_text(out, " muster run --");
    for (char *const *word = o->program; *word; word++) {
        buffer_text(out, " ");
        buffer_shell_word(out, *word);
    }
    buffer_text(out, " &\nsrun=$!\ntrap 'kill -TERM $srun' TERM INT\nwait $srun\ncode=$?\n"
                     "while kill -0 $srun 2>/dev/null; do wait $srun; code=$?; done\nexit $code\n");
    return out->failed ? -1 : 0;
}
