/* Quality rules: the measures of a text, and the first rule that is broken; lists of words; cleaning. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "tests/support/cmocka_all.h"
#include "trainer/corpus/prepare.h"
#include "trainer/corpus/texts.h"

static struct measures measure(const char *text, const struct measure_lists *lists)
{
    static const struct measure_lists none = {NULL, NULL};
    struct measure_room room = {0};
    struct words words = {0};
    struct measures out;
    assert_int_equal(words_split(&words, text, strlen(text)), 0);
    assert_int_equal(measure_text(&room, lists ? lists : &none, text, strlen(text), &words, &out), 0);
    words_free(&words);
    measure_room_free(&room);
    return out;
}

/* The name of the rule that a text breaks by the default limits; "" where it passes. */
static const char *broken(const char *text)
{
    struct corpus_settings settings = {0};
    assert_int_equal(corpus_settings_parse(&settings, 0, NULL, NULL), 0);
    const struct measures m = measure(text, NULL);
    const int rule = rules_check(&m, settings.limits);
    corpus_settings_free(&settings);
    return rule == RULE_PASSED ? "" : corpus_rules[rule].name;
}

static void test_rules_drop_rubbish(void **state)
{
    (void)state;
    static const struct {
        const char *text, *rule;
    } rows[] = {
        {"To be, or not to be, that is the question.", ""},
        {"Der Zweifel ist kein angenehmer Zustand, Gewi\xC3\x9Fheit aber ein l\xC3\xA4"
         "cherlicher.",
         ""},
        {"\xE4\xBA\xBA\xE4\xB9\x8B\xE5\x88\x9D\xEF\xBC\x8C\xE6\x80\xA7\xE6\x9C\xAC\xE5\x96\x84\xE3\x80\x82",
         ""},
        {"\xE0\xA4\xB8\xE0\xA4\xA4\xE0\xA5\x8D\xE0\xA4\xAF\xE0\xA4\xAE\xE0\xA5\x87\xE0\xA4\xB5 "
         "\xE0\xA4\x9C\xE0\xA4\xAF\xE0\xA4\xA4\xE0\xA5\x87",
         ""},
        {"a b", "min-chars"},
        {"honorificabilitudinitatibus", "min-words"},
        {"1 2 3 4 5 6 7 8 9 10 11 12 a b c", "min-letters"},
        {"abc def ghi ### $$$ %%% jkl mno", "max-symbols"},
        {"aGVsbG8gd29ybGQgdGhpcyBpcyBiYXNl NjQgcnViYmlzaCBvZiBsb25nIHdvcmRz", "max-word-length"},
        {"buy now at the shop\nbuy now at the shop\nbuy now at the shop\n", "max-repeated-lines"},
        {"one two three four one two three four one two three four one two three four",
         "max-repeated-ngrams"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(broken(rows[i].text), rows[i].rule);
}

static void test_values(void **state)
{
    (void)state;
    const struct measures m = measure("ab cd\n  ab cd\nx1!\n#", NULL);
    assert_float_equal(m.value[RULE_CHARS], 19, 0);
    assert_float_equal(m.value[RULE_WORDS], 5, 0);
    assert_float_equal(m.value[RULE_LETTERS], 9.0 / 12, 1e-6);
    assert_float_equal(m.value[RULE_SYMBOLS], 1.0 / 12, 1e-6);
    assert_float_equal(m.value[RULE_WORD_LENGTH], 10.0 / 5, 1e-6);
    assert_float_equal(m.value[RULE_LINES], 5.0 / 14, 1e-6);
    assert_float_equal(m.value[RULE_NGRAMS], 0, 0);
    assert_true(isnan(m.value[RULE_BLOCKED]) && isnan(m.value[RULE_LANGUAGE]));
    const struct measures empty = measure("", NULL);
    assert_float_equal(empty.value[RULE_LETTERS], 0, 0); /* and no division by zero */
    assert_float_equal(measure("a b c d a b c d", NULL).value[RULE_NGRAMS], 1.0 / 5, 1e-6);
}

static void test_limits_have_a_direction(void **state)
{
    (void)state;
    struct measures m;
    double limits[RULE_COUNT];
    for (int i = 0; i < RULE_COUNT; i++) {
        m.value[i] = (double)NAN; /* breaks nothing */
        limits[i] = 0.5;
    }
    assert_int_equal(rules_check(&m, limits), RULE_PASSED);
    for (int i = 0; i < RULE_COUNT; i++) {
        const bool least = corpus_rules[i].bound == RULE_AT_LEAST;
        m.value[i] = 0.5; /* the limit itself is kept */
        assert_int_equal(rules_check(&m, limits), RULE_PASSED);
        m.value[i] = least ? 0.4999 : 0.5001;
        assert_int_equal(rules_check(&m, limits), i);
        m.value[i] = least ? 0.5001 : 0.4999;
        assert_int_equal(rules_check(&m, limits), RULE_PASSED);
    }
    m.value[RULE_LETTERS] = 0;
    m.value[RULE_LINES] = 1; /* the first one counts */
    assert_int_equal(rules_check(&m, limits), RULE_LETTERS);
}

static void test_lists(void **state)
{
    (void)state;
    struct hash_set set = {0};
    struct muster_error err = {0};
    uint64_t hash = 1;
    char path[] = "/tmp/corpus_words_XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(dprintf(fd, "# words\nSpam\r\n\nthe \n"), 20);
    assert_int_equal(word_list_read(path, &set, &hash, &err), 0);
    assert_int_equal(set.count, 2);
    const struct measure_lists lists = {&set, &set};
    assert_float_equal(measure("The spam, and the SPAM. Theology", &lists).value[RULE_BLOCKED], 4, 0);
    assert_float_equal(measure("nothing of it", &lists).value[RULE_REQUIRED], 0, 0);
    assert_int_equal(dprintf(fd, "two words\n"), 10);
    assert_int_equal(word_list_read(path, &set, &hash, &err), -1);
    assert_non_null(strstr(err.text, ":5: 'two words' is 2 words"));
    close(fd);
    unlink(path);
    hash_set_free(&set);
}

static void check_clean(const char *text, size_t length, const char *wanted, size_t wrong)
{
    struct clean_room room = {0};
    scope_buffer out = {0};
    size_t invalid;
    assert_int_equal(clean_text(&room, text, length, &out, &invalid, NULL), 0);
    assert_string_equal(out.data ? out.data : "", wanted);
    assert_int_equal(invalid, wrong);
    clean_room_free(&room);
}

static void test_clean(void **state)
{
    (void)state;
    struct muster_error err = {0};
    if (clean_open(&err) < 0) {
        print_message("%s\n", err.text);
        skip();
    }
    check_clean("", 0, "", 0);
    check_clean(" \n\n  a\r\nb\rc\t\x08\x7F\0d  \n", 18, "  a\nb\nc\td", 0);
    check_clean("e\xCC\x81t\xC3\xA9", 6, "\xC3\xA9t\xC3\xA9", 0); /* composed */
    check_clean("\xEF\xBB\xBF"
                "a\xFF\xC3"
                "b",
                7,
                "a\xEF\xBF\xBD\xEF\xBF\xBD"
                "b",
                2);                                                            /* bytes that are no UTF-8 */
    check_clean("\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB", 9, "\xED\x95\x9C", 0); /* Hangul */
    check_clean("\xC2\x85\xC2\x9B", 4, "\xC2\x85", 0);
}

static void test_settings(void **state)
{
    (void)state;
    struct corpus_settings s = {0}, other = {0};
    struct muster_error err = {0};
    char *const words[] = {"--input-dir", "a", "--vocab_size=700", "--max-symbols", "0.5", "--workers", "3"};
    assert_int_equal(corpus_settings_parse(&s, 7, words, &err), 0);
    assert_string_equal(s.input, "a");
    assert_int_equal(s.vocabulary, 700);
    assert_float_equal(s.limits[RULE_SYMBOLS], 0.5, 0);
    char *const more[] = {"--input-dir", "b", "--vocab_size=700", "--max-symbols", "0.5"};
    assert_int_equal(corpus_settings_parse(&other, 5, more, &err), 0);
    assert_true(corpus_settings_hash(&s, true) ==
                corpus_settings_hash(&other, true)); /* places are none of it */
    other.vocabulary = 701;
    assert_true(corpus_settings_hash(&s, true) != corpus_settings_hash(&other, true));
    assert_true(corpus_settings_hash(&s, false) == corpus_settings_hash(&other, false));
    other.limits[RULE_LINES] = 0.25;
    assert_true(corpus_settings_hash(&s, false) != corpus_settings_hash(&other, false));
    corpus_settings_free(&other);
    corpus_settings_free(&s);
    static const struct {
        char *word;
        const char *error;
    } wrong[] = {{"--vocab-sise=3", "vocab"},
                 {"--vocab_size=10", "300"},
                 {"words", "is no flag"},
                 {"--output_dir=", "output_dir is empty"},
                 {"--near_threshold=0.1", "0.5"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct corpus_settings bad = {0};
        char *const one[] = {wrong[i].word};
        assert_int_equal(corpus_settings_parse(&bad, 1, one, &err), -1);
        assert_non_null(strstr(err.text, wrong[i].error));
        corpus_settings_free(&bad);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules_drop_rubbish),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_limits_have_a_direction),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_clean),
        cmocka_unit_test(test_settings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
