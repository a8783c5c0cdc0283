/* link_command.c - see commands.h. */
#include "launcher/commands/commands.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/exit_code.h"

struct options {
    char *folder;
    bool replace, remove, help;
};

#define AT(member) KNOB_OFFSET(options, member)
static const struct knob rows[] = {
    {.name = "folder",
     .type = KNOB_TEXT,
     .text = KNOB_FILE,
     .offset = AT(folder),
     .section = "Flags",
     .help = "where the link is made; without it, next to muster itself"},
    {.name = "replace",
     .type = KNOB_BOOL,
     .offset = AT(replace),
     .section = "Flags",
     .help = "another program of that name is kept as torchrun.before-muster, and comes back with --remove"},
    {.name = "remove",
     .type = KNOB_BOOL,
     .offset = AT(remove),
     .section = "Flags",
     .help = "take the link away again"},
    KNOB_HELP_ROW(AT(help), "Flags"),
};
static const struct knob_table table = {rows, sizeof rows / sizeof *rows};

const struct command_page link_torchrun_page = {
    .name = "muster link-torchrun",
    .brief = "makes a link named torchrun to muster",
    .description =
        "Makes a link named torchrun to this program. Called by that name muster is muster run, with "
        "torchrun's\n"
        "flags, so that scripts and manifests which call torchrun need no change where the link's folder\n"
        "comes first in PATH.",
    .exit_codes =
        "0 the link is there (--remove: it is gone); 1 it could not be made, or another program has the\n"
        "name; 2 bad usage",
    .table = &table};

struct place {
    char program[PATH_MAX]; /* this program */
    char *link, *kept;      /* owned */
};

static int find_place(const struct options *options, struct place *place, struct muster_error *err)
{
    const ssize_t length = readlink("/proc/self/exe", place->program, sizeof place->program - 1);
    if (length <= 0)
        return error_errno(err, "the path of this program cannot be read from /proc/self/exe");
    place->program[length] = 0;
    const int folder = (int)(strrchr(place->program, '/') - place->program);
    place->link = options->folder ? mem_printf("%s/torchrun", options->folder)
                                  : mem_printf("%.*s/torchrun", folder, place->program);
    place->kept = place->link ? mem_printf("%s.before-muster", place->link) : NULL;
    return place->kept ? 0 : error_set(err, MUSTER_E_NOMEM, "no memory");
}

/* Whether the link is there and leads to this program. */
static bool is_ours(const struct place *place)
{
    char resolved[PATH_MAX];
    return realpath(place->link, resolved) && !strcmp(resolved, place->program);
}

static int remove_link(const struct place *place, struct buffer *out, struct muster_error *err)
{
    if (!is_ours(place))
        return error_set(err, MUSTER_E_NOT_FOUND, "%s is no link to %s", place->link, place->program);
    if (unlink(place->link) < 0)
        return error_errno(err, "%s cannot be removed", place->link);
    const bool back = access(place->kept, F_OK) == 0;
    if (back && rename(place->kept, place->link) < 0)
        return error_errno(err, "%s cannot be renamed to %s", place->kept, place->link);
    buffer_printf(out, "%s %s\n", place->link, back ? "is restored" : "is removed");
    return 0;
}

static int make_link(const struct place *place, bool replace, struct buffer *out, struct muster_error *err)
{
    struct stat status;
    if (is_ours(place)) {
        buffer_printf(out, "%s is a link to %s already\n", place->link, place->program);
        return 0;
    }
    const bool taken = lstat(place->link, &status) == 0;
    if (taken && !replace)
        return error_set(
            err, MUSTER_E_INVALID,
            "%s is another program (PyTorch's?); --replace keeps it as torchrun.before-muster, --folder "
            "makes the link elsewhere",
            place->link);
    if (taken && rename(place->link, place->kept) < 0)
        return error_errno(err, "%s cannot be renamed to %s", place->link, place->kept);
    if (symlink(place->program, place->link) < 0) {
        (void)error_errno(err, "%s cannot be made", place->link);
        if (taken && rename(place->kept, place->link) < 0)
            return error_wrap(err, "%s is kept as %s", place->link, place->kept);
        return -1;
    }
    buffer_printf(out, "%s is a link to %s\n", place->link, place->program);
    return 0;
}

static int carry_out(const struct flag_command *command, struct buffer *out, struct buffer *complaint,
                     struct muster_error *err)
{
    const struct options *options = command->options;
    struct place place = {0};
    (void)complaint;
    int result = find_place(options, &place, err);
    if (!result)
        result =
            options->remove ? remove_link(&place, out, err) : make_link(&place, options->replace, out, err);
    mem_free(place.link);
    mem_free(place.kept);
    return result < 0 ? EXIT_CODE_FAILURE : EXIT_CODE_OK;
}

int link_command(int argc, char *const argv[], struct buffer *out, struct buffer *complaint)
{
    struct options options = {0};
    uint8_t sources[sizeof rows / sizeof *rows] = {0};
    const struct flag_command command = {&link_torchrun_page, &options, &options.help, sources, carry_out};
    return flag_command(&command, argc, argv, out, complaint);
}
