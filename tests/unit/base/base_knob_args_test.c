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

/* What begins with a dash is a value where a digit follows, or nothing; else a flag. */
static void values_that_begin_with_a_dash(void **state)
{
    (void)state;
    for (int c = 1; c < 128; c++) {
        struct options o;
        struct muster_error err = {0};
        char value[] = {'-', (char)c, 0};
        int result = PARSE("-o", value);
        assert_int_equal(result, c >= '0' && c <= '9' ? 2 : -1);
        if (result == 2)
            assert_string_equal(o.output, value);
        knob_free(&table, &o);
    }
    struct options o;
    struct muster_error err = {0};
    assert_int_equal(PARSE("-"), 0); /* and by itself it is no flag */
    assert_int_equal(PARSE("x"), 0);
    assert_int_equal(PARSE(""), 0);
}

/* A name that begins another name, and the first row. */
static void names_within_names(void **state)
{
    (void)state;
    static const struct knob similar[] = {
        {.name = "dry-run", .type = KNOB_BOOL, .offset = KNOB_OFFSET(options, dry_run)},
        {.name = "dry", .type = KNOB_BOOL, .offset = KNOB_OFFSET(options, help)},
        {.name = "dry-wash", .type = KNOB_BOOL, .offset = KNOB_OFFSET(options, dry_wash)}};
    const struct knob_table names = {similar, 3};
    bool ambiguous = true;
    assert_ptr_equal(knob_find(&names, "dry", 3, true, &ambiguous), &similar[1]);
    assert_false(ambiguous);
    assert_null(knob_find(&names, "dr", 2, true, &ambiguous));
    assert_true(ambiguous);
    ambiguous = true;
    assert_null(knob_find(&names, "dr", 2, false, &ambiguous));
    assert_false(ambiguous);
    struct options o = {0};
    struct muster_error err = {0};
    int at = 0;
    assert_int_equal(knob_parse_flags(&names, &o, NULL, 1, (char *[]){(char *)"--dr", NULL}, &at, NULL, &err),
                     -1);
    assert_string_equal(err.text, "--dr could be any of --dry-run, --dry, --dry-wash");
}

/* Both ends of a range are in it; 9e15 and more are no bound; 0 to 0 are none. */
static void ranges(void **state)
{
    (void)state;
    static const struct {
        double min, max;
        const char *text, *error; /* NULL: it is taken */
    } cases[] = {{-5, 5, "-5", NULL},
                 {-5, 5, "5", NULL},
                 {-5, 5, "-6", "x: '-6' is outside -5 to 5"},
                 {-5, 5, "6", "x: '6' is outside -5 to 5"},
                 {1, 9e15, "0", "x: '0' is below the minimum of 1"},
                 {1, 8e15, "0", "x: '0' is outside 1 to 8e+15"},
                 {0, 0, "-7", NULL},
                 {0, 5, "-7", "x: '-7' is outside 0 to 5"},
                 {0, 1, "2", "x: '2' is outside 0 to 1"},
                 {1, 1, "2", "x: '2' is outside 1 to 1"},
                 {-1, 0, "1", "x: '1' is outside -1 to 0"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct knob knob = {.name = "depth",
                                  .type = KNOB_INT,
                                  .offset = KNOB_OFFSET(options, depth),
                                  .min = cases[i].min,
                                  .max = cases[i].max};
        const struct knob_table one = {&knob, 1};
        struct options o = {0};
        struct muster_error err = {0};
        int result = knob_set(&one, &o, NULL, &knob, cases[i].text, KNOB_FROM_FLAG, "x", &err);
        assert_int_equal(result, cases[i].error ? -1 : 0);
        if (cases[i].error)
            assert_string_equal(err.text, cases[i].error);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_spelling),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(values_that_begin_with_a_dash),
        cmocka_unit_test(names_within_names),
        cmocka_unit_test(ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
