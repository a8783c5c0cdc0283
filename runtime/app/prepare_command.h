/* prepare_command.h - `muster-train prepare`: its flags, its help, what it prints. */
#ifndef MUSTER_RUNTIME_APP_PREPARE_COMMAND_H
#define MUSTER_RUNTIME_APP_PREPARE_COMMAND_H

/* argv: the words behind "prepare". Returns the exit code. */
int prepare_command(int argc, char *const argv[]);

#endif
