/* pod_command.c - see pod_command.h. */
#include "launcher/local/pod/pod_command.h"

#include <string.h>

#include "launcher/local/job/python_shim.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"

enum { COMMAND_LIMIT = 1 << 20 /* bytes: half of the kernel's limit by default */ };

/* Room that is left of COMMAND_LIMIT; below 0 nothing more is added. */
struct room {
    int64_t bytes;
};

static int add_word(struct text_list *out, char *word, struct room *room)
{
    room->bytes -= word ? (int64_t)strlen(word) + 1 + (int64_t)sizeof word : 0;
    return text_list_take(out, word);
}

static int add_expanded(struct text_list *out, const struct tree_node *list, const struct env_map *env,
                        struct room *room)
{
    for (size_t i = 0; list && list->kind == TREE_LIST && i < list->count && room->bytes >= 0; i++) {
        const char *text = tree_text(list->items[i]);
        scope_buffer word = {.limit = ENV_TEXT_LIMIT};
        if (env_expand(text ? text : "", env, &word) < 0)
            room->bytes = -1;
        else if (add_word(out, buffer_take(&word), room) < 0)
            return -1;
    }
    return 0;
}

/* --- ours in place of torchrun --- */

/* How many words at the front call a launcher that muster replaces; *subcommand is ours (NULL: keep
 * theirs). */
static int launcher_words(const struct text_list *words, const char **subcommand)
{
    const char *slash = strrchr(words->items[0], '/'), *name = slash ? slash + 1 : words->items[0];
    int rest;
    *subcommand = NULL;
    if (!strcmp(name, "muster"))
        return 1;
    if (!strcmp(name, "torchrun")) {
        *subcommand = "run";
        return 1;
    }
    if (!python_shim_is_name(name))
        return 0;
    const char *module = python_shim_module((int)words->count, words->items, &rest);
    *subcommand = module ? python_shim_subcommand(module) : NULL;
    return *subcommand ? rest : 0;
}

static int replace_launcher(struct text_list *words, const char *program)
{
    const char *subcommand;
    size_t skip = words->count ? (size_t)launcher_words(words, &subcommand) : 0;
    if (!skip)
        return 0;
    struct text_list ours = {0};
    int result = text_list_take(&ours, mem_strdup(program));
    if (!result && subcommand)
        result = text_list_take(&ours, mem_strdup(subcommand));
    for (size_t i = skip; !result && i < words->count; i++)
        result = text_list_take(&ours, mem_strdup(words->items[i]));
    text_list_free(words);
    *words = ours;
    return result;
}

static int add_entrypoint(const struct pod_command_settings *settings, const struct pod_source *source,
                          const struct path *path, struct text_list *out, struct room *room,
                          struct problems *problems)
{
    for (size_t i = 0; settings->entrypoint && settings->entrypoint[i]; i++)
        if (add_word(out, mem_strdup(settings->entrypoint[i]), room) < 0)
            return -1;
    if (settings->entrypoint)
        return 0;
    problems_add(problems, settings->may_be_unknown ? PROBLEM_WARNING : PROBLEM_REQUIRED, source->file,
                 pod_source_container(source), PATH_FIELD(path, "command"),
                 "the image's command is unknown here; give it by --entrypoint, or write a command");
    if (!settings->may_be_unknown)
        problems_fatal(problems);
    return 0;
}

static int add_more(const struct text_list *more, struct text_list *out, struct room *room)
{
    for (size_t i = 0; more && i < more->count; i++)
        if (add_word(out, mem_strdup(more->items[i]), room) < 0)
            return -1;
    return 0;
}

int pod_command(const struct pod_command_settings *settings, const struct pod_source *source,
                const struct path *path, const struct env_map *env, struct text_list *out,
                struct problems *problems)
{
    const struct tree_node *command = pod_source_words(source, "command");
    struct room room = {COMMAND_LIMIT};
    if ((command ? add_expanded(out, command, env, &room)
                 : add_entrypoint(settings, source, path, out, &room, problems)) < 0 ||
        add_more(source->more, out, &room) < 0 ||
        add_expanded(out, pod_source_words(source, "args"), env, &room) < 0)
        return -1;
    if (room.bytes < 0) {
        problems_add(problems, PROBLEM_INVALID, source->file, pod_source_container(source), path,
                     "the command is longer than %d bytes, or a word of it than %d", COMMAND_LIMIT,
                     ENV_TEXT_LIMIT);
        problems_fatal(problems);
    }
    return command || settings->entrypoint ? replace_launcher(out, settings->program) : 0;
}

/* --- words of --entrypoint --- */

/* One word from *text on, which is moved past it. False if a quote stays open. */
static bool split_word(const char **text, struct buffer *word)
{
    char quote = 0;
    const char *at = *text;
    for (; *at && (quote || !strchr(" \t\r\n", *at)); at++) {
        if (*at == quote)
            quote = 0;
        else if (!quote && (*at == '\'' || *at == '"'))
            quote = *at;
        else if (*at == '\\' && quote != '\'' && at[1])
            buffer_append(word, ++at, 1);
        else
            buffer_append(word, at, 1);
    }
    *text = at;
    return !quote;
}

int pod_command_split(const char *text, struct text_list *out, struct muster_error *err)
{
    const char *at = text + strspn(text, " \t\r\n");
    if (!*at)
        return error_set(err, MUSTER_E_INVALID, "'%.200s' has no word in it", text);
    while (*at) {
        scope_buffer word = {0};
        if (!split_word(&at, &word))
            return error_set(err, MUSTER_E_INVALID, "unclosed quote in '%.200s'", text);
        if (text_list_take(out, buffer_take(&word)) < 0)
            return error_set(err, MUSTER_E_NOMEM, "no memory");
        at += strspn(at, " \t\r\n");
    }
    return 0;
}
