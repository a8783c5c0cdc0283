/* launch_words.c - see launch_words.h. A guess must not cry wolf: what cannot be read is no launcher. */
#include "launcher/local/launch_words.h"

#include <ctype.h>
#include <string.h>

#include "launcher/local/job/python_shim.h"
#include "launcher/local/pod/pod_command.h"
#include "proto/base/guard.h"

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

const char *launch_shell_text(char *const *command, bool *login)
{
    static const char *const shells[] = {"sh", "bash", "dash", "zsh", "ash"};
    bool shell = false;
    *login = false;
    for (size_t i = 0; command && command[0] && i < sizeof shells / sizeof *shells; i++)
        shell |= !strcmp(last_part(command[0]), shells[i]);
    for (char *const *word = command + 1; shell && *word && (*word)[0] == '-'; word++) {
        size_t length = strlen(*word);
        *login |= !strcmp(*word, "--login") || ((*word)[1] != '-' && strchr(*word, 'l'));
        if ((*word)[1] != '-' && (*word)[length - 1] == 'c')
            return word[1];
        if (!strcmp(*word, "-o") && word[1])
            word++; /* -o pipefail */
    }
    return NULL;
}

int launch_expand(const char *text, char *const *env, struct buffer *out)
{
    while (*text) {
        size_t plain = strcspn(text, "$");
        buffer_append(out, text, plain);
        text += plain;
        if (!*text)
            break;
        bool braced = *++text == '{';
        text += braced;
        size_t length = 0;
        while (isalnum((unsigned char)text[length]) || text[length] == '_')
            length++;
        scope_free char *name = mem_printf("%.*s", (int)length, text);
        const char *value = length && name ? text_list_value(env, name) : NULL;
        if (!value || (braced && text[length] != '}'))
            return -1;
        buffer_text(out, value);
        text += length + braced;
    }
    return out->failed ? -1 : 0;
}

/* One simple command of a shell's text, appended without line continuations; returns what follows it. */
static const char *take_command(const char *text, struct buffer *out)
{
    char quote = 0;
    for (; *text; text++) {
        if (*text == '\\' && text[1] == '\n') {
            text++;
            buffer_text(out, " ");
            continue;
        }
        bool redirects = out->length && (out->data[out->length - 1] == '>' || text[1] == '>');
        if (!quote && (strchr(";|\n", *text) || (*text == '&' && !redirects)))
            return text + 1;
        if (*text == '\'' || *text == '"')
            quote = !quote ? *text : quote == *text ? 0 : quote;
        if (*text == '\\' && text[1] && quote != '\'')
            buffer_append(out, text++, 1);
        buffer_append(out, text, 1);
    }
    return text;
}

/* The words before the first redirection. */
static size_t count_words(const struct text_list *words)
{
    size_t count = 0;
    while (count < words->count && !strpbrk(words->items[count], "<>"))
        count++;
    return count;
}

/* Index after the words that call a launcher at `at`; 0: they do not. */
static size_t launcher_at(char *const *words, size_t count, size_t at, bool *old_launcher)
{
    const char *name = at < count ? last_part(words[at]) : "";
    int rest;
    *old_launcher = false;
    if (!strcmp(name, "torchrun"))
        return at + 1;
    bool run = at + 1 < count && !strcmp(words[at + 1], "run"),
         launch = at + 1 < count && !strcmp(words[at + 1], "launch");
    if (!strcmp(name, "muster") && (run || launch)) {
        *old_launcher = launch;
        return at + 2;
    }
    if (!python_shim_is_name(name))
        return 0;
    const char *module = python_shim_module((int)(count - at), words + at, &rest);
    const char *ours = module ? python_shim_subcommand(module) : NULL;
    *old_launcher = ours && !strcmp(ours, "launch");
    return ours ? at + (size_t)rest : 0;
}

/* A command's words as a launcher's; out->found where they are. */
static int read_command(char *const *words, size_t count, struct launch_words *out)
{
    size_t at = 0;
    while (at < count &&
           (!strcmp(words[at], "exec") || !strcmp(words[at], "time") || !strcmp(words[at], "nohup")))
        at++;
    size_t begin = launcher_at(words, count, at, &out->old_launcher);
    if (!begin)
        return 0;
    out->found = true;
    out->login &= at < count && !strchr(words[at], '/');
    for (size_t i = begin; i < count; i++)
        if (text_list_take(&out->words, mem_strdup(words[i])) < 0)
            return -1;
    return 0;
}

static int read_shell(const struct local_pod *pod, const char *text, struct launch_words *out)
{
    while (*text && !out->found) {
        scope_buffer command = {0}, expanded = {0};
        scope_text_list words = {0};
        buffer_text(&command, "");
        text = take_command(text, &command);
        if (command.failed)
            return -1;
        if (strpbrk(command.data, "()`*?[#") || launch_expand(command.data, pod->env, &expanded) < 0 ||
            !expanded.length || pod_command_split(expanded.data, &words, NULL) < 0)
            continue; /* not plain */
        if (read_command(words.items, count_words(&words), out) < 0)
            return -1;
    }
    return 0;
}

int launch_words_read(const struct local_pod *pod, struct launch_words *out)
{
    size_t count = 0;
    *out = (struct launch_words){.found = false};
    while (pod->command && pod->command[count])
        count++;
    if (!count)
        return 0;
    const char *text = launch_shell_text(pod->command, &out->login);
    if (text)
        return read_shell(pod, text, out);
    /* the program itself in torchrun's place (pod_command.h) */
    bool ours = count > 1 && (!strcmp(pod->command[1], "run") || !strcmp(pod->command[1], "launch")) &&
                strchr(pod->command[0], '/');
    if (!ours)
        return read_command(pod->command, count, out);
    out->found = true;
    out->old_launcher = !strcmp(pod->command[1], "launch");
    for (size_t i = 2; i < count; i++)
        if (text_list_take(&out->words, mem_strdup(pod->command[i])) < 0)
            return -1;
    return 0;
}

void launch_words_free(struct launch_words *words)
{
    text_list_free(&words->words);
    *words = (struct launch_words){.found = false};
}
