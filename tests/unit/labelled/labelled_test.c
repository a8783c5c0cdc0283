/* labelled_test.c - texts with labels: rows of tables as they are written, folders by label, labels in their
 * order, a split that depends on the seed, tokens that are kept and made anew; and errors that name their
 * cause.
 */
#include "tests/support/cmocka_all.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/io.h"
#include "proto/base/mem.h"
#include "tests/support/folder.h"
#include "trainer/data/csv.h"
#include "trainer/labelled/labelled.h"

/* ---- rows ---- */

/* Fields between |, rows between / in `wanted`; "!" and a text: the error. */
static const struct {
    const char *text, *wanted;
    bool tabs;
} tables[] = {
    {"a,b\n1,2\n", "a|b/1|2", false},
    {"a,b\r\n1,2", "a|b/1|2", false},
    {"\n\na,b\n\r\n1,\n,\n", "a|b/1|/|", false},
    {"\"a \"\"b\"\"\",\"c,\nd\"\r\n\"\",x\n", "a \"b\"|c,\nd/|x", false},
    {"a \"b\",c\n", "a \"b\"|c", false},
    {"\"a\"\tb\tc,d\n", "\"a\"|b|c,d", true},
    {"a\r,b\n", "a\r|b", false},
    {"", "", false},
    {"a,b\n\"c", "!line 2: a field begins with a quote and does not end with one", false},
    {"a\n\n\"x\ny\"z\n", "!line 3: there is text after the quote that ends a field", false},
};

static void show_rows(struct csv *csv, struct buffer *out)
{
    struct muster_error err = {0};
    int found;
    for (int row = 0; (found = csv_next(csv, &err)) > 0; row++)
        for (int i = 0; i < csv->fields; i++) {
            size_t length;
            const char *text = csv_text(csv, i, &length);
            (void)buffer_printf(out, "%s%.*s", i ? "|" : row ? "/" : "", (int)length, text);
        }
    if (found < 0) {
        buffer_clear(out);
        (void)buffer_printf(out, "!%s", err.text);
    }
    assert_int_equal(buffer_text(out, ""), 0);
}

static void rows_are_as_they_were_written(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        scope_buffer out = {0};
        struct csv csv = {.data = tables[i].text, .length = strlen(tables[i].text), .tabs = tables[i].tabs};
        show_rows(&csv, &out);
        assert_string_equal(out.data ? out.data : "", tables[i].wanted);
        csv_free(&csv);
    }
    struct muster_error err = {0};
    scope_buffer wide = {0};
    for (int i = 0; i < CSV_COLUMNS + 1; i++)
        assert_int_equal(buffer_text(&wide, "x,"), 0);
    struct csv csv = {.data = wide.data, .length = wide.length};
    assert_int_equal(csv_next(&csv, &err), -1);
    assert_string_equal(err.text, "line 1: a row of more than 256 columns");
    csv_free(&csv);
}

/* ---- sets ---- */

static char folder[FOLDER_PATH];

static void write_file(const char *name, const char *text)
{
    scope_free char *path = mem_printf("%s/%s", folder, name);
    struct muster_error err = {0};
    char *slash = strrchr(path, '/');
    *slash = '\0';
    assert_int_equal(io_make_directories(path, 0755, &err), 0);
    *slash = '/';
    assert_int_equal(io_write_file_atomic(path, text, strlen(text), 0644, &err), 0);
}

static struct labelled *open_set(const char *name, struct labelled_options o, struct muster_error *err)
{
    scope_free char *path = mem_printf("%s/%s", folder, name), *cache = mem_printf("%s/cache", folder);
    scope_free char *held = o.validation_path ? mem_printf("%s/%s", folder, o.validation_path) : NULL;
    GUARD(guard_tokenizer) struct tokenizer *tokenizer = tokenizer_open("bytes", err);
    o.path = path;
    o.validation_path = held;
    o.cache_dir = cache;
    o.tokenizer = tokenizer;
    o.text_key = o.text_key ? o.text_key : "text";
    o.label_key = o.label_key ? o.label_key : "label";
    o.positions = o.positions ? o.positions : 6;
    o.classes = o.classes ? o.classes : 2;
    o.vocabulary = 256;
    return labelled_open(&o, err);
}

