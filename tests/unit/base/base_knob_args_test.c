/* base_knob_args_test.c - a command line read by a knob table. */
#include "proto/base/knob_args.h"
#include "tests/support/cmocka_all.h"

struct options {
    char **files;
    char *output;
    int64_t depth;
    bool dry_run, dry_wash, help;
};

static const struct knob rows[] = {
    {.name = "filename", .letter = 'f', .type = KNOB_LIST, .offset = KNOB_OFFSET(options, files)},
    {.name = "output", .letter = 'o', .type = KNOB_TEXT, .offset = KNOB_OFFSET(options, output)},
    {.name = "depth", .type = KNOB_INT, .offset = KNOB_OFFSET(options, depth), .min = -5, .max = 5},
    {.name = "dry-run", .type = KNOB_BOOL, .offset = KNOB_OFFSET(options, dry_run)},
    {.name = "dry-wash", .type = KNOB_BOOL, .offset = KNOB_OFFSET(options, dry_wash)},
    {.name = "help", .letter = 'h', .type = KNOB_BOOL, .offset = KNOB_OFFSET(options, help)},
    {.name = "old", .refused = "use --new"},
};
static const struct knob_table table = {rows, sizeof rows / sizeof *rows};

/* Parses words (ended by NULL); returns where it stopped, or -1. */
static int parse(struct options *o, struct muster_error *err, char *const words[])
{
    int count = 0, at = 0;
    while (words[count])
        count++;
    *o = (struct options){0};
    return knob_parse_flags(&table, o, NULL, count, words, &at, &o->help, err) < 0 ? -1 : at;
}

#define PARSE(...) parse(&o, &err, (char *[]){__VA_ARGS__, NULL})

static void every_spelling(void **state)
{
    (void)state;
    struct options o;
    struct muster_error err = {0};
    assert_int_equal(PARSE("-fa", "-f", "b", "-f=c", "--filename=d=e", "--file", "-", "--dry_run", "--depth",
                           "-3", "rest", "-x"),
                     10);
    static const char *const files[] = {"a", "b", "c", "d=e", "-"};
    for (int i = 0; i < 5; i++)
        assert_string_equal(o.files[i], files[i]);
    assert_null(o.files[5]);
    assert_true(o.dry_run && o.depth == -3 && !o.output);
    struct buffer text = {0};
    assert_int_equal(knob_format(&rows[0], &o, &text), 0);
    assert_string_equal(text.data, "a,b,c,d=e,-");
    buffer_free(&text);
    knob_free(&table, &o);
    assert_null(o.files);
    assert_int_equal(PARSE("--dry-run", "--", "--dry-wash"), 2);
    assert_false(o.dry_wash);
    assert_int_equal(PARSE("-h", "--nonsense"), 1);
    assert_true(o.help);
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    struct options o;
    struct muster_error err = {0};
    assert_int_equal(PARSE("--dry"), -1);
    assert_string_equal(err.text, "--dry could be any of --dry-run, --dry-wash");
    assert_int_equal(PARSE("--ouput=x"), -1);
    assert_string_equal(err.text, "unknown flag --ouput; did you mean --output?");
    assert_int_equal(PARSE("-z"), -1);
    assert_string_equal(err.text, "unknown flag -z; --help lists all flags");
    assert_int_equal(PARSE("--dry-run=yes"), -1);
    assert_string_equal(err.text, "--dry-run takes no value, but 'yes' was given");
    assert_int_equal(PARSE("-o", "--dry-run"), -1);
    assert_string_equal(err.text, "-o needs a value");
    assert_int_equal(PARSE("--old", "x"), -1);
    assert_int_equal(err.code, MUSTER_E_UNSUPPORTED);
    assert_int_equal(PARSE("--depth=9"), -1);
    assert_string_equal(err.text, "--depth: '9' is outside -5 to 5");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_spelling),
        cmocka_unit_test(what_is_wrong_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
