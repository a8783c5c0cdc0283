/* completion.h - pure: a shell's completions of a program's words, made of its subcommands and knob
 * tables. */
#ifndef MUSTER_PROTO_BASE_COMPLETION_H
#define MUSTER_PROTO_BASE_COMPLETION_H

#include <stddef.h>

#include "proto/base/buffer.h"
#include "proto/base/knob.h"

#ifdef __cplusplus
extern "C" {
#endif

#define COMPLETION_SHELLS(X) X(COMPLETION_BASH, "bash") X(COMPLETION_ZSH, "zsh")
enum completion_shell {
#define COMPLETION_ENUM(symbol, name) symbol,
    COMPLETION_SHELLS(COMPLETION_ENUM)
#undef COMPLETION_ENUM
        COMPLETION_SHELL_COUNT
};
const char *completion_shell_name(enum completion_shell shell);

struct completion_command {
    const char *name, *help;        /* "run"; "": the program has no subcommands, and this is its only row */
    const struct knob_table *table; /* its flags; NULL: those in words alone */
    const char *const
        *words; /* further flags, NULL-terminated, a '=' after flags that take a value; NULL: none */
};

/* A script for the shell's folder of completions, or for `source <(...)`. A word that is no flag is completed
 * as a file. */
int completion_print(enum completion_shell shell, const char *program,
                     const struct completion_command *commands, size_t count, struct buffer *out);

#ifdef __cplusplus
}
#endif
#endif
