/* command_options.c - the options of muster-train: names, help and readers of their values. See command.h.
 */
#include "trainer/run/command/command.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/knob.h"
#include "proto/base/text.h"

int command_error(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("muster-train: error: ", stderr);
    vfprintf(stderr, format, args);
    fputs(" (muster-train --help)\n", stderr);
    va_end(args);
    return -1;
}

int command_check_path(const char *flag, const char *path)
{
    struct muster_error err = {0};
    return text_refuse_scheme(flag, path, &err) < 0 ? command_error("%s", err.text) : 0;
}

int command_add_path(struct command *command, char *path)
{
    if (command_check_path("the configuration", path) < 0)
        return -1;
    if (command->path_count == PATH_LIMIT)
        return command_error("more than %d configuration files", PATH_LIMIT);
    command->paths[command->path_count++] = path;
    return 0;
}

int command_add_override(struct command *command, char *value)
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
    return command_add_override(command, command->trace);
}

static int take_device(struct command *command, char *name)
{
    const int length = snprintf(command->device, sizeof command->device, "training.device=%s", name);
    if (length >= (int)sizeof command->device)
        return command_error("--device=%.20s... is none of auto, cpu, cuda and the names of GPUs (--help)",
                             name);
    return command_add_override(command, command->device);
}

static int take_comm(struct command *command, char *name)
{
    const int length = snprintf(command->comm, sizeof command->comm, "training.comm=%s", name);
    if (length >= (int)sizeof command->comm)
        return command_error("--comm=%.20s... is none of auto, host and nccl", name);
    return command_add_override(command, command->comm);
}