/* "text:label,length" of samples from..from + count - 1, blanks between. */
enum { SHOWN = 512 };
static const char *show_into(char text[SHOWN], const struct labelled *set, uint64_t from, uint64_t count)
{
    size_t at = 0;
    for (uint64_t g = from; g < from + count; g++) {
        int32_t tokens[16], length, label;
        labelled_sample(set, g, tokens, &length, &label);
        for (int i = 0; i < length; i++)
            text[at++] = (char)tokens[i];
        at += (size_t)snprintf(text + at, SHOWN - at, ":%d,%d ", label, length);
    }
    text[at] = '\0';
    return text;
}

static const char *show(const struct labelled *set, uint64_t from, uint64_t count)
{
    static char text[SHOWN];
    return show_into(text, set, from, count);
}

static const char table[] = "text,label\nabc,pos\nde,neg\n\"fghijklmn\",pos\no,neg\n,pos\n";

static void a_table_is_a_set(void **state)
{
    struct muster_error err = {0};
    (void)state;
    write_file("set.csv", table);
    write_file("held.tsv", "label\ttext\nneg\tx\npos\tyz\n");
    GUARD(guard_labelled)
    struct labelled *set =
        open_set("set.csv", (struct labelled_options){.validation_path = "held.tsv", .seed = 3}, &err);
    if (!set)
        fail_msg("%s", err.text);
    assert_int_equal(labelled_samples(set), 5);
    assert_int_equal(labelled_cut(set), 1);
    assert_int_equal(labelled_labels(set), 2);
    assert_string_equal(labelled_label(set, 0), "neg"); /* in the order of their names */
    assert_string_equal(labelled_label(set, 1), "pos");
    const struct labelled *held = labelled_validation(set);
    assert_string_equal(show(held, 0, 2), "x:0,1 yz:1,2 "); /* in its own order */
    char first[SHOWN], again[SHOWN];
    assert_string_not_equal(show_into(first, set, 0, 5),
                            show_into(again, set, 5, 5)); /* epochs have orders of their own */
    for (const char *const *text =
             (const char *const[]){"abc:1,3 ", "de:0,2 ", "fghijk:1,6 ", "o:0,1 ", ":1,0 ", NULL};
         *text; text++)
        assert_true(strstr(first, *text) && strstr(again, *text));
    scope_buffer info = {0};
    assert_int_equal(labelled_info(set, &info), 0);
    assert_string_equal(info.data,
                        "{\"train_size\": 5, \"val_size\": 2, \"num_classes\": 2, \"classes\": [\"neg\", "
                        "\"pos\"], \"cut\": 1, \"cached\": false}\n");
}

/* Two tokens of an encoder around each text, and its labels. */
static void texts_of_an_encoder(void **state)
{
    static const char *const labels[] = {"pos", "meh", "neg"};
    struct labelled_options o = {.validation_path = "held.csv",
                                 .framed = true,
                                 .begin = '<',
                                 .end = '>',
                                 .labels = labels,
                                 .label_count = 3};
    struct muster_error err = {0};
    (void)state;
    write_file("set.csv", table);
    write_file("held.csv", "text,label\nabcdef,meh\n,neg\n");
    GUARD(guard_labelled) struct labelled *set = open_set("set.csv", o, &err);
    if (!set)
        fail_msg("%s", err.text);
    assert_true(labelled_follows(set));
    assert_int_equal(labelled_labels(set), 3);
    assert_string_equal(labelled_label(set, 1), "meh");
    assert_int_equal(labelled_cut(set), 2); /* fghijklmn and abcdef */
    char shown[SHOWN];
    (void)show_into(shown, set, 0, 5);
    for (const char *const *text =
             (const char *const[]){"<abc>:0,5 ", "<de>:2,4 ", "<fghi>:0,6 ", "<o>:2,3 ", "<>:0,2 ", NULL};
         *text; text++)
        if (!strstr(shown, *text))
            fail_msg("%s is not in %s", *text, shown);
    assert_string_equal(show(labelled_validation(set), 0, 2), "<abcd>:1,6 <>:2,2 ");
}

/* Numbers below the model's number of labels are classes themselves; other names are numbered in their order.
 */
static void labels_of_a_model_without_names(void **state)
{
    static const struct {
        const char *text, *shown;
        int labels;
        bool follows;
    } cases[] = {{"text,label\na,2\nb,0\n", "a:2,1 ", 3, true},
                 {"text,label\na,3\nb,1\n", "a:1,1 ", 2, false},
                 {"text,label\na,x\nb,0\n", "a:1,1 ", 2, false}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct muster_error err = {0};
        write_file("numbers.csv", cases[i].text);
        GUARD(guard_labelled)
        struct labelled *set =
            open_set("numbers.csv", (struct labelled_options){.label_count = 3, .classes = 3}, &err);
        if (!set)
            fail_msg("%s", err.text);
        assert_int_equal(labelled_labels(set), cases[i].labels);
        assert_int_equal(labelled_follows(set), cases[i].follows);
        char shown[SHOWN];
        assert_non_null(strstr(show_into(shown, set, 0, 2), cases[i].shown));
    }
}

