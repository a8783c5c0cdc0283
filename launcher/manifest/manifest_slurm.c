/* manifest_slurm.c - see manifest_options.h: a script for sbatch, with one agent a node. */
#include <string.h>

#include "launcher/manifest/manifest_options.h"

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
int manifest_write_slurm(const struct manifest_options *o, struct buffer *out)
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
