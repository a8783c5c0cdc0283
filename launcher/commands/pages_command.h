/* pages_command.h - `muster man` and `muster completion`: the manual pages and the shells' completions, made
 * of the tables that the subcommands read. */
#ifndef MUSTER_LAUNCHER_COMMANDS_PAGES_COMMAND_H
#define MUSTER_LAUNCHER_COMMANDS_PAGES_COMMAND_H

#include "launcher/commands/flag_command.h"
#include "proto/base/buffer.h"

/* One subcommand of muster, with what its page holds. */
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

#endif
