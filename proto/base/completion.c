/* completion.c - see completion.h. */
#include "proto/base/completion.h"

#include <stdbool.h>
#include <string.h>

static const char *const shells[] = {
#define COMPLETION_NAME(symbol, name) name,
    COMPLETION_SHELLS(COMPLETION_NAME)
#undef COMPLETION_NAME
};

const char *completion_shell_name(enum completion_shell shell)
{
    return (unsigned)shell < COMPLETION_SHELL_COUNT ? shells[shell] : "unknown";
}

static bool takes_value(const struct knob *knob)
{
    return knob->type != KNOB_BOOL && !knob->implied;
}

/* A function's name: "muster-train" is _muster_train. */
static void put_function(const char *program, struct buffer *out)
{
    buffer_text(out, "_");
    for (; *program; program++)
        buffer_append(out, *program == '-' ? "_" : program, 1);
}

/* ---- bash ---- */

static void bash_flags(const struct completion_command *command, struct buffer *out)
{
    buffer_text(out, "flags=\"");
    for (size_t i = 0; command->table && i < command->table->count; i++) {
        const struct knob *knob = &command->table->knobs[i];
        if (!knob->refused)
            buffer_printf(out, "--%s%s ", knob->name, takes_value(knob) ? "=" : "");
    }
    for (const char *const *word = command->words; word && *word; word++)
        buffer_printf(out, "%s ", *word);
    buffer_text(out, "\"\n");
}

static void bash_values(const struct completion_command *command, const char *indent, struct buffer *out)
{
    buffer_printf(out, "%scase $before in\n", indent);
    for (size_t i = 0; command->table && i < command->table->count; i++) {
        const struct knob *knob = &command->table->knobs[i];
        if (!knob->choices || knob->refused)
            continue;
        buffer_printf(out, "%s--%s) values=\"", indent, knob->name);
        for (int j = 0; knob->choices[j]; j++)
            buffer_printf(out, "%s%s", j ? " " : "", knob->choices[j]);
        buffer_text(out, "\" ;;\n");
    }
    buffer_printf(out, "%sesac\n", indent);
}

static void bash_commands(const struct completion_command *commands, size_t count, struct buffer *out)
{
    if (count == 1 && !*commands->name) {
        buffer_text(out, "    ");
        bash_flags(commands, out);
        bash_values(commands, "    ", out);
        return;
    }
    buffer_text(out, "    if [ \"$COMP_CWORD\" = 1 ]; then\n        COMPREPLY=($(compgen -W \"");
    for (size_t i = 0; i < count; i++)
        buffer_printf(out, "%s ", commands[i].name);
    buffer_text(
        out, "--help --version\" -- \"$current\"))\n        return\n    fi\n    case ${COMP_WORDS[1]} in\n");
    for (size_t i = 0; i < count; i++) {
        buffer_printf(out, "    %s)\n        ", commands[i].name);
        bash_flags(&commands[i], out);
        bash_values(&commands[i], "        ", out);
        buffer_text(out, "        ;;\n");
    }
    buffer_text(out, "    esac\n");
}

static void print_bash(const char *program, const struct completion_command *commands, size_t count,
                       struct buffer *out)
{
    buffer_printf(out, "# bash completion for %s\n", program);
    put_function(program, out);
    buffer_text(
        out,
        "()\n{\n"
        "    local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} flags= values=\n"
        "    COMPREPLY=()\n"
        "    # bash cuts --flag=value into three words\n"
        "    if [ \"$current\" = = ]; then current=; elif [ \"$before\" = = ]; then "
        "before=${COMP_WORDS[COMP_CWORD - 2]}; fi\n");
    bash_commands(commands, count, out);
    buffer_text(out, "    if [ -n \"$values\" ]; then\n"
                     "        COMPREPLY=($(compgen -W \"$values\" -- \"$current\"))\n"
                     "    elif [[ $current == -* ]]; then\n"
                     "        COMPREPLY=($(compgen -W \"$flags\" -- \"$current\"))\n"
                     "        [[ ${COMPREPLY-} != *= ]] || compopt -o nospace\n"
                     "    fi\n"
                     "}\n"
                     "complete -o default -F ");
    put_function(program, out);
    buffer_printf(out, " %s\n", program);
}

