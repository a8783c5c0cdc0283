/* flag_command.c - see flag_command.h. */
#include "launcher/commands/flag_command.h"

#include <stdlib.h>

#include "proto/base/error.h"
#include "proto/base/knob_args.h"
#include "proto/exit_code.h"

static const char *read_variable(void *context, const char *name)
{
    (void)context;
    return getenv(name);
}

static int read_words(const struct flag_command *command, int argc, char *const argv[], char *const **words,
                      struct muster_error *err)
{
    int at = 0;
    if (knob_defaults(command->page->table, command->options, err) < 0 ||
        knob_read_environment(command->page->table, command->options, command->sources, read_variable, NULL,
                              err) < 0 ||
        knob_parse_flags(command->page->table, command->options, command->sources, argc, argv, &at,
                         command->help_wanted, err) < 0)
        return -1;
    if (words)
        *words = argv + at;
    else if (!*command->help_wanted && at < argc)
        return error_set(err, MUSTER_E_INVALID, "'%s' is not a flag; --help lists them", argv[at]);
    return 0;
}

int flag_command(const struct flag_command *command, int argc, char *const argv[], struct buffer *out,
                 struct buffer *complaint)
{
    return flag_command_words(command, argc, argv, NULL, out, complaint);
}

int flag_command_words(const struct flag_command *command, int argc, char *const argv[], char *const **words,
                       struct buffer *out, struct buffer *complaint)
{
    struct muster_error err = {0};
    int code = EXIT_CODE_OK;
    if (read_words(command, argc, argv, words, &err) < 0)
        code = err.code == MUSTER_E_NOMEM ? EXIT_CODE_FAILURE : EXIT_CODE_USAGE;
    else if (*command->help_wanted) {
        /* out remembers a failure */
        buffer_printf(out, "usage: %s [flags]%s%s\n\n%s\n\n", command->page->name,
                      command->page->words ? " " : "", command->page->words ? command->page->words : "",
                      command->page->description);
        (void)knob_help(command->page->table, KNOB_HELP_COLUMNS, out);
        buffer_printf(out, "\nExit codes: %s\n", command->page->exit_codes);
    } else
        code = command->run(command, out, complaint, &err);
    if (err.code)
        buffer_printf(complaint, "%s: error: %s\n", command->page->name, err.text);
    knob_free(command->page->table, command->options);
    return code;
}
