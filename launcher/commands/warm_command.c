/* warm_command.c - see commands.h. */
#include "launcher/commands/commands.h"

#include <stdlib.h>
#include <unistd.h>

#include "launcher/commands/flag_command.h"
#include "launcher/warm/warm_kept.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/exit_code.h"

enum { PATIENCE_MS = 1000 };

struct options {
    bool stop, help;
};

#define AT(member) KNOB_OFFSET(options, member)

static const struct knob rows[] = {
    {.name = "stop",
     .type = KNOB_BOOL,
     .offset = AT(stop),
     .section = "Flags",
     .help = "end them; jobs that run are not disturbed"},
    KNOB_HELP_ROW(AT(help), "Flags"),
};
static const struct knob_table table = {rows, sizeof rows / sizeof *rows};

const struct command_page warm_page = {
    .name = "muster warm",
    .brief = "shows and ends the templates that muster run --warm-keep has left",
    .description =
        "Shows this user's templates of workers on this machine: process, memory, the jobs that use it, "
        "the\ninterpreter and the imported modules. Each stays until no job has used it for the time that "
        "its last job\ngave with --warm-keep.",
    .exit_codes =
        "0 shown, or ended; 1 one did not answer, or their folder is not this user's alone; 2 bad usage",
    .table = &table};

struct listing {
    bool stop;
    int count;
    struct buffer *out;
};

/* "PID KILOBYTES JOBS INTERPRETER MODULES", or "PID" of a template that ends. */
static void show(void *context, const char *name, const char *answer, int fd)
{
    struct listing *listing = context;
    char *at = (char *)answer;
    (void)name;
    (void)fd;
    const long pid = strtol(at, &at, 10);
    listing->count++;
    if (listing->stop) {
        buffer_printf(listing->out, "template %ld ends\n", pid);
        return;
    }
    const long kilobytes = strtol(at, &at, 10), jobs = strtol(at, &at, 10);
    buffer_printf(listing->out, "template %ld, %ld MB, %ld job%s:%s\n", pid, kilobytes / 1024, jobs,
                  jobs == 1 ? "" : "s", at);
}

static int warm_carry_out(const struct flag_command *command, struct buffer *out, struct buffer *complaint,
                          struct muster_error *err)
{
    const struct options *options = command->options;
    struct listing listing = {.stop = options->stop, .out = out};
    struct warm_folder folder = {.fd = -1};
    char path[PATH_MAX];
    const size_t before = complaint->length;
    warm_folder_path(getenv("XDG_RUNTIME_DIR"), (unsigned)geteuid(), path);
    int result = warm_folder_open(path, false, &folder, err);
    if (result < 0 && err->code != MUSTER_E_NOT_FOUND)
        return EXIT_CODE_FAILURE;
    if (result == 0)
        result = warm_kept_ask_all(&folder, options->stop ? "stop" : "list", PATIENCE_MS, show, &listing,
                                   complaint, err);
    else
        error_clear(err), result = 0; /* there never was one */
    guard_close(&folder.fd);
    if (result == 0 && !listing.count && complaint->length == before)
        buffer_text(out, "no template is kept\n");
    return result < 0 || complaint->length > before ? EXIT_CODE_FAILURE : EXIT_CODE_OK;
}

int warm_command(int argc, char *const argv[], struct buffer *out, struct buffer *complaint)
{
    struct options options = {0};
    uint8_t sources[sizeof rows / sizeof *rows] = {0};
    const struct flag_command command = {&warm_page, &options, &options.help, sources, warm_carry_out};
    return flag_command(&command, argc, argv, out, complaint);
}
