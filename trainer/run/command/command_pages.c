/* command_pages.c - what muster-train prints of itself: --help, --settings, --keys, --version, --man,
 * --completion; and muster-train prepare, whose work trainer/corpus does. See command.h. */
#include <malloc.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/completion.h"
#include "proto/base/futex.h"
#include "proto/base/guard.h"
#include "proto/base/manual.h"
#include "proto/exit_code.h"
#include "runtime/config/train_config.h"
#include "runtime/config/train_plan.h"
#include "runtime/include/muster.h"
#include "trainer/corpus/prepare.h"
#include "trainer/formats/formats.h"
#include "trainer/run/command/command.h"

#define EVAL_USAGE                                                                                           \
    "muster-train eval CONFIG ... [--checkpoint PATH | --model PATH] [--set KEY=VALUE ...] "                 \
    "[--output=json]\n"                                                                                      \
    "muster-train eval [CONFIG ...] [--checkpoint PATH | --model PATH] --task hellaswag|arc|lambada FILE "   \
    "[--output=json]"
#define GENERATE_USAGE                                                                                       \
    "muster-train generate [CONFIG ...] [--checkpoint PATH | --model PATH] [--prompt TEXT] [--max-tokens "   \
    "N] "                                                                                                    \
    "[--temperature T]\n"                                                                                    \
    "             [--top-k K] [--top-p P] [--seed N] [--output=json]"
#define PREPROCESS_USAGE "muster-train preprocess CONFIG ... [--set KEY=VALUE ...] [--output=json]"
#define QUANTIZE_USAGE                                                                                       \
    "muster-train quantize CONFIG ... --method int8|int4|gptq|none --to DIR [--checkpoint PATH | --model "   \
    "PATH] [--group N]\n"                                                                                    \
    "             [--prune SHARE] [--tables] [--keep PATTERN ...] [--calibration N] [--output=json]"

static const char synopsis[] =
    "muster-train CONFIG ... [--set KEY=VALUE ...] [options of other programs] [--plan [--predict] "
    "[--verbose | "
    "--output=json]]\n"
    "             [--print-config [--output=json]] [--world-size N] [--trace STEPS]\n"
    "muster-train CONFIG ... --suggest [--world-size N | --nodes N --ranks-per-node N] [--memory SIZE] "
    "[--link BYTES/S,US]\n"
    "             [--output=json]\n" EVAL_USAGE "\n" GENERATE_USAGE "\n" PREPROCESS_USAGE "\n" QUANTIZE_USAGE
    "\n"
    "muster-train prepare [--input_dir DIR] [--output_dir DIR] [flags]\n"
    "muster-train --check-schedule FILE\n"
    "muster-train --help | --settings | --keys | --version | --man | --completion=bash | --completion=zsh";
/* clang-format off */
static const char description[] =
    "Trains a model without Python: alone, or as every rank of `muster run` or torchrun.\n"
    "\n"
    "CONFIG is a file, or a folder of files. It is YAML (the keys below), DeepSpeed's ds_config.json, TrainingArguments of\n"
    "the Hugging Face Trainer, a model's config.json, or a ConfigMap. A later file replaces settings of an earlier one.\n"
    "Options of other programs are accepted: --data_path, --output_dir, --batch_size_per_gpu, ... (--keys has all).\n"
    "\n"
    "With training.memory_limit a plan that is larger is refused, with the changes of settings that make it fit.";

