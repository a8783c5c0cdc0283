/* command.c - see command.h. */
#include "trainer/run/command/command.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/knob.h"
#include "proto/base/text.h"
#include "trainer/formats/formats.h"

static const char *const verbs[COMMAND_VERBS] = {"", "eval", "generate", "preprocess", "quantize"};

enum { OWN_OPTION_LIMIT = 96 };

static bool same_name(const char *a, const char *b, size_t length)
{
    if (strlen(b) != length)
        return false;
    for (size_t i = 0; i < length; i++)
        if (a[i] != b[i] && !(strchr("-_", a[i]) && strchr("-_", b[i])))
            return false;
    return true;
}

static bool has_option(const struct command *command, const struct command_option *own)
{
    return !own->verbs || own->verbs & 1U << command->verb;
}

/* of_others: among the options of other commands. */
static const struct command_option *find_own(const struct command *command, const char *name, size_t length,
                                             bool of_others)
{
    for (const struct command_option *own = command_options; own->name; own++)
        if (has_option(command, own) != of_others && same_name(name, own->name, length))
            return own;
    return NULL;
}

static const char *nearest_own(const struct command *command, const char *name)
{
    const char *names[OWN_OPTION_LIMIT];
    size_t count = 0;
    for (const struct command_option *own = command_options; own->name; own++)
        if (has_option(command, own) && count < OWN_OPTION_LIMIT)
            names[count++] = own->name;
    return text_nearest(name, names, count);
}

static int refuse_option(const struct command *command, const char *word)
{
    scope_free char *name = mem_strndup(word, strcspn(word, "="));
    if (!name)
        return command_error("no memory");
    const struct command_option *other = find_own(command, name, strlen(name), true);
    for (int verb = 0; other && verb < COMMAND_VERBS; verb++)
        if (other->verbs & 1U << verb)
            return command_error("%s is an option of muster-train%s%s, not of muster-train%s%s", other->name,
                                 verb ? " " : "", verbs[verb], command->verb ? " " : "",
                                 verbs[command->verb]);
    const char *own = nearest_own(command, name);
    const char *foreign = !own && strlen(name) > 2 ? formats_nearest_option(name + 2) : NULL;
    return command_error("unknown option '%s'%s%s%s%s", name, own || foreign ? "; did you mean '" : "",
                         foreign ? "--" : "",
                         own       ? own
                         : foreign ? foreign
                                   : "",
                         own || foreign ? "'?" : "");
}

/* Whether the next word is a value: "-1" is one. */
static char *next_value(char *const argv[], int argc, int at)
{
    char *next = at + 1 < argc ? argv[at + 1] : NULL;
    return next && (*next != '-' || (next[1] >= '0' && next[1] <= '9')) ? next : NULL;
}

/* "--task NAME FILE", "--task=NAME FILE". */
static int take_task_of_file(struct command *command, const struct command_option *own, char *const argv[],
                             int argc, int *at)
{
    char *equals = strchr(argv[*at], '='), *name = equals ? equals + 1 : next_value(argv, argc, *at);
    *at += !equals && name;
    if (!name || own->take(command, name) < 0)
        return name ? -1 : command_error("--task needs hellaswag, arc or lambada, and a file of JSON lines");
    command->task.file = next_value(argv, argc, *at);
    if (!command->task.file)
        return command_error("--task %s needs a file of JSON lines after it", name);
    ++*at;
    return command_check_path("--task", command->task.file);
}

static int take_own(struct command *command, const struct command_option *own, char *const argv[], int argc,
                    int *at)
{
    char *word = argv[*at], *equals = strchr(word, '=');
    if (own->file_too)
        return take_task_of_file(command, own, argv, argc, at);
    if (!own->take) {
        *(bool *)((char *)command + own->flag) = true;
        return 0;
    }
    if (equals)
        return own->take(command, equals + 1);
    char *value = own->any_word ? (*at + 1 < argc ? argv[*at + 1] : NULL) : next_value(argv, argc, *at);
    /* --deepspeed alone is the switch of DeepSpeed's own scripts, which name the file by --deepspeed_config.
     */
    if (!value)
        return same_name(word, "--deepspeed", strlen(word)) ? 0 : command_error("%s needs a value", word);
    ++*at;
    return own->take(command, value);
}

/* ---- names of other programs ---- */

/* "--batch_size_per_gpu 4", "--batch-size=128", "--fp16". */
static int take_foreign(struct command *command, char *const argv[], int argc, int *at)
{
    const char *word = argv[*at] + 2;
    const size_t length = strcspn(word, "=");
    char *value = word[length] ? NULL : next_value(argv, argc, *at);
    scope_free char *name = mem_strndup(word, length);
    if (!name)
        return command_error("no memory");
    if (!formats_option(name))
        return refuse_option(command, argv[*at]);
    if (command->option_count == OPTION_LIMIT)
        return command_error("more than %d options of other programs", OPTION_LIMIT);
    char *text = value ? mem_printf("%s=%s", name, value) : mem_strdup(word);
    if (!text)
        return command_error("no memory");
    command->options[command->option_count++] = text;
    *at += value != NULL;
    return 0;
}

