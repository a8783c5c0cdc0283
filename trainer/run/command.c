/* command.c - see command.h. */
#include "trainer/run/command.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/knob.h"
#include "proto/base/text.h"
#include "trainer/formats/formats.h"

static int command_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int command_error(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("muster-train: error: ", stderr);
    vfprintf(stderr, format, args);
    fputs(" (muster-train --help)\n", stderr);
    va_end(args);
    return -1;
}

/* ---- options of our own ---- */

static int check_path(const char *flag, const char *path)
{
    struct muster_error err = {0};
    return text_refuse_scheme(flag, path, &err) < 0 ? command_error("%s", err.text) : 0;
}

static int add_path(struct command *command, char *path)
{
    if (check_path("the configuration", path) < 0)
        return -1;
    if (command->path_count == PATH_LIMIT)
        return command_error("more than %d configuration files", PATH_LIMIT);
    command->paths[command->path_count++] = path;
    return 0;
}

static int take_override(struct command *command, char *value)
{
    if (command->override_count == OVERRIDE_LIMIT)
        return command_error("more than %d --set", OVERRIDE_LIMIT);
    command->overrides[command->override_count++] = value;
    return 0;
}

static int take_world_size(struct command *command, char *value)
{
    if (!text_int64(value, &command->world_size) || command->world_size < 1 || command->world_size > 1 << 20)
        return command_error("--world-size: '%s' is not a number of ranks from 1 to 1048576", value);
    return 0;
}

static int take_trace(struct command *command, char *steps)
{
    const int length = snprintf(command->trace, sizeof command->trace, "logging.trace=%s", steps);
    if (length >= (int)sizeof command->trace)
        return command_error("--trace=%.20s... is no step or range of steps: 10, or 10-12", steps);
    return take_override(command, command->trace);
}

static int take_device(struct command *command, char *name)
{
    const int length = snprintf(command->device, sizeof command->device, "training.device=%s", name);
    if (length >= (int)sizeof command->device)
        return command_error("--device=%.20s... is none of auto, cpu and cuda", name);
    return take_override(command, command->device);
}

static int take_comm(struct command *command, char *name)
{
    const int length = snprintf(command->comm, sizeof command->comm, "training.comm=%s", name);
    if (length >= (int)sizeof command->comm)
        return command_error("--comm=%.20s... is none of auto, host and nccl", name);
    return take_override(command, command->comm);
}

static int take_model(struct command *command, char *path)
{
    mem_free(command->model);
    command->model = mem_printf("model.path=%s", path);
    return command->model ? take_override(command, command->model) : command_error("no memory");
}

static int take_path(const char *option, const char *text, char **to)
{
    struct muster_error err = {0};
    mem_free(*to);
    return knob_path(text, to, &err) < 0 ? command_error("%s: %s", option, err.text) : 0;
}

static int take_checkpoint(struct command *command, char *path)
{
    return take_path("--checkpoint", path, &command->checkpoint);
}

static int take_schedule(struct command *command, char *path)
{
    command->schedule = path;
    return check_path("--check-schedule", path);
}

static int take_prompt(struct command *command, char *text)
{
    command->draw.prompt = text;
    return 0;
}

static int take_count(const char *name, const char *text, int64_t least, int64_t most, int64_t *to)
{
    if (text_int64(text, to) && *to >= least && *to <= most)
        return 0;
    return command_error("%s: '%s' is not a number from %lld to %lld", name, text, (long long)least,
                         (long long)most);
}

static int take_nodes(struct command *command, char *text)
{
    return take_count("--nodes", text, 1, 1 << 20, &command->nodes);
}

static int take_ranks_per_node(struct command *command, char *text)
{
    return take_count("--ranks-per-node", text, 1, 1 << 16, &command->ranks_per_node);
}

static int take_memory(struct command *command, char *text)
{
    return text_bytes(text, &command->memory) && command->memory > 0
               ? 0
               : command_error("--memory: '%s' is no size of a rank's memory, such as 80G", text);
}

