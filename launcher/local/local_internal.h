/* local_internal.h - the parts of `muster local` before a pod starts: checks and texts, for local_command.c.
 */
#ifndef MUSTER_LAUNCHER_LOCAL_LOCAL_INTERNAL_H
#define MUSTER_LAUNCHER_LOCAL_LOCAL_INTERNAL_H

#include <stdbool.h>

#include "launcher/local/job/job.h"
#include "launcher/local/pod/documents.h"
#include "proto/base/buffer.h"
#include "proto/base/log.h"
#include "proto/base/text_list.h"

/* --- the checks of `muster run` in each pod: the same parser and rules, on the pod's own variables --- */

/* A warning for each line, once for all pods that it concerns. documents: Services that names may resolve by.
 * -1 without memory. */
int launch_check(const struct local_job *job, const struct documents *documents, const struct log_sink *log);

/* --- words ---
 *
 * The command line of the launcher that a pod's command starts, as far as it is plain (pure). */

struct launch_words {
    struct text_list
        words; /* the launcher's arguments; none: the command starts no launcher, or is not plain */
    bool found, old_launcher; /* there is one; torch.distributed.launch */
    bool login;               /* it is called by its name in a login shell */
};

/* The text of `sh -c TEXT`, also with -l, -e, -x and the like; NULL for any other command. *login: of a login
 * shell. */
const char *launch_shell_text(char *const *command, bool *login);
/* Fills in $NAME and ${NAME} of a shell's text. -1: something else is after a $, or no such variable is set.
 */
int launch_expand(const char *text, char *const *env, struct buffer *out);

/* --- the pods of a job as text, and as JSON (pure) --- */

/* A list of {name, replica_type, index, hostname, env: {...}, command: [...]}, one pod a line. -1 without
 * memory. */
int local_print_json(const struct local_job *job, struct buffer *out);
/* The job in a line, then each pod with its command as a shell would take it and its environment. */
int local_print_text(const struct local_job *job, struct buffer *out);

/* --- missing files ---
 *
 * Files of a pod's image that this machine lacks. Without them a pod fails at once and, under most restart
 * policies, is started again and again. */

/* The first of the pod's working directory, program and script that does not exist, in fresh memory
 * (mem_free), and its kind in *kind. NULL: none is missing, or it cannot be determined.
 *
 * The script is the first word of the command that ends in .py or .sh, before any -m. In `sh -c TEXT` the
 * words of TEXT count, with variables of the pod's environment filled in, if TEXT is a single command. path:
 * the caller's PATH, for programs of pods that set none. */
char *missing_file_find(const struct local_pod *pod, const char *path, const char **kind);

/* A warning for each pod with a missing file; pods that lack the same file share one. */
void missing_files_warn(const struct local_job *job, const struct log_sink *log);

#endif