/* Each has a --help of its own. */
static const struct manual_row commands[] = {
    {"eval", "Prints the loss of a model or a checkpoint, or its figures on a task."},
    {"generate", "Continues a text."},
    {"preprocess", "Makes the tokens of a training, and prints the number of samples."},
    {"quantize", "Writes a model in few bits."},
    {"prepare", "Makes token shards and a tokenizer from raw texts."},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

/* Usage and description of each command; the training comes first. */
static const struct {
    const char *usage, *description;
} pages[COMMAND_VERBS] = {
    [COMMAND_TRAIN] = {synopsis, description},
    [COMMAND_EVAL] = {EVAL_USAGE,
        "Prints loss and perplexity of the samples that are held out, on any number of ranks, and trains nothing. Without such\n"
        "samples it evaluates all of data.path. The figure equals that of an evaluation while training, to the bit. With --task\n"
        "it prints the figures of a task. --model needs no CONFIG then."},
    [COMMAND_GENERATE] = {GENERATE_USAGE,
        "Continues a text with tokens that a language model draws. It prints the new text alone, and reads no data. --model\n"
        "needs no CONFIG."},
    [COMMAND_PREPROCESS] = {PREPROCESS_USAGE,
        "Opens the data, makes the tokens that a training would make, and prints the number of samples. Tokens of texts are\n"
        "kept in data.cache_dir, so that the training begins at once."},
    [COMMAND_QUANTIZE] = {QUANTIZE_USAGE,
        "Writes a model in few bits, in one process. It prints the loss (as eval does) and the bytes before and after."},
};
/* clang-format on */

static unsigned pages_of(const struct command_option *option)
{
    return !option->help ? 0 : option->pages ? option->pages : option->verbs;
}

/* "--to DIR", "-h, --help"; in fresh memory. */
static char *option_name(const struct command_option *option)
{
    return mem_printf("%s%s%s%s", strcmp(option->name, "--help") != 0 ? "" : "-h, ", option->name,
                      option->value ? " " : "", option->value ? option->value : "");
}

static void put_row(const char *name, const char *help, struct buffer *out)
{
    enum { INDENT = 28 };
    if (strlen(name) + 4 > INDENT)
        buffer_printf(out, "  %s\n%*s", name, INDENT, "");
    else
        buffer_printf(out, "  %-*s", INDENT - 2, name);
    knob_wrap(help, INDENT, KNOB_HELP_COLUMNS, out);
}

static int print_help(enum command_verb verb, struct buffer *out)
{
    buffer_printf(out, "usage: %s\n\n%s\n", pages[verb].usage, pages[verb].description);
    if (verb == COMMAND_TRAIN)
        buffer_text(out, "\nCommands, each with a --help of its own:\n");
    for (int i = 0; verb == COMMAND_TRAIN && i < COMMANDS; i++)
        put_row(commands[i].name, commands[i].meaning, out);
    buffer_text(out, "\nOptions:\n");
    for (const struct command_option *option = command_options; option->name; option++) {
        scope_free char *name = pages_of(option) & 1U << verb ? option_name(option) : NULL;
        if (name)
            put_row(name, option->help, out);
    }
    if (verb != COMMAND_TRAIN)
        return buffer_text(out, "\n`muster-train --help` explains CONFIG and its keys.\n");
    buffer_text(out, "\nKeys in YAML, by section:\n\n");
    return knob_help(train_config_table(), KNOB_HELP_COLUMNS, out);
}

static int print_man(struct buffer *out)
{
    static const struct manual_row exits[] = {
        {"0", "the run is complete"},
        {"2", "a setting, a configuration file or its data is wrong, or the plan does not fit into memory"},
        {"143", "stopped by SIGTERM, after a checkpoint where training.checkpoint_dir is set"},
        {"1", "any other failure"},
    };
    enum { ROW_LIMIT = 96 };
    struct manual_row options[ROW_LIMIT];
    int count = 0;
    scope_free char *version = mem_printf("muster %s", muster_version());
    if (!version)
        return -1;
    for (const struct command_option *option = command_options; option->name && count < ROW_LIMIT; option++)
        if (option->help && (options[count].name = option_name(option)))
            options[count++].meaning = option->help;
    const struct manual manual = {.page = "muster-train",
                                  .version = version,
                                  .brief = "trains a model without Python",
                                  .synopsis = synopsis,
                                  .description = description,
                                  .options = "KEYS",
                                  .table = train_config_table(),
                                  .lists = {{"COMMANDS", commands, COMMANDS},
                                            {"OPTIONS", options, (size_t)count},
                                            {"EXIT STATUS", exits, sizeof exits / sizeof *exits}},
                                  .see_also = "muster(1), muster-run(1)"};
    const int result = manual_print(&manual, out);
    for (int i = 0; i < count; i++)
        mem_free((char *)options[i].name);
    return result;
}

static int print_completion(enum completion_shell shell, struct buffer *out)
{
    enum { WORD_LIMIT = 64 };
    char *words[WORD_LIMIT + 1];
    const int count = command_words(words, WORD_LIMIT);
    words[count] = NULL;
    const struct completion_command command = {.name = "", .words = (const char *const *)words};
    const int result = completion_print(shell, "muster-train", &command, 1, out);
    for (int i = 0; i < count; i++)
        mem_free(words[i]);
    return result;
}

/* trainer/docs/SETTINGS.md: installed with the program, and held equal by tests/lint. */
static int print_settings(struct buffer *out)
{
    buffer_text(
        out,
        "# Settings of `muster-train`\n\n"
        "A file of YAML has a mapping for each section: `training.steps` is `steps` in the mapping "
        "`training`.\n"
        "`--set training.steps=100` sets one on the command line, and a program in C passes the same text.\n"
        "`muster-train CONFIG --print-config` prints each value and its origin.\n"
        "`muster-train --settings` prints this document.\n\n");
    return knob_markdown(train_config_table(), out);
}

static int check_schedule(const char *path)
{
    char text[512];
    struct muster_error err = {0};
    if (train_plan_prove_schedule(path, text, sizeof text, &err) < 0) {
        fprintf(stderr, "muster-train: error: %s\n", err.text);
        return exit_code_of_error(err.code);
    }
    printf("%s: %s\n", path, text);
    return fflush(stdout) ? EXIT_CODE_FAILURE : EXIT_CODE_OK;
}

int command_page(const struct command *command)
{
    scope_buffer out = {0};
    if (command->schedule && !command->help)
        return check_schedule(command->schedule);
    const int result = command->help       ? print_help(command->verb, &out)
                       : command->settings ? print_settings(&out)
                       : command->keys     ? formats_markdown(&out)
                       : command->version  ? buffer_printf(&out, "muster-train %s\n", muster_version())
                       : command->man
                           ? print_man(&out)
                           : print_completion(command->zsh ? COMPLETION_ZSH : COMPLETION_BASH, &out);
    return result < 0 || fputs(out.data, stdout) < 0 || fflush(stdout) ? EXIT_CODE_FAILURE : EXIT_CODE_OK;
}

/* ---- muster-train prepare ---- */

/* clang-format off */
static const char prepare_usage[] =
    "usage: muster-train prepare [--input_dir DIR] [--output_dir DIR] [flags]\n"
    "\n"
    "Makes token shards of raw texts. It reads texts, records and tables, drops documents that break a rule and\n"
    "repetitions of earlier documents, trains a sentencepiece model, and writes shards with an index and a report. A run that was killed\n"
    "goes on when it is started again. The result is the same bytes for any number of workers.\n"
    "`muster-train --data_path OUTPUT_DIR` trains on it.\n\n";
/* clang-format on */

static int print_prepare_help(void)
{
    scope_buffer out = {0};
    buffer_text(&out, prepare_usage);
    return knob_help(corpus_settings_table(), KNOB_HELP_COLUMNS, &out) < 0 || fputs(out.data, stdout) < 0 ||
                   fflush(stdout)
               ? EXIT_CODE_FAILURE
               : EXIT_CODE_OK;
}

static void print_prepare_line(void *context, enum log_level level, const char *line)
{
    (void)context;
    (void)level;
    (void)puts(line); /* a closed console does not stop the work */
    (void)fflush(stdout);
}

static int fail_prepare(const struct muster_error *err)
{
    fprintf(stderr, "muster-train prepare: error: %s\n", err->text);
    return exit_code_of_error(err->code);
}

int prepare_command(int argc, char *const argv[])
{
    const struct log_sink log = {.write = print_prepare_line, .threshold = LOG_LEVEL_INFO};
    struct corpus_settings settings = {0};
    struct muster_error err = {0};
    int code = EXIT_CODE_OK;
    /* Tables of some 30 MB come and go. After the first is freed the allocator keeps such sizes in its heap.
     * The next table, a little larger, finds no room there: two or three of them stay. */
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 20); /* else more memory is used */
    if (futex_check(&err) < 0 || corpus_settings_parse(&settings, argc, argv, &err) < 0)
        code = fail_prepare(&err);
    else if (settings.help)
        code = print_prepare_help();
    else if (prepare_run(&settings, &log, &err) < 0)
        code = fail_prepare(&err);
    corpus_settings_free(&settings);
    return code;
}
