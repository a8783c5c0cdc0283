/* launcher_flag_command_test.c - subcommands that take flags alone: the flags read before the work, which
 * errors come out, and with which code. */
#include <stdlib.h>

#include "launcher/commands/flag_command.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/exit_code.h"
#include "tests/support/cmocka_all.h"

#define VARIABLE "MUSTER_FLAG_COMMAND_TEST"

struct options {
    int64_t number;
    char *word;
    bool help;
};

static const struct knob rows[] = {
    {.name = "number",
     .env = VARIABLE,
     .type = KNOB_INT,
     .offset = KNOB_OFFSET(options, number),
     .initial = "1",
     .max = 9,
     .section = "Flags",
     .help = "a number"},
    {.name = "word",
     .type = KNOB_TEXT,
     .offset = KNOB_OFFSET(options, word),
     .section = "Flags",
     .help = "a word"},
    {.name = "help",
     .letter = 'h',
     .type = KNOB_BOOL,
     .offset = KNOB_OFFSET(options, help),
     .section = "Flags",
     .help = "help"},
};
static const struct knob_table table = {rows, sizeof rows / sizeof *rows};

static const struct command_page page = {.name = "muster try",
                                         .brief = "tries",
                                         .description = "Tries it.",
                                         .exit_codes = "0 tried",
                                         .table = &table};
static const char help_text[] = "usage: muster try [flags]\n\nTries it.\n\nFlags:\n"
                                "  --number                  a number (default 1) [" VARIABLE "]\n"
                                "  --word                    a word\n"
                                "  -h, --help                help\n"
                                "\nExit codes: 0 tried\n";

static int work(const struct flag_command *command, struct buffer *out, struct buffer *complaint,
                struct muster_error *err)
{
    const struct options *options = command->options;
    buffer_printf(out, "%lld from %s, %s\n", (long long)options->number,
                  knob_source_name((enum knob_source)command->sources[0]),
                  options->word ? options->word : "no word");
    if (options->number < 9)
        return EXIT_CODE_OK;
    buffer_text(complaint, "a line before\n");
    (void)error_set(err, MUSTER_E_IO, "nine is too much");
    return EXIT_CODE_NODE;
}

static void expect(char *const argv[], int code, const char *shown, const char *complained)
{
    scope_buffer out = {0}, complaint = {0};
    struct options options = {0};
    uint8_t sources[sizeof rows / sizeof *rows] = {0};
    int argc = 0;
    const struct flag_command command = {&page, &options, &options.help, sources, work};
    while (argv[argc])
        argc++;
    assert_int_equal(flag_command(&command, argc, argv, &out, &complaint), code);
    assert_string_equal(out.data ? out.data : "", shown);
    assert_string_equal(complaint.data ? complaint.data : "", complained);
    assert_null(options.word); /* freed */
}

#define WORDS(...) ((char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

static void the_work_gets_defaults_variables_and_flags(void **state)
{
    (void)state;
    assert_int_equal(unsetenv(VARIABLE), 0);
    expect(WORDS(), EXIT_CODE_OK, "1 from default, no word\n", "");
    expect(WORDS("--word=a", "--number", "3"), EXIT_CODE_OK, "3 from flag, a\n", "");
    assert_int_equal(setenv(VARIABLE, "4", 1), 0);
    expect(WORDS(), EXIT_CODE_OK, "4 from environment, no word\n", "");
    expect(WORDS("--number=2"), EXIT_CODE_OK, "2 from flag, no word\n", "");
    assert_int_equal(unsetenv(VARIABLE), 0);
}

static void bad_words_start_nothing(void **state)
{
    (void)state;
    expect(WORDS("more"), EXIT_CODE_USAGE, "",
           "muster try: error: 'more' is not a flag; --help lists them\n");
    expect(WORDS("--nuber=2"), EXIT_CODE_USAGE, "",
           "muster try: error: unknown flag --nuber; did you mean --number?\n");
    assert_int_equal(setenv(VARIABLE, "10", 1), 0);
    expect(WORDS(), EXIT_CODE_USAGE, "", "muster try: error: " VARIABLE ": '10' is outside 0 to 9\n");
    assert_int_equal(unsetenv(VARIABLE), 0);
}

static void help_comes_before_what_follows_it(void **state)
{
    (void)state;
    expect(WORDS("--help"), EXIT_CODE_OK, help_text, "");
    expect(WORDS("-h", "--nuber", "more"), EXIT_CODE_OK, help_text, "");
}

static void the_works_error_is_the_last_line_and_its_code_stays(void **state)
{
    (void)state;
    expect(WORDS("--number=9"), EXIT_CODE_NODE, "9 from flag, no word\n",
           "a line before\nmuster try: error: nine is too much\n");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_work_gets_defaults_variables_and_flags),
        cmocka_unit_test(bad_words_start_nothing),
        cmocka_unit_test(help_comes_before_what_follows_it),
        cmocka_unit_test(the_works_error_is_the_last_line_and_its_code_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