static void lines_and_folders_are_sets(void **state)
{
    struct muster_error err = {0};
    (void)state;
    write_file("set.jsonl", "{\"body\": \"b\", \"stars\": 10}\n\n{\"stars\": 9, \"body\": \"a\"}\n");
    struct labelled_options o = {.text_key = "body", .label_key = "stars"};
    struct labelled *set = open_set("set.jsonl", o, &err);
    if (!set)
        fail_msg("%s", err.text);
    assert_string_equal(labelled_label(set, 0), "9"); /* numbers in their order, not "10" before "9" */
    assert_non_null(strstr(show(set, 0, 2), "a:0,1"));
    labelled_destroy(set);
    /* The same records in every form that texts have: lines under other names, arrays, with a mark. */
    static const char lines[] = "{\"body\": \"b\", \"stars\": 10}\n{\"stars\": 9, \"body\": \"a\"}\n",
                      array[] =
                          "\xEF\xBB\xBF [\n{\"body\": \"b\", \"stars\": 10},\n {\"stars\": 9, \"body\": "
                          "\"a\"}\n]\n";
    static const char *const forms[][2] = {{"set.ndjson", lines},      {"set.jsonlines", lines},
                                           {"lines.json", lines},      {"array.json", array},
                                           {"array.jsonl", array + 3}, {"reviews", lines}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        write_file(forms[i][0], forms[i][1]);
        set = open_set(forms[i][0], o, &err);
        if (!set)
            fail_msg("%s: %s", forms[i][0], err.text);
        assert_int_equal(labelled_samples(set), 2);
        assert_string_equal(labelled_label(set, 0), "9");
        labelled_destroy(set);
    }

    write_file("acl/train/pos/0_9.txt", "good");
    write_file("acl/train/pos/1_8.txt", "fine");
    write_file("acl/train/neg/0_1.txt", "bad");
    write_file("acl/train/unsup/0_0.txt", "nothing");
    write_file("acl/train/urls_pos.txt", "http");
    write_file("acl/test/neg/0_1.txt", "held");
    set = open_set("acl", (struct labelled_options){0}, &err);
    if (!set)
        fail_msg("%s", err.text);
    assert_int_equal(labelled_samples(set), 3);
    assert_int_equal(labelled_files(set), 4);
    assert_string_equal(show(labelled_validation(set), 0, 1), "held:0,4 ");
    labelled_destroy(set);
    /* with a share, the share is held out, and not the other folder */
    set = open_set("acl", (struct labelled_options){.validation_share = 0.34}, &err);
    assert_non_null(set);
    assert_int_equal(labelled_samples(set), 1);
    assert_int_equal(labelled_samples(labelled_validation(set)), 2);
    labelled_destroy(set);
}

static void a_split_follows_from_its_seed(void **state)
{
    enum { SETS = 3 };
    static const uint64_t seeds[SETS] = {7, 7, 8};
    char kept[SETS][SHOWN], held[SETS][SHOWN];
    struct muster_error err = {0};
    (void)state;
    write_file("split.csv", "text,label\na,0\nb,1\nc,0\nd,1\ne,0\nf,1\ng,0\nh,1\n");
    for (int i = 0; i < SETS; i++) {
        struct labelled_options o = {.validation_share = 0.25, .seed = seeds[i]};
        GUARD(guard_labelled) struct labelled *set = open_set("split.csv", o, &err);
        assert_non_null(set);
        assert_int_equal(labelled_samples(set), 6);
        assert_int_equal(labelled_cached(set), i > 0);
        (void)show_into(kept[i], set, 0, 6);
        (void)show_into(held[i], labelled_validation(set), 0, 2);
        for (const char *c = "abcdefgh"; *c; c++)
            assert_true((strchr(kept[i], *c) == NULL) != (strchr(held[i], *c) == NULL));
    }
    assert_string_equal(kept[1], kept[0]);
    assert_string_equal(held[1], held[0]);
    assert_string_not_equal(held[2], held[0]);
}

