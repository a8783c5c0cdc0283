/* local_command.h - the subcommand `muster local`. */
#ifndef MUSTER_LAUNCHER_LOCAL_LOCAL_COMMAND_H
#define MUSTER_LAUNCHER_LOCAL_LOCAL_COMMAND_H

/* shown: the program's name in messages; argv after it. Returns the exit code. */
int local_command(const char *shown, int argc, char *argv[]);

#endif
