/* base_knob_test.c - the knob table: values, ranges, prefixes, sources, help. */
#include "proto/base/error.h"
#include "proto/base/knob.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/faults.h"

struct options {
    int64_t restarts;
    double interval;
    bool standalone;
    char *role;
    int start;
};

static const char *const starts[] = {"spawn", "fork", NULL};
static const struct knob rows[] = {
    {.name = "max-restarts",
     .env = "PET_MAX_RESTARTS",
     .type = KNOB_INT,
     .offset = KNOB_OFFSET(options, restarts),
     .initial = "0",
     .min = 0,
     .max = 1000,
     .section = "World",
     .help = "how often"},
    {.name = "monitor-interval",
     .type = KNOB_DOUBLE,
     .offset = KNOB_OFFSET(options, interval),
     .initial = "0.1",
     .min = 0.001,
     .max = 60,
     .unit = "s",
     .section = "World",
     .help = "how long"},
    {.name = "standalone",
     .type = KNOB_BOOL,
     .offset = KNOB_OFFSET(options, standalone),
     .section = "World",
     .help = "one node"},
    {.name = "role",
     .letter = 'r',
     .type = KNOB_TEXT,
     .offset = KNOB_OFFSET(options, role),
     .initial = "default",
     .section = "Worker",
     .help = "name"},
    {.name = "start-method",
     .type = KNOB_CHOICE,
     .offset = KNOB_OFFSET(options, start),
     .initial = "spawn",
     .choices = starts,
     .section = "Worker",
     .help = "how"},
    {.name = "run-path", .type = KNOB_BOOL, .refused = "--run-path needs Python inside the agent; use -m"},
};
static const struct knob_table table = {rows, sizeof rows / sizeof *rows};

static const struct knob *row(const char *name)
{
    return knob_find(&table, name, strlen(name), false, NULL);
}

static void values_ranges_and_sources(void **state)
{
    (void)state;
    struct options o = {0};
    uint8_t sources[6] = {0};
    struct muster_error err = {0};
    assert_int_equal(knob_defaults(&table, &o, &err), 0);
    assert_true(o.restarts == 0 && o.interval == 0.1 && !strcmp(o.role, "default") && o.start == 0);
    assert_int_equal(
        knob_set(&table, &o, sources, row("max_restarts"), "3", KNOB_FROM_FLAG, "--max-restarts", &err), 0);
    assert_int_equal(o.restarts, 3);
    assert_int_equal(sources[0], KNOB_FROM_FLAG);
    assert_int_equal(
        knob_set(&table, &o, sources, row("max-restarts"), "-1", KNOB_FROM_FLAG, "--max-restarts", &err), -1);
    assert_string_equal(err.text, "--max-restarts: '-1' is outside 0 to 1000");
    assert_int_equal(o.restarts, 3);
    assert_int_equal(
        knob_set(&table, &o, sources, row("start-method"), "x", KNOB_FROM_FLAG, "--start-method", &err), -1);
    assert_string_equal(err.text, "--start-method: 'x' is not one of spawn, fork");
    assert_int_equal(knob_set(&table, &o, sources, row("run-path"), "1", KNOB_FROM_FLAG, "--run-path", &err),
                     -1);
    assert_int_equal(err.code, MUSTER_E_UNSUPPORTED);
    knob_free(&table, &o);
}

static const char *environment(void *context, const char *name)
{
    return strcmp(name, "PET_MAX_RESTARTS") ? NULL : context;
}

static void environment_gives_defaults(void **state)
{
    (void)state;
    struct options o = {0};
    struct muster_error err = {0};
    char good[] = "7", bad[] = "x";
    assert_int_equal(knob_read_environment(&table, &o, NULL, environment, good, &err), 0);
    assert_int_equal(o.restarts, 7);
    assert_int_equal(knob_read_environment(&table, &o, NULL, environment, bad, &err), -1);
    assert_string_equal(err.text, "PET_MAX_RESTARTS: 'x' is not a whole number");
}

static void names_prefixes_and_hints(void **state)
{
    (void)state;
    bool ambiguous;
    assert_ptr_equal(knob_find(&table, "max", 3, true, &ambiguous), &rows[0]);
    assert_null(knob_find(&table, "m", 1, true, &ambiguous));
    assert_true(ambiguous);
    assert_null(knob_find(&table, "max", 3, false, &ambiguous));
    assert_ptr_equal(knob_find_letter(&table, 'r'), &rows[3]);
    assert_string_equal(knob_nearest(&table, "stand-alone"), "standalone");
}