static int take_model(struct command *command, char *path)
{
    mem_free(command->model);
    command->model = mem_printf("model.path=%s", path);
    return command->model ? command_add_override(command, command->model) : command_error("no memory");
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
    return command_check_path("--check-schedule", path);
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

#define OF(verb)      (1u << (verb))
#define NO_STEP       (OF(COMMAND_EVAL) | OF(COMMAND_GENERATE) | OF(COMMAND_QUANTIZE))
#define COMPUTES      (OF(COMMAND_TRAIN) | NO_STEP)
#define EACH          (COMPUTES | OF(COMMAND_PREPROCESS))
#define SWITCH(field) .flag = offsetof(struct command, field)

const struct command_option command_options[] = {
    {"--set", "KEY=VALUE",
     "Sets a key of the configuration. It may be repeated. A list is written [a, b], or its key is repeated.",
     command_add_override, .any_word = true, .pages = EACH},
    {"--output=json", NULL,
     "Prints the result as one JSON object on standard output. All other lines go to standard error.",
     SWITCH(json), .pages = EACH},
    {"--plan", NULL, "Prints the bytes that each rank will hold, by kind, and trains nothing.", SWITCH(plan),
     .verbs = OF(COMMAND_TRAIN)},
    {"--predict", NULL,
     "With --plan: adds the time of a step, from a measurement of its parts on this machine. It takes as "
     "long "
     "as a few steps.",
     SWITCH(predict), .verbs = OF(COMMAND_TRAIN)},
    {"--verbose", NULL, "With --plan: adds every buffer and every operation of a step.", SWITCH(verbose),
     .verbs = OF(COMMAND_TRAIN)},
    {"--suggest", NULL,
     "Tries all meshes of a world for training.global_batch: pipeline, schedule, strategy, micro-batch and "
     "recomputation. It prints the ten fastest that fit, each as YAML, with step, idle share, bytes of the "
     "largest stage and bytes between nodes.",
     SWITCH(suggest), .verbs = OF(COMMAND_TRAIN)},
    {"--world-size", "N",
     "With --plan, --suggest or --print-config: ranks of a world, in place of the present world's.",
     take_world_size, .any_word = true, .verbs = OF(COMMAND_TRAIN)},
    {"--nodes", "N", "With --suggest: nodes of another machine.", take_nodes, .verbs = OF(COMMAND_TRAIN)},
    {"--ranks-per-node", "N", "With --suggest: ranks on each node.", take_ranks_per_node,
     .verbs = OF(COMMAND_TRAIN)},
    {"--memory", "SIZE", "With --suggest: memory of a rank, such as 80G.", take_memory,
     .verbs = OF(COMMAND_TRAIN)},
    {"--link", "BYTES/S,US",
     "With --suggest: a node's line to the others, in bytes a second and microseconds, such as 25G,10.",
     take_link, .verbs = OF(COMMAND_TRAIN)},
    {"--print-config", NULL, "Prints all settings and the origin of each, and trains nothing.",
     SWITCH(print_config), .verbs = OF(COMMAND_TRAIN)},
    {"--check-schedule", "FILE",
     "Proves that a pipeline's schedule (mesh.schedule: FILE) never waits for ever. It needs no CONFIG.",
     take_schedule, .verbs = OF(COMMAND_TRAIN)},
    {"--trace", "STEPS",
     "Records the operations of these steps, as 10 or 10-12, for ui.perfetto.dev (logging.trace). The files "
     "are in logging.dir.",
     take_trace, .pages = OF(COMMAND_TRAIN)},
    {"--checkpoint", "PATH",
     "Takes the parameters of this checkpoint, or of the newest checkpoint in this folder.", take_checkpoint,
     .verbs = NO_STEP},
    {"--model", "PATH",
     "Takes the parameters of a model: a folder of Hugging Face, or a file. Without --checkpoint and --model "
     "they are those of the newest checkpoint in training.checkpoint_dir, else of model.path, else of "
     "training.output.",
     take_model, .verbs = NO_STEP},
    {"--task", "NAME FILE", /* the only option with two values */
     "Asks the questions of a file of JSON lines, as lm-evaluation-harness does, and needs no data. It "
     "prints "
     "acc and acc_norm of hellaswag and arc, acc and perplexity of lambada.",
     take_task, .file_too = true, .verbs = OF(COMMAND_EVAL)},
    {"--prompt", "TEXT", "Text to continue. Default: standard input.", take_prompt, .any_word = true,
     .verbs = OF(COMMAND_GENERATE)},
    {"--max-tokens", "N",
     "Most tokens that are drawn. The tokenizer's end of text is the end, too. Default: 100.",
     take_max_tokens, .verbs = OF(COMMAND_GENERATE)},
    {"--temperature", "T", "Divides the logits before the draw. 0 takes the most likely token. Default: 1.",
     take_temperature, .verbs = OF(COMMAND_GENERATE)},
    {"--top-k", "K", "Draws among the K most likely tokens. 0: among all. Default: 0.", take_top_k,
     .verbs = OF(COMMAND_GENERATE)},
    {"--top-p", "P", "Draws among the most likely tokens that reach the probability P together. Default: 1.",
     take_top_p, .verbs = OF(COMMAND_GENERATE)},
    {"--seed", "N", "Seed of the draws, in place of training.seed.", take_seed,
     .verbs = OF(COMMAND_GENERATE)},
    {"--to", "DIR", "Folder of the result, for model.path and --model.", take_to,
     .verbs = OF(COMMAND_QUANTIZE)},
    {"--method", "NAME",
     "Form of the weights. int8 scales each channel, int4 each group of columns. gptq is int4 that makes up "
     "for each rounding, by samples of the training. none prunes alone.",
     take_method, .verbs = OF(COMMAND_QUANTIZE)},
    {"--group", "N", "Columns of a group (int4, gptq). Default: 64.", take_group,
     .verbs = OF(COMMAND_QUANTIZE)},
    {"--calibration", "N", "Number of training samples that gptq takes. Default: 64.", take_calibration,
     .verbs = OF(COMMAND_QUANTIZE)},
    {"--prune", "SHARE", "Sets this share of each weight to 0, its smallest elements first.", take_prune,
     .verbs = OF(COMMAND_QUANTIZE)},
    {"--tables", NULL, "Stores embeddings and the head in int8, too.", SWITCH(quantize.tables),
     .verbs = OF(COMMAND_QUANTIZE)},
    {"--keep", "PATTERN", "Leaves tensors of this name or pattern as they are. It may be repeated.",
     take_keep, .verbs = OF(COMMAND_QUANTIZE)},
    {"--device", "NAME",
     "Device that computes: auto, cpu or cuda (training.device). With --plan and --suggest "
     "also t4, a100, h100, h200 or b200.",
     take_device, .pages = COMPUTES},
    {"--comm", "NAME", "Transport between ranks: auto, host or nccl (training.comm).", take_comm,
     .pages = COMPUTES},
    {"--sync-errors", NULL,
     "Waits for each operation of a GPU, so that an error names its own operation (training.sync_errors).",
     SWITCH(sync_errors), .pages = COMPUTES},
    {"--cuda-graphs", NULL,
     "Launches the operations of a layer on a GPU as one CUDA graph (training.cuda_graphs).",
     SWITCH(cuda_graphs), .pages = OF(COMMAND_TRAIN)},
    {"--config", "PATH",
     "Names a CONFIG, as a word does. Other programs' names of this option work too: --model_config, "
     "--training_config, --optimizer_config, --distributed_config, --deepspeed, --deepspeed_config.",
     command_add_path, .pages = OF(COMMAND_TRAIN)},
    {"--model_config", "PATH", .take = command_add_path},
    {"--training_config", "PATH", .take = command_add_path},
    {"--optimizer_config", "PATH", .take = command_add_path},
    {"--distributed_config", "PATH", .take = command_add_path},
    {"--deepspeed", "PATH", .take = command_add_path},
    {"--deepspeed_config", "PATH", .take = command_add_path},
    {"--settings", NULL, "Prints the keys of the configuration in Markdown.", SWITCH(settings),
     .pages = OF(COMMAND_TRAIN)},
    {"--keys", NULL, "Prints the keys of other programs with their meaning here, in Markdown.", SWITCH(keys),
     .pages = OF(COMMAND_TRAIN)},
    {"--man", NULL, "Prints the manual page, for man -l -.", SWITCH(man), .pages = OF(COMMAND_TRAIN)},
    {"--completion=bash", NULL, "Prints a completion of this command line for bash.", SWITCH(bash),
     .pages = OF(COMMAND_TRAIN)},
    {"--completion=zsh", NULL, "Prints a completion of this command line for zsh.", SWITCH(zsh),
     .pages = OF(COMMAND_TRAIN)},
    {"--version", NULL, "Prints the version.", SWITCH(version), .pages = OF(COMMAND_TRAIN)},
    {"--help", NULL, "Prints this and exits.", SWITCH(help), .pages = EACH},
    {"-h", NULL, NULL, SWITCH(help)},
    {.name = NULL},
};