/* "25G,10": bytes a second, microseconds. */
static int take_link(struct command *command, char *text)
{
    int64_t bytes;
    const char *comma = strchr(text, ',');
    scope_free char *first = mem_strndup(text, comma ? (size_t)(comma - text) : 0);
    if (!comma || !first || !text_bytes(first, &bytes) || bytes < 1 ||
        !text_double(comma + 1, &command->link_latency_s) || command->link_latency_s < 0)
        return command_error("--link: '%s' is not BYTES/S,US of a node's line to the others, such as 25G,10",
                             text);
    command->link_bytes_s = (double)bytes;
    command->link_latency_s *= 1e-6;
    return 0;
}

static int take_max_tokens(struct command *command, char *text)
{
    return take_count("--max-tokens", text, 1, 1 << 24, &command->draw.tokens);
}

static int take_top_k(struct command *command, char *text)
{
    return take_count("--top-k", text, 0, INT32_MAX, &command->draw.top_k);
}

static int take_seed(struct command *command, char *text)
{
    command->draw.has_seed = true;
    return take_count("--seed", text, 0, INT64_MAX, &command->draw.seed);
}

static int take_top_p(struct command *command, char *text)
{
    double *p = &command->draw.top_p;
    return text_double(text, p) && *p > 0 && *p <= 1
               ? 0
               : command_error("--top-p: '%s' is not a number above 0 and up to 1", text);
}

static int take_temperature(struct command *command, char *text)
{
    double *value = &command->draw.temperature;
    command->draw.has_temperature = true;
    return text_double(text, value) && *value >= 0 && *value <= 1e6
               ? 0
               : command_error("--temperature: '%s' is not a number from 0 to 1e6", text);
}

static int take_task(struct command *command, char *name)
{
    command->task.kind = task_by_name(name);
    return command->task.kind ? 0 : command_error("--task: '%s' is none of hellaswag, arc and lambada", name);
}

static int take_to(struct command *command, char *path)
{
    return *path ? take_path("--to", path, &command->quantize.to) : command_error("--to needs a folder");
}

static int take_method(struct command *command, char *name)
{
    static const char *const methods[] = {"int8", "int4", "gptq", "none"};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (!strcmp(name, methods[i])) {
            command->quantize.method = methods[i];
            return 0;
        }
    return command_error("--method: '%s' is none of int8, int4, gptq and none (pruning alone)", name);
}

static int take_group(struct command *command, char *text)
{
    return take_count("--group", text, 2, 1 << 20, &command->quantize.group);
}

static int take_calibration(struct command *command, char *text)
{
    return take_count("--calibration", text, 1, 1 << 24, &command->quantize.calibration);
}

static int take_prune(struct command *command, char *text)
{
    double *share = &command->quantize.prune;
    return text_double(text, share) && *share > 0 && *share < 1
               ? 0
               : command_error("--prune: '%s' is not a share above 0 and below 1", text);
}

static int take_keep(struct command *command, char *pattern)
{
    if (command->quantize.keep_count == KEEP_LIMIT)
        return command_error("more than %d --keep; a pattern may match several tensors", KEEP_LIMIT);
    command->quantize.keep[command->quantize.keep_count++] = pattern;
    return 0;
}

#define OF(verb) (1u << (verb))
#define NO_STEP  (OF(COMMAND_EVAL) | OF(COMMAND_GENERATE) | OF(COMMAND_QUANTIZE))

/* take: of one with a value; flag: the position of a switch; verbs: bits of the verbs that have it, 0: all.
 */
