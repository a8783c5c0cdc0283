/* find_program.h - finds the program of the workers and how to run it, before anything is started. */
#ifndef MUSTER_LAUNCHER_PROCESS_FIND_PROGRAM_H
#define MUSTER_LAUNCHER_PROCESS_FIND_PROGRAM_H

#include "launcher/config/config.h"

/* Sets config->kind: by the name, and Python for a file that nothing else can run, as under torchrun; and
 * config->interpreter (interpreter.h). get reads PATH, PYTHON_EXEC, VIRTUAL_ENV and CONDA_PREFIX. Returns 0,
 * or -1 with one line in err and the process exit code in *exit_code: 127 if the program (or the interpreter)
 * was not found, 126 if it cannot be executed. A module's existence is not checked: only its interpreter can.
 */
int find_program_check(struct run_config *config, const char *(*get)(void *context, const char *name),
                       void *context, int *exit_code, struct muster_error *err);

/* The file that execvp(3) would run for a name without slash, in fresh memory (mem_free): the first
 * executable regular file along path (NULL: the usual /usr/local/bin:/usr/bin:/bin). NULL with
 * MUSTER_E_NOT_FOUND, or MUSTER_E_IO if only non-executable files have that name. */
char *find_program(const char *name, const char *path, struct muster_error *err);

#endif
