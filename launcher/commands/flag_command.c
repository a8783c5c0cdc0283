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

static int read_words(const struct flag_command *command, int argc, char *const argv[],
                      struct muster_error *err)
{
    int at = 0;
    if (knob_defaults(command->table, command->options, err) < 0 ||
        knob_read_environment(command->table, command->options, command->sources, read_variable, NULL, err) <
            0 ||
        knob_parse_flags(command->table, command->options, command->sources, argc, argv, &at,
                         command->help_wanted, err) < 0)
        return -1;
    if (!*command->help_wanted && at < argc)
        return error_set(err, MUSTER_E_INVALID, "'%s' is not a flag; --help lists them", argv[at]);
    return 0;
}

int flag_command(const struct flag_command *command, int argc, char *const argv[], struct buffer *out,
                 struct buffer *complaint)
{
    struct muster_error err = {0};
    int code = EXIT_CODE_OK;
    if (read_words(command, argc, argv, &err) < 0)
        code = err.code == MUSTER_E_NOMEM ? EXIT_CODE_FAILURE : EXIT_CODE_USAGE;
    else if (*command->help_wanted)
        command->help(out);
    else
        code = command->run(command, out, complaint, &err);
    if (err.code)
        buffer_printf(complaint, "%s: error: %s\n", command->name, err.text);
    knob_free(command->table, command->options);
    return code;
}