static const struct own_option {
    const char *name;
    int (*take)(struct command *command, char *value);
    size_t flag;
    unsigned verbs;
} own_options[] = {
    {"--plan", NULL, offsetof(struct command, plan), OF(COMMAND_TRAIN)},
    {"--predict", NULL, offsetof(struct command, predict), OF(COMMAND_TRAIN)},
    {"--suggest", NULL, offsetof(struct command, suggest), OF(COMMAND_TRAIN)},
    {"--nodes", take_nodes, 0, OF(COMMAND_TRAIN)},
    {"--ranks-per-node", take_ranks_per_node, 0, OF(COMMAND_TRAIN)},
    {"--memory", take_memory, 0, OF(COMMAND_TRAIN)},
    {"--link", take_link, 0, OF(COMMAND_TRAIN)},
    {"--verbose", NULL, offsetof(struct command, verbose), 0},
    {"--output=json", NULL, offsetof(struct command, json), 0},
    {"--print-config", NULL, offsetof(struct command, print_config), 0},
    {"--help", NULL, offsetof(struct command, help), 0},
    {"-h", NULL, offsetof(struct command, help), 0},
    {"--settings", NULL, offsetof(struct command, settings), 0},
    {"--keys", NULL, offsetof(struct command, keys), 0},
    {"--version", NULL, offsetof(struct command, version), 0},
    {"--man", NULL, offsetof(struct command, man), 0},
    {"--completion=bash", NULL, offsetof(struct command, bash), 0},
    {"--completion=zsh", NULL, offsetof(struct command, zsh), 0},
    {"--check-schedule", take_schedule, 0, OF(COMMAND_TRAIN)},
    {"--model", take_model, 0, NO_STEP},
    {"--checkpoint", take_checkpoint, 0, NO_STEP},
    {"--task", take_task, 0, OF(COMMAND_EVAL)}, /* and the file after it */
    {"--prompt", take_prompt, 0, OF(COMMAND_GENERATE)},
    {"--max-tokens", take_max_tokens, 0, OF(COMMAND_GENERATE)},
    {"--temperature", take_temperature, 0, OF(COMMAND_GENERATE)},
    {"--top-k", take_top_k, 0, OF(COMMAND_GENERATE)},
    {"--top-p", take_top_p, 0, OF(COMMAND_GENERATE)},
    {"--seed", take_seed, 0, OF(COMMAND_GENERATE)},
    {"--to", take_to, 0, OF(COMMAND_QUANTIZE)},
    {"--method", take_method, 0, OF(COMMAND_QUANTIZE)},
    {"--group", take_group, 0, OF(COMMAND_QUANTIZE)},
    {"--prune", take_prune, 0, OF(COMMAND_QUANTIZE)},
    {"--keep", take_keep, 0, OF(COMMAND_QUANTIZE)},
    {"--calibration", take_calibration, 0, OF(COMMAND_QUANTIZE)},
    {"--tables", NULL, offsetof(struct command, quantize.tables), OF(COMMAND_QUANTIZE)},
    {"--set", take_override, 0, 0},
    {"--world-size", take_world_size, 0, 0},
    {"--trace", take_trace, 0, 0},
    {"--device", take_device, 0, 0},
    {"--comm", take_comm, 0, 0},
    {"--sync-errors", NULL, offsetof(struct command, sync_errors), 0},
    {"--cuda-graphs", NULL, offsetof(struct command, cuda_graphs), 0},
    /* as scripts name their files */
    {"--config", add_path, 0, 0},
    {"--model_config", add_path, 0, 0},
    {"--training_config", add_path, 0, 0},
    {"--optimizer_config", add_path, 0, 0},
    {"--distributed_config", add_path, 0, 0},
    {"--deepspeed", add_path, 0, 0},
    {"--deepspeed_config", add_path, 0, 0},
};
enum { OWN_OPTIONS = sizeof own_options / sizeof *own_options };

static bool same_name(const char *a, const char *b, size_t length)
{
    if (strlen(b) != length)
        return false;
    for (size_t i = 0; i < length; i++)
        if (a[i] != b[i] && !(strchr("-_", a[i]) && strchr("-_", b[i])))
            return false;
    return true;
}

