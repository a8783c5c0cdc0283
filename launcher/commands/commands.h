/* commands.h - the small subcommands, for main.c. Each has a page and a function: argv begins after the
 * subcommand's name, out is for standard output, complaint (whole lines) for standard error. The function
 * returns the exit code. */
#ifndef MUSTER_LAUNCHER_COMMANDS_COMMANDS_H
#define MUSTER_LAUNCHER_COMMANDS_COMMANDS_H

#include "launcher/commands/flag_command.h"
#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"
#include "rendezvous/security/secret.h"

#ifdef __cplusplus
extern "C" {
#endif

struct run_config; /* launcher/config/config.h */

/* --- muster checkpoint ---
 *
 * Asks the job of this machine's agent for a checkpoint, and waits until it is written. */

extern const struct command_page checkpoint_page;
/* Exit codes: 0, it is written, or with --no-wait a rank was asked, which is in out; 1, it could
 * not be written, its rank ended before, there is no result in time, no such agent, it does not respond, or
 * no worker of it writes checkpoints on request; 2, bad usage, or there are several agents (out has the list)
 * and none was chosen. */
int checkpoint_command(int argc, char *const argv[], struct buffer *out, struct buffer *complaint);

/* --- muster doctor: is this machine fit for a job, and what is its hardware? --- */

extern const struct command_page doctor_page;
/* Exit codes: 0 fit (or shown), 1 warnings, 3 unfit, 2 bad usage or a file that is not a
 * description. For a program that still has one thread. */
int doctor_command(int argc, char *const argv[], struct buffer *out, struct buffer *complaint);

/* --- muster drain: moves a node's ranks to a spare, before the node goes --- */

extern const struct command_page drain_page;
/* Exit codes: 0, the node has left, or with --no-wait was asked to; 1, nothing was changed, it has not left
 * in time, or no such agent; 2, bad usage, or there are agents of several jobs (out has the list) and none
 * was chosen. */
int drain_command(int argc, char *const argv[], struct buffer *out, struct buffer *complaint);

/* --- pure: the output of --dry-run --- */

/* The command and the environment of every worker that this node would start, appended: the difference
 * from inherited, the agent's environ. given: the workers' part of it, with NCCL's variables
 * (launcher/nccl/nccl_env.h); NULL: inherited. config is resolved. */
int dry_run_print(const struct run_config *config, char *const *inherited, char *const *given,
                  struct buffer *out, struct muster_error *err);

/* --- muster link-torchrun ---
 *
 * A link named torchrun to this program, so that scripts which call torchrun get muster. */

extern const struct command_page link_torchrun_page;
/* Exit codes: 0, the link is there; 1, it could not be made, or
 * another program has the name and --replace was not given; 2, bad usage. */
int link_command(int argc, char *const argv[], struct buffer *out, struct buffer *complaint);

/* --- muster man and muster completion ---
 *
 * The manual pages and the shells' completions, made of the tables that the subcommands read. */

/* One subcommand of muster, with the contents of its page. */
struct pages_subject {
    struct command_page page;
    const char *synopsis; /* "muster run [flags] [--] program [arguments]" */
};

/* argv: a subcommand's name, or nothing for muster's own page. Prints the source of the manual page. The exit
 * code. */
int pages_man(const struct pages_subject *subjects, int count, int argc, char *const argv[],
              struct buffer *out, struct buffer *complaint);
/* argv: bash or zsh. */
int pages_completion(const struct pages_subject *subjects, int count, int argc, char *const argv[],
                     struct buffer *out, struct buffer *complaint);

/* --- muster report: a job's rounds, recoveries and curves as one HTML file --- */

extern const struct command_page report_page;
/* out gets the file where no --output is given. */
int report_command(int argc, char *const argv[], struct buffer *out, struct buffer *complaint);

/* --- muster secret ---
 *
 * Makes the secret of a job, as a line or as a Kubernetes Secret, and checks whether a file holds one. */

extern const struct command_page secret_page;
/* out may hold a secret, to be wiped by the caller. */
int secret_command(int argc, char *const argv[], struct buffer *out, struct buffer *complaint);

/* Pure: the manifest of a Secret whose key "secret" is the line; namespace_ NULL: none in it. A name that
 * Kubernetes would reject is MUSTER_E_INVALID. */
int secret_manifest(const struct job_secret *secret, const char *name, const char *namespace_,
                    struct buffer *out, struct muster_error *err);

/* --- muster status: status of the agent on this machine --- */

extern const struct command_page status_page;
/* Exit codes: 0, the status is in out; 1, no such agent, or it does not respond; 2, bad usage,
 * or there are several agents (out has the list) and none was chosen. */
int status_command(int argc, char *const argv[], struct buffer *out, struct buffer *complaint);

/* --- muster top: a job's page in a terminal, of an agent here or elsewhere --- */

extern const struct command_page top_page;
/* out gets the lines where there is no terminal, or with --once. */
int top_command(int argc, char *const argv[], struct buffer *out, struct buffer *complaint);

/* --- muster warm: the templates that muster run --warm-keep has left, and their end --- */

extern const struct command_page warm_page;
int warm_command(int argc, char *const argv[], struct buffer *out, struct buffer *complaint);

#ifdef __cplusplus
}
#endif

#endif