static void tokens_are_made_anew_for_other_files(void **state)
{
    struct muster_error err = {0};
    struct stat status;
    (void)state;
    write_file("kept.csv", "text,label\nold,0\nx,1\n");
    scope_free char *path = mem_printf("%s/kept.csv", folder);
    for (int i = 0; i < 4; i++) {
        GUARD(guard_labelled) struct labelled *set = open_set("kept.csv", (struct labelled_options){0}, &err);
        assert_non_null(set);
        assert_int_equal(labelled_cached(set), i == 1); /* the second time it was as before */
        const char *shown = show(set, 0, 2);
        assert_true((strstr(shown, "old") != NULL) == (i < 2));
        assert_int_equal(stat(path, &status), 0);
        if (i == 1) /* the same size */
            write_file("kept.csv", "text,label\nnew,0\nx,1\n");
        if (i == 2) { /* the same size and the same time */
            const struct timespec times[2] = {status.st_atim, status.st_mtim};
            write_file("kept.csv", "text,label\nmew,0\nx,1\n");
            assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
        }
    }
}

static const struct {
    const char *name, *text; /* NULL: it is there */
    struct labelled_options options;
    const char *error; /* after the folder's name, if it has one */
} refused[] = {
    {"nothing.csv", NULL, {0}, "cannot read data.path"},
    {"set.txt", "x", {0}, "is no file of labelled texts: it is empty, or no table (.csv, .tsv) and no JSON"},
    {"head.csv", "text,label\n", {0}, "holds no text"},
    {"one.csv", "text,label\na,x\n", {0}, "all texts have the label x; a classifier needs two"},
    {"many.csv",
     "text,label\na,x\nb,y\nc,z\n",
     {0},
     "there are 3 labels (x, y, z), and model.num_classes is 2"},
    {"empty.csv", "text,label\na,\n", {0}, "empty.csv: line 2: a label is empty, or has more than one line"},
    {"column.csv",
     "text,stars\na,1\n",
     {0},
     "no column 'label' (data.label_key); the first row has text, stars"},
    {"json.jsonl",
     "{\"text\": 1}\n",
     {0},
     "json.jsonl: line 1: the value of 'text' is a number, where a text is expected (data.text_key)"},
    {"none.jsonl",
     "{\"body\": \"a\"}\n",
     {0},
     "none.jsonl: line 1: no text under the key 'text' (data.text_key)"},
    {"label.jsonl",
     "{\"text\": \"a\", \"label\": 1.5}\n",
     {0},
     "a label must be a text, a whole number, true or false"},
    {"broken.jsonl", "{\"text\": \"a\",\n", {0}, "broken.jsonl: line 1: column 13: not valid JSON"},
    {"array.json",
     "[{\"text\": \"a\", \"label\": 1},\n{\"text\": \"a\"}]",
     {0},
     "array.json: line 2: no label under the key 'label' (data.label_key)"},
    {"comma.json",
     "[{\"text\": \"a\", \"label\": 1}\n\n{\"text\": \"a\"}]",
     {0},
     "comma.json: line 3: not valid JSON: a comma or the end of the array is missing"},
    {"texts.json",
     "[\"a\", \"b\"]",
     {0},
     "texts.json: line 1: a record is a text, where an object is expected"},
    {"one.json", "{\n \"text\": \"a\",\n \"label\": 1\n}", {0}, "one.json is one JSON object, not a text"},
    {"set.csv", NULL, {.validation_path = "other.csv"}, "the label 'meh' is in no text that is trained on"},
    {"set.csv",
     NULL,
     {.validation_share = 0.9},
     "data.validation_share 0.9 of 5 texts leaves none to train on"},
};

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    write_file("set.csv", table);
    write_file("other.csv", "text,label\na,meh\n");
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct muster_error err = {0};
        if (refused[i].text)
            write_file(refused[i].name, refused[i].text);
        GUARD(guard_labelled) struct labelled *set = open_set(refused[i].name, refused[i].options, &err);
        if (set || !strstr(err.text, refused[i].error))
            fail_msg("%s: '%s' instead of '%s'", refused[i].name, err.text, refused[i].error);
    }
}

static int make_folder(void **state)
{
    (void)state;
    return folder_make(folder, "labelled");
}

static int remove_folder(void **state)
{
    (void)state;
    return folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_as_they_were_written),
        cmocka_unit_test(a_table_is_a_set),
        cmocka_unit_test(texts_of_an_encoder),
        cmocka_unit_test(labels_of_a_model_without_names),
        cmocka_unit_test(lines_and_folders_are_sets),
        cmocka_unit_test(a_split_follows_from_its_seed),
        cmocka_unit_test(tokens_are_made_anew_for_other_files),
        cmocka_unit_test(what_is_wrong_is_named),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