static bool has_option(const struct command *command, const struct own_option *own)
{
    return !own->verbs || own->verbs & OF(command->verb);
}

static const struct own_option *find_own(const struct command *command, const char *name, size_t length)
{
    for (int i = 0; i < OWN_OPTIONS; i++)
        if (has_option(command, &own_options[i]) && same_name(name, own_options[i].name, length))
            return &own_options[i];
    return NULL;
}

static int refuse_option(const struct command *command, const char *word)
{
    const char *names[OWN_OPTIONS];
    size_t count = 0;
    scope_free char *name = mem_strndup(word, strcspn(word, "="));
    for (int i = 0; i < OWN_OPTIONS; i++)
        if (has_option(command, &own_options[i]))
            names[count++] = own_options[i].name;
    const char *own = name ? text_nearest(name, names, count) : NULL;
    const char *foreign = name && !own && strlen(name) > 2 ? formats_nearest_option(name + 2) : NULL;
    return command_error("unknown option '%s'%s%s%s%s", name ? name : word,
                         own || foreign ? "; did you mean '" : "", foreign ? "--" : "",
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
static int take_task_of_file(struct command *command, char *const argv[], int argc, int *at)
{
    char *equals = strchr(argv[*at], '='), *name = equals ? equals + 1 : next_value(argv, argc, *at);
    *at += !equals && name;
    if (!name || take_task(command, name) < 0)
        return name ? -1 : command_error("--task needs hellaswag, arc or lambada, and a file of JSON lines");
    command->task.file = next_value(argv, argc, *at);
    if (!command->task.file)
        return command_error("--task %s needs a file of JSON lines after it", name);
    ++*at;
    return check_path("--task", command->task.file);
}

static int take_own(struct command *command, const struct own_option *own, char *const argv[], int argc,
                    int *at)
{
    char *word = argv[*at], *equals = strchr(word, '=');
    if (own->take == take_task)
        return take_task_of_file(command, argv, argc, at);
    if (!own->take) {
        *(bool *)((char *)command + own->flag) = true;
        return 0;
    }
    if (equals)
        return own->take(command, equals + 1);
    char *value = own->take == take_override || own->take == take_world_size || own->take == take_prompt
                      ? (*at + 1 < argc ? argv[*at + 1] : NULL)
                      : next_value(argv, argc, *at);
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
    const struct own_option *own = find_own(command, word, strlen(word));
    if (!own)
        own = find_own(command, word, strcspn(word, "="));
    if (own && (own->take || !strchr(word, '=') || !strcmp(word, own->name)))
        return take_own(command, own, argv, argc, at);
    return word[1] == '-' ? take_foreign(command, argv, argc, at) : refuse_option(command, word);
}

static const char *const verbs[COMMAND_VERBS] = {"", "eval", "generate", "preprocess", "quantize"};

bool command_is_page(const struct command *command)
{
    return command->help || command->settings || command->keys || command->version || command->man ||
           command->bash || command->zsh || command->schedule;
}

/* Options of a command that takes no step. */
static int check_verb(const struct command *command)
{
    if (command->print_config || command->world_size || command->verbose)
        return command_error("--print-config, --world-size and --verbose do not go with %s",
                             verbs[command->verb]);
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
        if ((argv[i][0] == '-' ? command_option(command, argv, argc, &i) : add_path(command, argv[i])) < 0)
            return -1;
    static char sync_errors[] = "training.sync_errors=true", cuda_graphs[] = "training.cuda_graphs=true";
    if ((command->sync_errors && take_override(command, sync_errors) < 0) ||
        (command->cuda_graphs && take_override(command, cuda_graphs) < 0))
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
    for (int i = 0; i < OWN_OPTIONS && count < limit; i++) {
        words[count] = mem_printf("%s%s", own_options[i].name, own_options[i].take ? "=" : "");
        count += words[count] != NULL;
    }
    return count;
}
