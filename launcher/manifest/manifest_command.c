/* manifest_command.c - see manifest_command.h: flags, their checks, the job's secret. */
#include "launcher/manifest/manifest_command.h"

#include <ctype.h>
#include <string.h>
#include <sys/random.h>

#include "launcher/local/pod/quantity.h"
#include "launcher/manifest/manifest_options.h"
#include "proto/base/error.h"
#include "proto/exit_code.h"
#include "rendezvous/security/secret_file.h"

enum { FILE_LIMIT = 256 << 10, NAME_LIMIT = 40, MIN_GRACE_S = MANIFEST_GRACE_MARGIN_S + 1 };

#define AT(member) KNOB_OFFSET(manifest_options, member)

static const char what[] = "What", pod[] = "Each node", rest[] = "Other";
static const char *const kinds[] = {"pytorchjob", "trainjob", "job", "jobset", "slurm", NULL};

static const struct knob rows[] = {
    {.name = "kind",
     .letter = 'k',
     .type = KNOB_CHOICE,
     .offset = AT(kind),
     .initial = "pytorchjob",
     .choices = kinds,
     .section = what,
     .help = "pytorchjob: Kubeflow's training operator; trainjob: Kubeflow Trainer, with a runtime of its "
             "own; job: an "
             "Indexed Job, no operator needed; jobset: a JobSet; slurm: a script for sbatch"},
    {.name = "nodes",
     .letter = 'N',
     .type = KNOB_INT,
     .offset = AT(nodes),
     .initial = "1",
     .min = 1,
     .max = 16384,
     .section = what,
     .help = "pods, or nodes of Slurm, with one agent each"},
    {.name = "image",
     .type = KNOB_TEXT,
     .offset = AT(image),
     .section = what,
     .help = "image of the program; Slurm: --container-image of srun, none by default"},
    {.name = "name",
     .type = KNOB_TEXT,
     .offset = AT(name),
     .initial = "train",
     .section = what,
     .help = "name of the job"},
    {.name = "namespace",
     .type = KNOB_TEXT,
     .offset = AT(namespace_),
     .section = what,
     .help = "namespace of all objects; without it, kubectl's own"},
    {.name = "queue",
     .type = KNOB_TEXT,
     .offset = AT(queue),
     .section = what,
     .help = "local queue of Kueue that admits the job"},
    {.name = "gpus",
     .type = KNOB_INT,
     .offset = AT(gpus),
     .initial = "0",
     .max = 1024,
     .section = pod,
     .help = "NVIDIA GPUs of a node"},
    {.name = "nproc-per-node",
     .type = KNOB_INT,
     .offset = AT(workers),
     .initial = "0",
     .max = 4096,
     .section = pod,
     .help = "workers of a node; 0: one for each GPU, at least one"},
    {.name = "cpus",
     .type = KNOB_INT,
     .offset = AT(cpus),
     .initial = "0",
     .max = 100000,
     .section = pod,
     .help = "cores of a node; 0: not limited"},
    {.name = "memory",
     .type = KNOB_TEXT,
     .offset = AT(memory),
     .section = pod,
     .help = "memory of a node, as the scheduler writes it: 64Gi (Slurm: 64G)"},
    {.name = "shm",
     .type = KNOB_TEXT,
     .offset = AT(shm),
     .initial = "8Gi",
     .section = pod,
     .help = "size of /dev/shm in pods"},
    {.name = "env",
     .letter = 'e',
     .type = KNOB_LIST,
     .offset = AT(env),
     .section = pod,
     .help = "NAME=value for the program; may be repeated"},
    {.name = "claim",
     .type = KNOB_LIST,
     .offset = AT(claims),
     .section = pod,
     .help = "CLAIM=PATH: a PersistentVolumeClaim and where pods mount it; may be repeated"},
    {.name = "max-restarts",
     .type = KNOB_INT,
     .offset = AT(restarts),
     .initial = "3",
     .max = 10000,
     .section = rest,
     .help = "failures of the whole job after which it is started again"},
    {.name = "grace-period",
     .type = KNOB_DOUBLE,
     .offset = AT(grace_s),
     .initial = "60",
     .min = MIN_GRACE_S,
     .max = 86400,
     .unit = "s",
     .section = rest,
     .help = "from the notice that a node is taken away to its end; workers get 15 s less"},
    {.name = "metrics-port",
     .type = KNOB_INT,
     .offset = AT(metrics_port),
     .initial = "9090",
     .max = 65535,
     .section = rest,
     .help = "port for /metrics and /healthz of every agent; 0: none"},
    {.name = "secret",
     .type = KNOB_TEXT,
     .offset = AT(secret),
     .section = rest,
     .help = "name of a Secret that is there already; without it one is made in the manifest"},
    {.name = "launcher-image",
     .type = KNOB_TEXT,
     .offset = AT(launcher_image),
     .initial = "registry.example.com/muster:latest",
     .section = rest,
     .help = "image that holds /opt/muster, which each pod copies before it starts"},
    KNOB_HELP_ROW(AT(help), rest),
};
static const struct knob_table table = {rows, sizeof rows / sizeof *rows};