/* ---- zsh ---- */

/* Inside of single quotes, where brackets and colons mean something to _arguments and _describe. */
static void zsh_text(const char *text, struct buffer *out)
{
    const size_t length = strcspn(text, ";\n"); /* the first clause is enough in a menu */
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '\'')
            buffer_text(out, "'\\'");
        if (strchr("[]:\\", text[i]))
            buffer_text(out, "\\");
        buffer_append(out, text + i, 1);
    }
}

static void zsh_knob(const struct knob *knob, struct buffer *out)
{
    buffer_printf(out, " \\\n            '--%s%s[", knob->name, takes_value(knob) ? "=" : "");
    zsh_text(knob->help, out);
    buffer_text(out, "]");
    if (takes_value(knob))
        buffer_printf(out, ":%s:", knob->name);
    if (takes_value(knob) && knob->choices) {
        for (int j = 0; knob->choices[j]; j++)
            buffer_printf(out, "%s%s", j ? " " : "(", knob->choices[j]);
        buffer_text(out, ")");
    } else if (takes_value(knob)) {
        buffer_text(out, knob->type == KNOB_TEXT || knob->type == KNOB_LIST ? "_files" : "");
    }
    buffer_text(out, "'");
}

static void zsh_arguments(const struct completion_command *command, struct buffer *out)
{
    buffer_text(out, "_arguments");
    for (size_t i = 0; command->table && i < command->table->count; i++)
        if (!command->table->knobs[i].refused)
            zsh_knob(&command->table->knobs[i], out);
    for (const char *const *word = command->words; word && *word; word++)
        buffer_printf(out, " \\\n            '%s%s'", *word, strchr(*word, '=') ? ":value:_files" : "");
    buffer_text(out, " \\\n            '*:file:_files'");
}

static void print_zsh(const char *program, const struct completion_command *commands, size_t count,
                      struct buffer *out)
{
    buffer_printf(out, "#compdef %s\n", program);
    put_function(program, out);
    buffer_text(out, "()\n{\n");
    if (count == 1 && !*commands->name) {
        buffer_text(out, "    ");
        zsh_arguments(commands, out);
    } else {
        buffer_text(out, "    local -a subcommands=(\n");
        for (size_t i = 0; i < count; i++) {
            buffer_printf(out, "        '%s:", commands[i].name);
            zsh_text(commands[i].help, out);
            buffer_text(out, "'\n");
        }
        buffer_text(out, "    )\n    if (( CURRENT == 2 )); then\n        _describe -t commands subcommand "
                         "subcommands\n        return\n    fi\n"
                         "    local subcommand=$words[2]\n    shift words\n    (( CURRENT-- ))\n"
                         "    case $subcommand in\n");
        for (size_t i = 0; i < count; i++) {
            buffer_printf(out, "    %s)\n        ", commands[i].name);
            zsh_arguments(&commands[i], out);
            buffer_text(out, "\n        ;;\n");
        }
        buffer_text(out, "    esac");
    }
    buffer_text(out, "\n}\n");
    put_function(program, out);
    buffer_text(out, " \"$@\"\n");
}

int completion_print(enum completion_shell shell, const char *program,
                     const struct completion_command *commands, size_t count, struct buffer *out)
{
    static void (*const printers[])(const char *, const struct completion_command *, size_t,
                                    struct buffer *) = {
        [COMPLETION_BASH] = print_bash, [COMPLETION_ZSH] = print_zsh};
    printers[shell](program, commands, count, out);
    return out->failed ? -1 : 0;
}
