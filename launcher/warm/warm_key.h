/* warm_key.h - common properties of a kept template and the workers that it makes: everything that a
 * worker inherits, and everything that was read at import.
 *
 * A key is a text of records "FIELD=VALUE", each with a NUL after it. A template makes workers for a job
 * with the very same key alone; else another template is started. */
#ifndef MUSTER_LAUNCHER_WARM_WARM_KEY_H
#define MUSTER_LAUNCHER_WARM_WARM_KEY_H

#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>

#include "proto/base/buffer.h"
#include "proto/base/text_list.h"
#include "proto/include/muster_error.h"

struct warm_key_subject {
    const char *interpreter;  /* its path */
    const char *modules;      /* separated by commas */
    const char *program;      /* the script, whose folder is searched first; NULL: the working directory */
    char *const *environment; /* the template's: warm_key_environment */
    const sigset_t *ignored;  /* what workers may inherit as ignored */
    const struct rlimit *descriptors; /* the workers' RLIMIT_NOFILE and RLIMIT_CORE; NULL: this process's */
    const struct rlimit *core_dumps;
};

/* Pure: whether a variable belongs to one job, process or terminal, so that a template does without it and
 * its key does not name it. entry: "NAME=VALUE" or a name. */
bool warm_key_is_passing(const char *entry);
/* Pure: the others of all, sorted; text_list_free frees them. -1 without memory. */
int warm_key_environment(char *const *all, struct text_list *out);

/* Appends the key of this process's workers: of the subject, and of this process by /proc. */
int warm_key_write(const struct warm_key_subject *subject, struct buffer *out, struct muster_error *err);

/* Pure: the name of the first field in which two keys differ, cut to fit; "" if they are equal. Length: with
 * the last NUL. */
void warm_key_difference(const char *a, size_t a_length, const char *b, size_t b_length, char *field,
                         size_t size);

#endif
