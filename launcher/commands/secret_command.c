/* secret_command.c - see commands.h. */
#include "launcher/commands/commands.h"

#include <ctype.h>
#include <string.h>
#include <sys/random.h>

#include "launcher/commands/flag_command.h"
#include "proto/base/error.h"
#include "proto/exit_code.h"
#include "rendezvous/security/secret_file.h"

enum { SUBDOMAIN_LIMIT = 253, LABEL_LIMIT = 63, MANIFEST_LIMIT = 1024 };
enum output { OUTPUT_LINE, OUTPUT_KUBERNETES };

struct options {
    int output;
    char *name, *namespace_, *check;
    bool help;
};

#define AT(member) KNOB_OFFSET(options, member)

static const char *const outputs[] = {"text", "kubernetes", NULL};
static const struct knob rows[] = {
    {.name = "output",
     .letter = 'o',
     .type = KNOB_CHOICE,
     .offset = AT(output),
     .initial = "text",
     .choices = outputs,
     .section = "Flags",
     .help = "text: one line, for a file; kubernetes: a manifest, for kubectl apply -f -"},
    {.name = "name",
     .type = KNOB_TEXT,
     .offset = AT(name),
     .initial = "muster-secret",
     .section = "Flags",
     .help = "name of the Secret with --output=kubernetes; its key is called secret"},
    {.name = "namespace",
     .type = KNOB_TEXT,
     .offset = AT(namespace_),
     .section = "Flags",
     .help = "namespace of the Secret; without it, kubectl's own"},
    {.name = "check",
     .type = KNOB_TEXT,
     .text = KNOB_FILE,
     .offset = AT(check),
     .section = "Flags",
     .help = "make nothing: check whether this file holds a job secret, and its permissions"},
    KNOB_HELP_ROW(AT(help), "Flags"),
};
static const struct knob_table table = {rows, sizeof rows / sizeof *rows};

/* Lower-case letters, digits and dashes, and dots where a subdomain is meant; a letter or digit at both ends
 * of every part. */
static bool is_dns_name(const char *text, size_t limit, bool dots)
{
    size_t length = strlen(text);
    bool inside = false; /* the character before may not be next to a dot or an end */
    if (length == 0 || length > limit)
        return false;
    for (const char *at = text; *at; at++) {
        bool alnum = isdigit((unsigned char)*at) || (*at >= 'a' && *at <= 'z');
        if (!alnum && !(inside && *at == '-') && !(inside && dots && *at == '.' && at[-1] != '-'))
            return false;
        inside = *at != '.';
    }
    return text[length - 1] != '-' && text[length - 1] != '.';
}

int secret_manifest(const struct job_secret *secret, const char *name, const char *namespace_,
                    struct buffer *out, struct muster_error *err)
{
    char line[SECRET_TEXT_SIZE];
    if (!is_dns_name(name, SUBDOMAIN_LIMIT, true))
        return error_set(err, MUSTER_E_INVALID,
                         "--name: '%.64s' is not a name that Kubernetes accepts: lower-case letters, digits, "
                         "'-' and '.', at most %d",
                         name, SUBDOMAIN_LIMIT);
    if (namespace_ && !is_dns_name(namespace_, LABEL_LIMIT, false))
        return error_set(err, MUSTER_E_INVALID,
                         "--namespace: '%.64s' is not a name that Kubernetes accepts: lower-case letters, "
                         "digits and '-', at most %d",
                         namespace_, LABEL_LIMIT);
    secret_format(secret, line);
    buffer_printf(out, "apiVersion: v1\nkind: Secret\nmetadata:\n  name: \"%s\"\n", name);
    if (namespace_)
        buffer_printf(out, "  namespace: \"%s\"\n", namespace_);
    buffer_printf(out, "type: Opaque\nstringData:\n  secret: \"%s\"\n", line);
    secret_wipe(line, sizeof line);
    return out->failed ? error_set(err, MUSTER_E_NOMEM, "no memory") : 0;
}

static int make(const struct options *options, struct buffer *out, struct muster_error *err)
{
    struct job_secret secret;
    char line[SECRET_TEXT_SIZE];
    int failed = 0;
    /* growing would leave copies in memory */
    if (!buffer_reserve(out, MANIFEST_LIMIT))
        return error_set(err, MUSTER_E_NOMEM, "no memory");
    if (getrandom(secret.bytes, sizeof secret.bytes, 0) != sizeof secret.bytes)
        return error_errno(err, "cannot get %zu random bytes", sizeof secret.bytes);
    if (options->output == OUTPUT_KUBERNETES) {
        failed = secret_manifest(&secret, options->name, options->namespace_, out, err);
    } else {
        secret_format(&secret, line);
        failed = buffer_printf(out, "%s\n", line);
        secret_wipe(line, sizeof line);
        if (failed)
            error_set(err, MUSTER_E_NOMEM, "no memory");
    }
    secret_wipe(&secret, sizeof secret);
    return failed;
}

static int check(const char *path, struct buffer *out, struct buffer *complaint, struct muster_error *err)
{
    struct job_secret secret;
    enum secret_exposure exposure;
    mode_t mode;
    if (secret_file_read(path, &secret, &exposure, &mode, err))
        return -1;
    secret_wipe(&secret, sizeof secret);
    if (exposure != SECRET_PRIVATE)
        buffer_printf(complaint, "muster secret: warning: %s has mode %04o, %s: chmod 600 makes it private\n",
                      path, (unsigned)mode, secret_exposure_words(exposure));
    buffer_printf(out, "%s holds a job secret\n", path);
    return 0;
}

const struct command_page secret_page = {
    .name = "muster secret",
    .brief = "makes the secret that protects a job of several nodes",
    .description = "Makes the secret of a job: 256 random bits in one line, \"muster-secret-1:\" and 64 "
                   "hexadecimal digits.\nGive the same file to all nodes (muster run --secret-file): it is "
                   "then required to join the job or to\nserve it, and messages between agents are "
                   "encrypted. (umask 077; muster secret > job.secret)",
    .exit_codes = "0 made, or --check found one; 1 --check found none; 2 bad usage",
    .table = &table};

static int carry_out(const struct flag_command *command, struct buffer *out, struct buffer *complaint,
                     struct muster_error *err)
{
    const struct options *options = command->options;
    if (options->check)
        return check(options->check, out, complaint, err) < 0 ? EXIT_CODE_FAILURE : EXIT_CODE_OK;
    if (make(options, out, err) == 0)
        return EXIT_CODE_OK;
    return err->code == MUSTER_E_INVALID ? EXIT_CODE_USAGE : EXIT_CODE_FAILURE;
}

int secret_command(int argc, char *const argv[], struct buffer *out, struct buffer *complaint)
{
    struct options options = {0};
    uint8_t sources[sizeof rows / sizeof *rows] = {0};
    const struct flag_command command = {&secret_page, &options, &options.help, sources, carry_out};
    return flag_command(&command, argc, argv, out, complaint);
}