const struct command_page manifest_page = {
    .name = "muster manifest",
    .brief = "writes a manifest, or a script for Slurm, that runs a program on several nodes",
    .description = "Writes a manifest that runs a program under muster: with the job's secret, shared "
                   "memory, grace times, "
                   "metrics and a\nliveness probe in place. muster local -f FILE tries it without a cluster, "
                   "kubectl apply -f "
                   "FILE starts it.\n  muster manifest --kind=pytorchjob --nodes=4 --gpus=8 "
                   "--image=pytorch/pytorch:latest "
                   "-- train.py > job.yaml",
    .words = "[--] program [arguments]",
    .exit_codes = "0 written; 1 no memory; 2 bad usage",
    .table = &table};

/* --- checks --- */

static bool is_label(const char *text, size_t limit)
{
    size_t length = strlen(text);
    for (const char *at = text; *at; at++)
        if (!(*at >= 'a' && *at <= 'z') && !isdigit((unsigned char)*at) &&
            (*at != '-' || at == text || !at[1]))
            return false;
    return length && length <= limit && text[0] >= 'a';
}

static int check_label(const char *flag, const char *text, struct muster_error *err)
{
    if (!text || is_label(text, NAME_LIMIT))
        return 0;
    return error_set(
        err, MUSTER_E_INVALID,
        "--%s: '%.64s' is not a name: a lower-case letter, then at most %d letters, digits and '-'", flag,
        text, NAME_LIMIT - 1);
}

