/* command_pages.c - what muster-train prints of itself: --help, --settings, --keys, --version, --man,
 * --completion; and muster-train prepare, whose work trainer/corpus does. See command.h. */
#include <malloc.h>
#include <stdio.h>

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
#include "trainer/run/command.h"

static const char synopsis[] =
    "muster-train CONFIG ... [--set key=value ...] [options of other programs] [--plan [--predict] "
    "[--verbose | "
    "--output=json]]\n"
    "             [--print-config [--output=json]] [--world-size N] [--trace STEPS]\n"
    "muster-train CONFIG ... --suggest [--world-size N | --nodes N --ranks-per-node N] [--memory SIZE] "
    "[--link BYTES/S,US]\n"
    "             [--output=json]\n"
    "muster-train eval CONFIG ... [--checkpoint PATH | --model PATH] [--set key=value ...] [--output=json]\n"
    "muster-train eval CONFIG ... | --model PATH [--checkpoint PATH] --task hellaswag|arc|lambada FILE "
    "[--output=json]\n"
    "muster-train generate CONFIG ... | --model PATH [--checkpoint PATH] [--prompt TEXT] [--max-tokens N] "
    "[--temperature T]\n"
    "             [--top-k K] [--top-p P] [--seed N] [--output=json]\n"
    "muster-train preprocess CONFIG ... [--set key=value ...] [--output=json]\n"
    "muster-train quantize CONFIG ... --method int8|int4|gptq|none --to DIR [--checkpoint PATH | --model "
    "PATH] [--group N]\n"
    "             [--prune SHARE] [--tables] [--keep PATTERN ...] [--calibration SAMPLES] [--output=json]\n"
    "muster-train prepare [--input_dir DIR] [--output_dir DIR] [flags]\n"
    "muster-train --check-schedule FILE\n"
    "muster-train --help | --settings | --keys | --version | --man | --completion=bash | --completion=zsh";
/* clang-format off */
static const char description[] =
    "Trains a model without Python: alone, or as every rank of `muster run` or torchrun.\n"
    "\n"
    "CONFIG is a file, or a folder of files. It is YAML (the keys below), DeepSpeed's ds_config.json, TrainingArguments of\n"
    "the Hugging Face Trainer, a model's config.json, or a ConfigMap. A later file replaces settings of an earlier one.\n"
    "Options of other programs are accepted: --deepspeed FILE, --data_path, --output_dir, --batch_size_per_gpu, ...\n"
    "--keys lists the keys of other programs with their meaning here, --settings the keys below; both in Markdown.\n"
    "--set key=value sets a key of the configuration. --print-config prints all settings and the origin of each.\n"
    "\n"
    "--plan prints the bytes that each rank will hold, by kind, and trains nothing.\n"
    "--predict adds the time of a step, from a measurement of its parts on this machine. It takes as long as a few steps.\n"
    "--verbose adds every buffer and every operation of a step. --output=json prints one JSON object.\n"
    "With training.memory_limit a larger plan is refused, with the changes of settings that make it fit.\n"
    "--suggest tries all meshes of a world for training.global_batch: pipeline, schedule, strategy, micro-batch and\n"
    "recomputation. It prints the ten fastest that fit, each as YAML, with step, idle share, bytes of the largest stage and\n"
    "bytes between nodes. --nodes, --ranks-per-node, --memory (of a rank) and --link (of a node) describe another machine.\n"
    "--check-schedule proves that a pipeline's schedule (mesh.schedule: FILE) never waits for ever, without a model.\n"
    "--trace 10-12 (logging.trace) records the operations of these steps for ui.perfetto.dev, in logging.dir.\n"
    "--device=auto|cpu|cuda, --comm=auto|host|nccl, --sync-errors and --cuda-graphs set the same keys of training.\n"
    "Without --plan, --output=json prints the result of the training as one JSON object. Other lines go to standard error.\n"
    "\n"
    "prepare makes token shards and a tokenizer from raw texts (muster-train prepare --help). data.path reads its folder.\n"
    "preprocess opens the data, makes the tokens that a training would make, and prints the number of samples.\n"
    "eval prints loss and perplexity of the samples that are held out, on any number of ranks, and trains nothing. Without\n"
    "such samples it evaluates all of data.path. It takes the parameters of the first of these that is set: the checkpoint\n"
    "--checkpoint or the newest in that folder, the newest checkpoint in training.checkpoint_dir, --model (model.path).\n"
    "eval --task asks the questions of a file of JSON lines, as lm-evaluation-harness does, and prints acc, acc_norm or perplexity.\n"
    "generate continues --prompt, or standard input, with text from the same parameters. It draws at most --max-tokens (100)\n"
    "tokens, up to the tokenizer's end of text. --temperature (1), --top-k and --top-p (all) choose among the likely tokens;\n"
    "temperature 0 takes the most likely one. --seed replaces training.seed.\n"
    "quantize writes the same parameters in few bits to a folder, --to, for --model and model.path. It prints the loss (as\n"
    "eval does) and the bytes before and after. --method int8 scales each channel, int4 groups of --group (64) columns, gptq\n"
    "int4 by --calibration (64) training samples; none only prunes. --prune 0.5 sets the smaller half of each weight to 0.\n"
    "--keep leaves tensors as they are. --tables stores embeddings and the head in int8, too.";