static int command_option(struct command *command, char *const argv[], int argc, int *at)
{
    const char *word = argv[*at];
    const struct command_option *own = find_own(command, word, strlen(word), false);
    if (!own)
        own = find_own(command, word, strcspn(word, "="), false);
    if (own && (own->take || !strchr(word, '=') || !strcmp(word, own->name)))
        return take_own(command, own, argv, argc, at);
    return word[1] == '-' ? take_foreign(command, argv, argc, at) : refuse_option(command, word);
}

bool command_is_page(const struct command *command)
{
    return command->help || command->settings || command->keys || command->version || command->man ||
           command->bash || command->zsh || command->schedule;
}

/* Options of a command that takes no step. */
static int check_verb(const struct command *command)
{
    if (command->model && command->checkpoint)
        return command_error("--model and --checkpoint %s: one of the two", command->checkpoint);
    if (!command->path_count && !command->option_count && !command->model && !command_is_page(command))
        return command_error("no configuration file was named");
    if (command->verb == COMMAND_QUANTIZE && !command_is_page(command) &&
        (!command->quantize.to || !command->quantize.method))
        return command_error(
            "quantize needs --method int8, int4, gptq or none, and --to, a folder for the result");
    return 0;
}

/* Fills the world that --nodes and --ranks-per-node describe. */
static int check_machine(struct command *command)
{
    const bool describes =
        command->nodes || command->ranks_per_node || command->memory || command->link_bytes_s > 0;
    if (describes && !command->suggest)
        return command_error("--nodes, --ranks-per-node, --memory and --link go with --suggest");
    if (command->suggest && (command->plan || command->print_config))
        return command_error("--suggest, --plan and --print-config: one of them");
    if (command->nodes && command->ranks_per_node && command->world_size &&
        command->world_size != command->nodes * command->ranks_per_node)
        return command_error("--nodes %lld x --ranks-per-node %lld are not --world-size %lld",
                             (long long)command->nodes, (long long)command->ranks_per_node,
                             (long long)command->world_size);
    if (command->nodes && !command->ranks_per_node && command->world_size % command->nodes)
        return command_error("--world-size %lld is no multiple of --nodes %lld",
                             (long long)command->world_size, (long long)command->nodes);
    if (command->nodes && !command->ranks_per_node && !command->world_size)
        return command_error("--nodes needs --ranks-per-node or --world-size");
    if (command->nodes && command->ranks_per_node)
        command->world_size = command->nodes * command->ranks_per_node;
    else if (command->nodes)
        command->ranks_per_node = command->world_size / command->nodes;
    if (command->world_size > 1 << 20)
        return command_error("%lld ranks are described; use at most %d", (long long)command->world_size,
                             1 << 20);
    return 0;
}

static int check_command(struct command *command)
{
    if (check_machine(command) < 0)
        return -1;
    if (command->verb != COMMAND_TRAIN)
        return check_verb(command);
    const bool shows = command->plan || command->print_config || command->suggest;
    if (command->world_size && !shows)
        return command_error("--world-size goes with --plan, --suggest and --print-config");
    if (command->plan && command->print_config)
        return command_error("--plan and --print-config: one of the two");
    if (command->predict && !command->plan)
        return command_error("--predict goes with --plan");
    if (command->verbose && !command->plan)
        return command_error("--verbose goes with --plan");
    if (!command->path_count && !command->option_count && !command_is_page(command))
        return command_error("no configuration file was named");
    return 0;
}

int command_parse(int argc, char *const argv[], struct command *command)
{
    int first = 1;
    for (int verb = COMMAND_TRAIN + 1; verb < COMMAND_VERBS && argc > 1; verb++)
        if (!strcmp(argv[1], verbs[verb])) {
            command->verb = (enum command_verb)verb;
            first = 2;
        }
    for (int i = first; i < argc; i++)
        if ((argv[i][0] == '-' ? command_option(command, argv, argc, &i)
                               : command_add_path(command, argv[i])) < 0)
            return -1;
    static char sync_errors[] = "training.sync_errors=true", cuda_graphs[] = "training.cuda_graphs=true";
    if ((command->sync_errors && command_add_override(command, sync_errors) < 0) ||
        (command->cuda_graphs && command_add_override(command, cuda_graphs) < 0))
        return -1;
    return check_command(command);
}

void command_free(struct command *command)
{
    for (int i = 0; i < command->option_count; i++)
        mem_free(command->options[i]);
    command->option_count = 0;
    mem_free(command->model);
    mem_free(command->checkpoint);
    mem_free(command->quantize.to);
    command->model = command->checkpoint = command->quantize.to = NULL;
}

int command_words(char *words[], int limit)
{
    int count = 0;
    for (int verb = COMMAND_TRAIN + 1; verb < COMMAND_VERBS && count < limit; verb++) {
        words[count] = mem_strdup(verbs[verb]);
        count += words[count] != NULL;
    }
    for (const struct command_option *own = command_options; own->name && count < limit; own++) {
        words[count] = mem_printf("%s%s", own->name, own->take ? "=" : "");
        count += words[count] != NULL;
    }
    return count;
}
