/* launch_check.h - what `muster run` in each pod would say of its command and environment, before any pod
 * starts: the same parser and rules, on the pod's own variables. */
#ifndef MUSTER_LAUNCHER_LOCAL_LAUNCH_CHECK_H
#define MUSTER_LAUNCHER_LOCAL_LAUNCH_CHECK_H

#include <stdbool.h>

#include "launcher/local/job/job.h"
#include "launcher/local/pod/documents.h"
#include "proto/base/buffer.h"
#include "proto/base/log.h"
#include "proto/base/text_list.h"

/* A warning for each line, once for all pods that it concerns. documents: Services that names may resolve by.
 * -1 without memory. */
int launch_check(const struct local_job *job, const struct documents *documents, const struct log_sink *log);

/* --- words ---
 *
 * the command line of the launcher that a pod's command starts, as far as it is plain
 * (pure). */

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
/* -1 without memory; launch_words_free in every case. */
int launch_words_read(const struct local_pod *pod, struct launch_words *out);
void launch_words_free(struct launch_words *words);

#endif
