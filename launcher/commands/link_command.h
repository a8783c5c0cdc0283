/* link_command.h - `muster link-torchrun`: a link named torchrun to this program, so that scripts which call
 * torchrun get muster. */
#ifndef MUSTER_LAUNCHER_COMMANDS_LINK_COMMAND_H
#define MUSTER_LAUNCHER_COMMANDS_LINK_COMMAND_H

#include "launcher/commands/flag_command.h"
#include "proto/base/buffer.h"

extern const struct command_page link_torchrun_page;
/* argv after "muster link-torchrun". Returns the exit code: 0, the link is there; 1, it could not be made, or
 * another program has the name and --replace was not given; 2, bad usage. */
int link_command(int argc, char *const argv[], struct buffer *out, struct buffer *complaint);

#endif
