/* prepare_command.c - see prepare_command.h. */
#include "trainer/run/prepare_command.h"

#include <malloc.h>
#include <stdio.h>

#include "proto/base/buffer.h"
#include "proto/exit_code.h"
#include "trainer/corpus/prepare.h"

static const char usage[] = "usage: muster-train prepare [--input_dir DIR] [--output_dir DIR] [flags]\n\n"
                            "Raw texts in, token shards out: reads text, JSON lines, and both with gzip or "
                            "zstd; drops what breaks a rule\n"
                            "and what repeats an earlier document; trains a sentencepiece model; writes "
                            "shards with an index and a report.\n"
                            "A run that was killed goes on where it was when it is started again; the result "
                            "is the same bytes for any\n"
                            "number of workers. muster-train --data_path OUTPUT_DIR trains on it.\n\n";

static int print_help(void)
{
    scope_buffer out = {0};
    buffer_text(&out, usage);
    return knob_help(corpus_settings_table(), KNOB_HELP_COLUMNS, &out) < 0 || fputs(out.data, stdout) < 0 ||
                   fflush(stdout)
               ? EXIT_CODE_FAILURE
               : EXIT_CODE_OK;
}

static void print_line(void *context, enum log_level level, const char *line)
{
    (void)context;
    (void)level;
    (void)puts(line); /* a closed console does not stop the work */
    (void)fflush(stdout);
}

static int fail(const struct muster_error *err)
{
    fprintf(stderr, "muster-train prepare: error: %s\n", err->text);
    return exit_code_of_error(err->code);
}

/* Tables of some 30 MB come and go. Left to itself the allocator takes the first one that is freed as a sign
 * to keep such sizes in its heap, where the next one, a little larger, finds no room: two or three of them
 * stay. */
static void return_large_blocks(void)
{
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 20); /* else more memory is used */
}

int prepare_command(int argc, char *const argv[])
{
    const struct log_sink log = {.write = print_line, .threshold = LOG_LEVEL_INFO};
    struct corpus_settings settings = {0};
    struct muster_error err = {0};
    int code = EXIT_CODE_OK;
    return_large_blocks();
    if (corpus_settings_parse(&settings, argc, argv, &err) < 0)
        code = fail(&err);
    else if (settings.help)
        code = print_help();
    else if (prepare_run(&settings, &log, &err) < 0)
        code = fail(&err);
    corpus_settings_free(&settings);
    return code;
}