static void help_shows_every_row(void **state)
{
    (void)state;
    scope_buffer out = {0};
    assert_int_equal(knob_help(&table, 80, &out), 0);
    for (size_t i = 0; i < table.count; i++)
        assert_non_null(strstr(out.data, rows[i].name));
    assert_non_null(strstr(out.data, "(default 0.1 s)"));
}

static void sentences_are_followed_by_sentences(void **state)
{
    (void)state;
    static const struct {
        struct knob knob;
        const char *text;
    } cases[] = {
        {{.type = KNOB_DOUBLE, .initial = "0.1", .unit = "s", .help = "How long."},
         "How long. Default: 0.1 s."},
        {{.type = KNOB_CHOICE, .initial = "fork", .choices = starts, .help = "Kind."},
         "Kind. One of spawn, fork. Default: fork."},
        {{.type = KNOB_TEXT, .initial = "\n", .help = "Text."}, "Text. Default: a line end."},
        {{.type = KNOB_TEXT, .initial = "", .implied = "here", .help = "Place."},
         "Place. Without a value: here."},
        {{.type = KNOB_BOOL, .initial = "false", .help = "Waits."}, "Waits."},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scope_buffer out = {0};
        knob_describe(&cases[i].knob, &out);
        assert_string_equal(out.data, cases[i].text);
    }
}

static void markdown_has_a_list_for_each_section(void **state)
{
    (void)state;
    scope_buffer out = {0};
    assert_int_equal(knob_markdown(&table, &out), 0);
    assert_non_null(strstr(out.data, "## World\n\n"
                                     "- `--max-restarts` (`PET_MAX_RESTARTS`): how often (default 0)\n"
                                     "- `--monitor-interval`: how long (default 0.1 s)\n"
                                     "- `--standalone`: one node\n\n## Worker\n\n"));
    assert_non_null(strstr(out.data, "- `-r`, `--role`: name (default default)\n"));
    assert_non_null(strstr(out.data, "- `--start-method`: how; one of spawn fork (default spawn)\n"));
}

static void markdown_is_wrapped_and_escaped(void **state)
{
    (void)state;
    const struct knob knob = {
        .name = "training.frozen",
        .type = KNOB_TEXT,
        .section = "training",
        .help = "Patterns: a <name>, or h.* for all layers of a model, with as many words as it "
                "takes to fill more than a line of a document."};
    const struct knob_table one = {.knobs = &knob, .count = 1};
    scope_buffer out = {0};
    assert_int_equal(knob_markdown(&one, &out), 0);
    assert_non_null(strstr(out.data, "- `training.frozen`: Patterns: a \\<name>, or h.\\* for all layers"));
    assert_non_null(strstr(out.data, "\n  "));
    for (const char *line = out.data; *line; line += strcspn(line, "\n") + 1)
        assert_true(strcspn(line, "\n") <= KNOB_MARKDOWN_COLUMNS);
}

static void values_as_json_have_types(void **state)
{
    (void)state;
    static const char *const expected[] = {"0", "0.1", "false", "\"a\\\"b\"", "\"spawn\""};
    struct options o = {0};
    assert_int_equal(knob_defaults(&table, &o, NULL), 0);
    assert_int_equal(knob_set(&table, &o, NULL, row("role"), "a\"b", KNOB_FROM_FLAG, "--role", NULL), 0);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        scope_buffer out = {0};
        assert_int_equal(knob_format_json(&rows[i], &o, &out), 0);
        assert_string_equal(out.data, expected[i]);
    }
    knob_free(&table, &o);
    scope_buffer out = {0};
    assert_int_equal(knob_format_json(row("role"), &o, &out), 0);
    assert_string_equal(out.data, "null");
}

static int defaults_once(void *context)
{
    (void)context;
    struct options o = {0};
    int result = knob_defaults(&table, &o, NULL);
    knob_free(&table, &o);
    return result;
}

static void defaults_survive_no_memory(void **state)
{
    (void)state;
    faults_sweep(defaults_once, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_ranges_and_sources),
        cmocka_unit_test(environment_gives_defaults),
        cmocka_unit_test(names_prefixes_and_hints),
        cmocka_unit_test(help_shows_every_row),
        cmocka_unit_test(defaults_survive_no_memory),
        cmocka_unit_test(markdown_has_a_list_for_each_section),
        cmocka_unit_test(markdown_is_wrapped_and_escaped),
        cmocka_unit_test(values_as_json_have_types),
        cmocka_unit_test(sentences_are_followed_by_sentences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
