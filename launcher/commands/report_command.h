/* report_command.h - muster report: a job's rounds, recoveries and curves as one HTML file. */
#ifndef MUSTER_LAUNCHER_COMMANDS_REPORT_COMMAND_H
#define MUSTER_LAUNCHER_COMMANDS_REPORT_COMMAND_H

#include "launcher/commands/flag_command.h"

extern const struct command_page report_page;
/* The exit code. argv: after the name. out gets the file where no --output is given. */
int report_command(int argc, char *const argv[], struct buffer *out, struct buffer *complaint);

#endif
