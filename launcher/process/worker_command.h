/* worker_command.h - pure: configuration + world + local rank -> the argv and environment of one worker. */
#ifndef MUSTER_LAUNCHER_PROCESS_WORKER_COMMAND_H
#define MUSTER_LAUNCHER_PROCESS_WORKER_COMMAND_H

#include "launcher/config/config.h"
#include "rendezvous/roster/world.h"

struct worker_command {
    char **argv; /* NULL-terminated; argv[0] is searched in PATH if it has no slash */
    /* NULL-terminated NAME=value, the agent's environment overlaid with the contract's variables */
    char **envp;
    int local_rank, rank;
    size_t own; /* the first of envp's entries that differ between the workers of a round */
};

/* How the program runs, by its name alone (find_program_check looks at the file too): a .py file (.pyc, .pyz,
 * .pyw) under python3 -u (worker_command_interpreter), -m as module, anything else, and whatever --no-python
 * names, as itself. */
enum program_kind program_kind_of(const struct run_config *config);
/* The first of: asked (PYTHON_EXEC's value, NULL: unset), config->interpreter, python3 of PATH. */
const char *worker_command_interpreter(const struct run_config *config, const char *asked);

/* cores: OMP_NUM_THREADS is derived from it if it is unset and there are several workers (cores / workers,
 * at least 1). inherited is the agent's environ. error_file may be NULL. The command owns all memory. */
int worker_command_build(const struct run_config *config, const struct membership_world *world,
                         int local_rank, enum program_kind kind, char *const *inherited, int cores,
                         const char *agent_id, const char *error_file, struct worker_command *command,
                         struct muster_error *err);
/* The same for a process of which workers are forked in any round (launcher/warm/warm.h): argv as of local
 * rank 0, no variable of a world or a rank, neither the agent's own. */
int worker_command_template(const struct run_config *config, enum program_kind kind, char *const *inherited,
                            int cores, const char *agent_id, struct worker_command *command,
                            struct muster_error *err);
/* Makes a command that worker_command_build has filled, with the same arguments otherwise, that of another
 * worker of the round: a large environment is copied once a round. On failure it stays as it was. */
int worker_command_change(const struct run_config *config, const struct membership_world *world,
                          int local_rank, enum program_kind kind, char *const *inherited,
                          const char *error_file, struct worker_command *command, struct muster_error *err);
void worker_command_free(struct worker_command *command);

/* The OMP_NUM_THREADS of workers if the agent's environment has none; 0 if it is left unset. */
int worker_command_omp_threads(const struct run_config *config, char *const *inherited, int cores);

/* One argument of the script with torchrun's template applied, in fresh memory: ${local_rank} and
 * $local_rank become the rank, $$ becomes $, any other $ stays. NULL without memory. */
char *worker_command_argument(const char *argument, int local_rank);

/* --dry-run: argv and the variables that differ from inherited, quoted for a shell, appended. */
/* --dry-run --output=json: {"rank", "local_rank", "argv", "env"} of the same, appended without the closing
 * brace, so that the caller can add fields. */
int worker_command_print_json(const struct worker_command *command, char *const *inherited,
                              struct buffer *out);
int worker_command_print(const struct worker_command *command, char *const *inherited, struct buffer *out);

#endif
