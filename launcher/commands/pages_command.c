/* pages_command.c - see commands.h. */
#include "launcher/commands/commands.h"

#include <string.h>

#include "proto/base/completion.h"
#include "proto/base/guard.h"
#include "proto/base/manual.h"
#include "proto/base/text.h"
#include "proto/exit_code.h"

enum { SUBJECT_LIMIT = 32 };
static const char name_prefix[] = "muster ";

/* "run" of "muster run". */
static const char *short_name(const struct pages_subject *subject)
{
    return subject->page.name + sizeof name_prefix - 1;
}

static const struct manual_row exit_rows[] = {
#define EXIT_ROW(symbol, value, meaning) {#value, meaning},
    MUSTER_EXIT_CODES(EXIT_ROW)
#undef EXIT_ROW
        {"128+n", "a worker was ended by signal n; any other code is the first failing worker's own"},
};

/* ---- manual pages ---- */

static int print_overview(const struct pages_subject *subjects, int count, struct buffer *out)
{
    struct manual_row rows[SUBJECT_LIMIT];
    for (int i = 0; i < count; i++)
        rows[i] = (struct manual_row){short_name(&subjects[i]), subjects[i].page.brief};
    const struct manual manual = {
        .page = "muster",
        .version = "muster " MUSTER_VERSION,
        .brief = "starts, watches and restarts distributed training",
        .synopsis = "muster SUBCOMMAND [arguments]\ntorchrun [flags] [--] program [arguments]",
        .description =
            "A drop-in replacement for PyTorch's torchrun: it forms the world, starts one process for each "
            "GPU, watches them, restarts them together, and reports which one failed first and why. Through "
            "a "
            "link named torchrun it is muster run.",
        .lists = {{"SUBCOMMANDS", rows, (size_t)count},
                  {"EXIT STATUS", exit_rows, sizeof exit_rows / sizeof *exit_rows}},
        .see_also = "muster-run(1), muster-local(1), muster-status(1), muster-doctor(1), muster-train(1)"};
    return manual_print(&manual, out);
}

/* Pages of commands with torchrun's exit codes have the table, the others their own line. */
static int print_page(const struct pages_subject *subject, struct buffer *out)
{
    const struct command_page *page = &subject->page;
    const struct manual_row own = {"", page->exit_codes};
    scope_free char *name = mem_printf("muster-%s", short_name(subject));
    if (!name)
        return -1;
    const struct manual manual = {
        .page = name,
        .version = "muster " MUSTER_VERSION,
        .brief = page->brief,
        .synopsis = subject->synopsis,
        .description = page->description,
        .options = "OPTIONS",
        .table = page->table,
        .lists = {page->exit_codes
                      ? (struct manual_list){"EXIT STATUS", &own, 1}
                      : (struct manual_list){"EXIT STATUS", exit_rows, sizeof exit_rows / sizeof *exit_rows}},
        .see_also = "muster(1)"};
    return manual_print(&manual, out);
}

static int find_subject(const struct pages_subject *subjects, int count, const char *name,
                        struct buffer *complaint)
{
    const char *names[SUBJECT_LIMIT];
    for (int i = 0; i < count; i++) {
        names[i] = short_name(&subjects[i]);
        if (!strcmp(name, names[i]))
            return i;
    }
    const char *near = text_nearest(name, names, (size_t)count);
    buffer_printf(complaint, "muster man: error: there is no page '%.64s'%s%s%s\n", name,
                  near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    return -1;
}

int pages_man(const struct pages_subject *subjects, int count, int argc, char *const argv[],
              struct buffer *out, struct buffer *complaint)
{
    if (argc > 1) {
        buffer_text(complaint, "muster man: error: one page at a time: muster man [SUBCOMMAND]\n");
        return EXIT_CODE_USAGE;
    }
    if (argc == 0 || !strcmp(argv[0], "--help"))
        return print_overview(subjects, count, out) < 0 ? EXIT_CODE_FAILURE : EXIT_CODE_OK;
    const int at = find_subject(subjects, count, argv[0], complaint);
    if (at < 0)
        return EXIT_CODE_USAGE;
    return print_page(&subjects[at], out) < 0 ? EXIT_CODE_FAILURE : EXIT_CODE_OK;
}

/* ---- completion ---- */

int pages_completion(const struct pages_subject *subjects, int count, int argc, char *const argv[],
                     struct buffer *out, struct buffer *complaint)
{
    struct completion_command commands[SUBJECT_LIMIT];
    for (int i = 0; i < count; i++)
        commands[i] = (struct completion_command){.name = short_name(&subjects[i]),
                                                  .help = subjects[i].page.brief,
                                                  .table = subjects[i].page.table};
    for (int shell = 0; argc == 1 && shell < COMPLETION_SHELL_COUNT; shell++)
        if (!strcmp(argv[0], completion_shell_name((enum completion_shell)shell)))
            return completion_print((enum completion_shell)shell, "muster", commands, (size_t)count, out) < 0
                       ? EXIT_CODE_FAILURE
                       : EXIT_CODE_OK;
    buffer_text(complaint,
                "muster completion: error: name one shell, bash or zsh: source <(muster completion bash)\n");
    return EXIT_CODE_USAGE;
}