/* clang-format on */

static int print_help(struct buffer *out)
{
    buffer_printf(out, "usage: %s\n\n%s\n\nKeys in YAML, by section:\n\n", synopsis, description);
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
    scope_free char *version = mem_printf("muster %s", muster_version());
    if (!version)
        return -1;
    const struct manual manual = {.page = "muster-train",
                                  .version = version,
                                  .brief = "trains a model without Python",
                                  .synopsis = synopsis,
                                  .description = description,
                                  .options = "KEYS",
                                  .table = train_config_table(),
                                  .lists = {{"EXIT STATUS", exits, sizeof exits / sizeof *exits}},
                                  .see_also = "muster(1), muster-run(1)"};
    return manual_print(&manual, out);
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
    const int result = command->help       ? print_help(&out)
                       : command->settings ? print_settings(&out)
                       : command->keys     ? formats_markdown(&out)
                       : command->version  ? buffer_printf(&out, "muster-train %s\n", muster_version())
                       : command->man
                           ? print_man(&out)
                           : print_completion(command->zsh ? COMPLETION_ZSH : COMPLETION_BASH, &out);
    return result < 0 || fputs(out.data, stdout) < 0 || fflush(stdout) ? EXIT_CODE_FAILURE : EXIT_CODE_OK;
}

/* ---- muster-train prepare ---- */

static const char prepare_usage[] =
    "usage: muster-train prepare [--input_dir DIR] [--output_dir DIR] [flags]\n\n"
    "Raw texts in, token shards out: reads text, JSON lines, and both with gzip or "
    "zstd; drops what breaks a rule\n"
    "and what repeats an earlier document; trains a sentencepiece model; writes "
    "shards with an index and a report.\n"
    "A run that was killed goes on where it was when it is started again; the result "
    "is the same bytes for any\n"
    "number of workers. muster-train --data_path OUTPUT_DIR trains on it.\n\n";

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

/* Tables of some 30 MB come and go. After the first is freed the allocator keeps such sizes in its heap. The
 * next table, a little larger, finds no room there: two or three of them stay. */
static void return_large_blocks(void)
{
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 20); /* else more memory is used */
}

int prepare_command(int argc, char *const argv[])
{
    const struct log_sink log = {.write = print_prepare_line, .threshold = LOG_LEVEL_INFO};
    struct corpus_settings settings = {0};
    struct muster_error err = {0};
    int code = EXIT_CODE_OK;
    return_large_blocks();
    if (futex_check(&err) < 0 || corpus_settings_parse(&settings, argc, argv, &err) < 0)
        code = fail_prepare(&err);
    else if (settings.help)
        code = print_prepare_help();
    else if (prepare_run(&settings, &log, &err) < 0)
        code = fail_prepare(&err);
    corpus_settings_free(&settings);
    return code;
}
