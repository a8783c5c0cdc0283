/* local_command.h - the subcommand `muster local`. */
#ifndef MUSTER_LAUNCHER_LOCAL_LOCAL_COMMAND_H
#define MUSTER_LAUNCHER_LOCAL_LOCAL_COMMAND_H

/* shown is what messages call the program; argv behind it. Returns the exit code. */
int local_command(const char *shown, int argc, char *argv[]);

#endif
