/* prepare_command.h - `muster-train prepare`: its flags, its help, what it prints. */
#ifndef MUSTER_TRAINER_RUN_PREPARE_COMMAND_H
#define MUSTER_TRAINER_RUN_PREPARE_COMMAND_H

/* argv: the words behind "prepare". Returns the exit code. */
int prepare_command(int argc, char *const argv[]);

#endif
