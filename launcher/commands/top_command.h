/* top_command.h - muster top: a job's page in a terminal, of an agent here or elsewhere. */
#ifndef MUSTER_LAUNCHER_COMMANDS_TOP_COMMAND_H
#define MUSTER_LAUNCHER_COMMANDS_TOP_COMMAND_H

#include <stdbool.h>

#include "launcher/commands/flag_command.h"
#include "proto/include/muster_error.h"

extern const struct command_page top_page;
/* The exit code. argv: after the name. out gets the lines where there is no terminal, or with --once. */
int top_command(int argc, char *const argv[], struct buffer *out, struct buffer *complaint);

#endif
