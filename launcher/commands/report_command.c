/* report_command.c - see commands.h. */
#include "launcher/commands/commands.h"

#include "launcher/board/board_report.h"
#include "launcher/commands/board_source.h"
#include "launcher/page/page.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/exit_code.h"

struct options {
    char *state_dir, *job, *output;
    int64_t pid;
    bool help;
};

#define AT(member) KNOB_OFFSET(options, member)

static const struct knob rows[] = {
    {.name = "state-dir",
     .env = "MUSTER_STATE_DIR",
     .type = KNOB_TEXT,
     .text = KNOB_FILE,
     .offset = AT(state_dir),
     .section = "Flags",
     .help = "folder that muster run --state-dir was given; without it the running agent of this machine"},
    {.name = "output",
     .letter = 'o',
     .type = KNOB_TEXT,
     .text = KNOB_FILE,
     .offset = AT(output),
     .section = "Flags",
     .help = "file to write; without it standard output"},
    AGENT_CHOICE_ROWS(AT(pid), AT(job)),
    KNOB_HELP_ROW(AT(help), "Flags"),
};
static const struct knob_table table = {rows, sizeof rows / sizeof *rows};

static int report_write(const struct flag_command *command, struct buffer *out, struct buffer *complaint,
                        struct muster_error *err)
{
    const struct options *options = command->options;
    const struct board_source source = {.command = command->page->name,
                                        .state_dir = options->state_dir,
                                        .pid = options->pid,
                                        .job = options->job};
    int code;
    struct board *board = board_source_read(&source, &code, complaint, err);
    if (!board)
        return code;
    board_report(board, report_style, report_style_length, out);
    board_free(board);
    if (!options->output || !*options->output || out->failed)
        return EXIT_CODE_OK;
    code = io_write_file_atomic(options->output, out->data, out->length, 0644, err) < 0 ? EXIT_CODE_FAILURE
                                                                                        : EXIT_CODE_OK;
    buffer_clear(out);
    return code;
}

const struct command_page report_page = {
    .name = "muster report",
    .brief = "writes a job's report as one HTML file",
    .description =
        "The verdict of a job, its rounds and how long each recovery took in its parts, goodput, "
        "curves and ranks,\nas one HTML file without script, of a finished job (--state-dir) or of one "
        "that runs on this machine.",
    .exit_codes =
        "0 written; 1 no such job or agent, or it cannot be read or written; 2 bad usage, or several "
        "jobs\nand none was chosen (they are listed)",
    .table = &table};

int report_command(int argc, char *const argv[], struct buffer *out, struct buffer *complaint)
{
    struct options options = {0};
    uint8_t sources[sizeof rows / sizeof *rows] = {0};
    const struct flag_command command = {&report_page, &options, &options.help, sources, report_write};
    return flag_command(&command, argc, argv, out, complaint);
}