/* Letters, digits and what quantities and names of images have: nothing that could end a YAML word. */
static int check_word(const char *flag, const char *text, struct muster_error *err)
{
    static const char good[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-/:@+";
    if (!text || (*text && strspn(text, good) == strlen(text)))
        return 0;
    if (!*text)
        return error_set(err, MUSTER_E_INVALID, "--%s is empty", flag);
    return error_set(err, MUSTER_E_INVALID, "--%s: '%.100s' has a character that does not belong there", flag,
                     text);
}

/* Of --mem: a number, and K, M, G or T; without one it is megabytes, and 0 is all that a node has. */
static bool is_slurm_memory(const char *text)
{
    const size_t digits = strspn(text, "0123456789");
    return digits && (!text[digits] || (strchr("KMGT", text[digits]) && !text[digits + 1]));
}

/* Bytes: what an API server would refuse, and what is too little for any program. */
static int check_bytes(const struct manifest_options *o, const char *flag, const char *text,
                       struct muster_error *err)
{
    enum { LEAST = 1 << 20 };
    quantity_thousandths amount;
    if (!text || (o->kind == MANIFEST_SLURM && is_slurm_memory(text)))
        return 0;
    if (o->kind == MANIFEST_SLURM)
        return error_set(err, MUSTER_E_INVALID, "--%s: '%.64s' is not a size of Slurm's: write 64G", flag,
                         text);
    if (!quantity_parse(text, &amount))
        return error_set(err, MUSTER_E_INVALID, "--%s: '%.64s' is not a quantity of Kubernetes: write 64Gi",
                         flag, text);
    if (amount < (quantity_thousandths)LEAST * 1000)
        return error_set(err, MUSTER_E_INVALID,
                         "--%s: '%.64s' is less than 1Mi: without a unit it is bytes; write 64Gi", flag,
                         text);
    return 0;
}

/* Whether two entries name the same variable, or the same folder. */
static bool same_target(const char *a, const char *b, bool claims)
{
    const size_t name = strcspn(a, "=");
    return claims ? !strcmp(strchr(a, '='), strchr(b, '=')) : name == strcspn(b, "=") && !strncmp(a, b, name);
}

/* A pod with two of a name, or two mounts at one path, is refused, or has the last one. */
static int check_targets(const char *flag, char *const *entries, bool claims, struct muster_error *err)
{
    static const char *const own[] = {"=/opt/muster", "=/dev/shm", "=/etc/muster-secret", "=/"};
    for (char *const *entry = entries; entry && *entry; entry++) {
        const char *path = strchr(*entry, '=');
        for (char *const *other = entries; other < entry; other++)
            if (same_target(*entry, *other, claims))
                return error_set(err, MUSTER_E_INVALID, "--%s: '%.200s' and '%.200s' are for the same %s",
                                 flag, *other, *entry, claims ? "path" : "variable");
        for (size_t i = 0; claims && i < sizeof own / sizeof *own; i++)
            if (!strcmp(path, own[i]))
                return error_set(err, MUSTER_E_INVALID,
                                 "--%s: '%.200s': no claim can be at %s: choose another path", flag, *entry,
                                 path + 1);
        if (claims && strchr(path, ':'))
            return error_set(err, MUSTER_E_INVALID, "--%s: '%.200s': a path of a pod has no ':'", flag,
                             *entry);
    }
    return 0;
}

static int check_list(const char *flag, char *const *entries, bool claims, struct muster_error *err)
{
    for (; entries && *entries; entries++) {
        size_t length = strcspn(*entries, "=");
        bool name = length > 0 && (*entries)[length] && !isdigit((unsigned char)**entries);
        for (size_t i = 0; name && i < length; i++)
            name = isalnum((unsigned char)(*entries)[i]) || strchr(claims ? "-." : "_", (*entries)[i]);
        if (!name || (claims && (*entries)[length + 1] != '/'))
            return error_set(err, MUSTER_E_INVALID, "--%s: '%.200s' is not %s", flag, *entries,
                             claims ? "CLAIM=PATH with a path from / on" : "NAME=value");
    }
    return 0;
}

static int manifest_check(const struct manifest_options *o, struct muster_error *err)
{
    if (!o->program || !*o->program)
        return error_set(err, MUSTER_E_INVALID,
                         "which program? Put it after the flags: muster manifest --nodes=2 -- train.py");
    if (!o->image && o->kind != MANIFEST_SLURM)
        return error_set(err, MUSTER_E_INVALID,
                         "--image is needed: the image that holds the program and its modules");
    if (o->claims && o->kind == MANIFEST_SLURM)
        return error_set(err, MUSTER_E_INVALID,
                         "--claim is for pods: under Slurm all nodes see the same folders");
    return check_label("name", o->name, err) < 0 || check_label("namespace", o->namespace_, err) < 0 ||
                   check_label("queue", o->queue, err) < 0 || check_label("secret", o->secret, err) < 0 ||
                   check_word("image", o->image, err) < 0 ||
                   check_word("launcher-image", o->launcher_image, err) < 0 ||
                   check_word("memory", o->memory, err) < 0 || check_word("shm", o->shm, err) < 0 ||
                   check_bytes(o, "memory", o->memory, err) < 0 ||
                   (o->kind != MANIFEST_SLURM && check_bytes(o, "shm", o->shm, err) < 0) ||
                   check_list("env", o->env, false, err) < 0 ||
                   check_list("claim", o->claims, true, err) < 0 ||
                   check_targets("env", o->env, false, err) < 0 ||
                   check_targets("claim", o->claims, true, err) < 0
               ? -1
               : 0;
}

/* --- the command --- */

static int make_secret(char *line, struct muster_error *err)
{
    struct job_secret secret;
    if (getrandom(secret.bytes, sizeof secret.bytes, 0) != sizeof secret.bytes)
        return error_errno(err, "cannot get %zu random bytes", sizeof secret.bytes);
    secret_format(&secret, line);
    secret_wipe(&secret, sizeof secret);
    return 0;
}

static int carry_out(const struct flag_command *command, struct buffer *out, struct buffer *complaint,
                     struct muster_error *err)
{
    const struct manifest_options *o = command->options;
    char line[SECRET_TEXT_SIZE];
    (void)complaint;
    bool with_secret = manifest_has_secret(o) && !o->secret && o->kind != MANIFEST_SLURM;
    if (manifest_check(o, err) < 0)
        return EXIT_CODE_USAGE;
    if (with_secret && make_secret(line, err) < 0)
        return EXIT_CODE_FAILURE;
    if (!buffer_reserve(out, FILE_LIMIT)) /* growing would leave copies of the secret in memory */
        return error_set(err, MUSTER_E_NOMEM, "no memory"), EXIT_CODE_FAILURE;
    int result = manifest_write(o, with_secret ? line : NULL, out);
    secret_wipe(line, sizeof line);
    return result < 0 ? error_set(err, MUSTER_E_NOMEM, "no memory"), EXIT_CODE_FAILURE : EXIT_CODE_OK;
}

int manifest_command(int argc, char *const argv[], struct buffer *out, struct buffer *complaint)
{
    struct manifest_options options = {0};
    uint8_t sources[sizeof rows / sizeof *rows] = {0};
    const struct flag_command command = {&manifest_page, &options, &options.help, sources, carry_out};
    return flag_command_words(&command, argc, argv, &options.program, out, complaint);
}
