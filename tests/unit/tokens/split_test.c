/* UTF-8, and where the pre-tokenizers cut a text. Equality with `tokenizers` on all code points is held by
 * tests/compat/data/tokens_torch_test.py. */
#include <string.h>

#include "tests/support/cmocka_all.h"
#include "trainer/tokens/parts.h"
#include "trainer/tokens/unicode.h"

#define QWEN2                                                                                                \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"      \
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LLAMA3                                                                                               \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" \
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* words: the text with a | at each cut. */
static void assert_cuts(splitter split, const char *words)
{
    char text[200], found[400];
    size_t length = 0, out = 0;
    for (const char *at = words; *at; at++)
        if (*at != '|')
            text[length++] = *at;
    for (size_t from = 0; from < length;) {
        const size_t word = split(text + from, length - from);
        assert_in_range(word, 1, length - from);
        if (from)
            found[out++] = '|';
        memcpy(found + out, text + from, word);
        out += word;
        from += word;
    }
    found[out] = '\0';
    assert_string_equal(found, words);
}

static void gpt2_cuts(void **state)
{
    (void)state;
    assert_cuts(split_gpt2, "Hello| world|!|  | It|'s| 3| o|'|clock|,| we|'ll| see|...|\n|\n|Done");
    assert_cuts(split_gpt2, "I|'|LL| x|   ");
    assert_cuts(split_gpt2, "a|  | b| 12|ab| 12|\t|\t|c");
    assert_cuts(split_gpt2,
                "\xC3\xA9t\xC3\xA9|  |\xE3\x80\x80|\xE4\xB8\xAD\xE6\x96\x87|\xC2\xBD| \xF0\x9F\x98\x80'|t|'");
}

static void the_patterns_with_lines_cut(void **state)
{
    (void)state;
    assert_cuts(split_by_pattern(LLAMA3), "Hello| world|!\n|It|'S|  | x|123|4|\t| tab|\tx");
    assert_cuts(split_by_pattern(LLAMA3), "(see| (|it|)| \n\n|  | a| \n|  ");
    assert_cuts(split_by_pattern(QWEN2), "a|1|2| |3|,\r\n\n|'\xC5\xBF|x");
    assert_null(split_by_pattern("\\s+"));
    assert_null(split_by_pattern(""));
}

static void digits_are_cut(void **state)
{
    (void)state;
    assert_cuts(split_digits, "ab|1|2");
    assert_cuts(split_digits, "a|1|2| b|\xC2\xBD|3");
    assert_cuts(split_numbers, "a|12| b|\xC2\xBD"
                               "3");
}

static void characters_are_those_of_the_standard(void **state)
{
    (void)state;
    for (uint32_t point = 0; point < 0x110000; point += point < 0x3000 ? 1 : 97) {
        char bytes[4];
        if (point >= 0xD800 && point < 0xE000)
            continue;
        const size_t length = unicode_write(point, bytes);
        const struct unicode_char c = unicode_next(bytes, length);
        assert_int_equal(c.point, point);
        assert_int_equal(c.length, length);
        assert_int_equal(unicode_last(bytes, length), length);
        if (length > 1) /* cut off */
            assert_int_equal(unicode_next(bytes, length - 1).length, 1);
    }
    /* too long, a surrogate, beyond the last, a lone continuation */
    const char *const wrong[] = {"\xC0\x80",         "\xE0\x80\x80", "\xED\xA0\x80",
                                 "\xF4\x90\x80\x80", "\x80",         "\xFF"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const struct unicode_char c = unicode_next(wrong[i], strlen(wrong[i]));
        assert_int_equal(c.length, 1);
        assert_int_equal(c.classes, 0);
        assert_int_equal(unicode_last(wrong[i], strlen(wrong[i])), 1);
    }
    assert_int_equal(unicode_last("", 0), 0);
}

static void classes_are_there(void **state)
{
    (void)state;
    static const struct {
        uint32_t point;
        unsigned classes;
        const char *category, *script;
    } cases[] = {
        {0xE9, UNICODE_LETTER | UNICODE_WORD | UNICODE_RUST_WORD, "Ll", "Latin"},
        {0x3000, UNICODE_BLANK, "Zs", "Common"},
        {0x663, UNICODE_NUMBER | UNICODE_NUMERIC | UNICODE_WORD | UNICODE_RUST_WORD, "Nd", "Arabic"},
        {0x4E00, UNICODE_LETTER | UNICODE_WORD | UNICODE_RUST_WORD, "Lo", "Han"},
        {0x301, UNICODE_WORD | UNICODE_RUST_WORD | UNICODE_NONSPACING | UNICODE_COMBINING, "Mn", "Inherited"},
        {0x1C, UNICODE_CONTROL, "Cc", "Common"},
        {0x10FFFD, UNICODE_CONTROL, "Co", NULL},
        {'_', UNICODE_PUNCTUATION | UNICODE_WORD | UNICODE_RUST_WORD, "Pc", "Common"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const unsigned found = unicode_classes(cases[i].point),
                       category = found >> UNICODE_CATEGORY_SHIFT & 255;
        assert_int_equal(found & 0xFFFF, cases[i].classes);
        assert_int_equal(category, unicode_category(cases[i].category, 2));
        assert_string_equal(unicode_category_name((int)category), cases[i].category);
        if (cases[i].script)
            assert_int_equal(found >> UNICODE_SCRIPT_SHIFT,
                             unicode_script(cases[i].script, strlen(cases[i].script)));
    }
    assert_int_equal(unicode_classes(0x11DE0) & UNICODE_NUMERIC, UNICODE_NUMERIC);
    assert_int_equal(unicode_classes(0x10FFFF) & 0xFFFF, 0);
    assert_int_equal(unicode_category("", 0), -1);
    assert_int_equal(unicode_script("", 0), -1);
    assert_null(unicode_category_name(99));
    uint32_t next = 0;
    for (struct unicode_run run = {0}; unicode_next_run(&run); next = run.last + 1) {
        assert_int_equal(run.first, next);
        assert_int_equal(run.classes, unicode_classes(run.last));
    }
    assert_int_equal(next, 0x110000);
    assert_int_equal(unicode_lower('Q'), 'q');
    assert_int_equal(unicode_lower(0x130), 'i');
    assert_int_equal(unicode_lower(0x3A3), 0x3C3);
    assert_int_equal(unicode_lower(0x101), 0x101);
    for (uint32_t c = 0; c < 128; c++)
        assert_int_equal(unicode_next(&(char){(char)c}, 1).classes, unicode_classes(c));
}

/* The byte of each character, and PCRE2's expression over these bytes. */
static void expressions_are_over_bytes(void **state)
{
    (void)state;
    static uint8_t map[PATTERN_BYTES];
    struct muster_error err = {0};
    scope_buffer out = {0};
    assert_int_equal(pattern_translate("(?:a|\\p{Lu})+(?=\\d)|a{1,2}+", PATTERN_ONIGURUMA, &out, map, &err),
                     0);
    assert_string_equal(out.data, "(?:[\\x03]|[\\x02])+(?=[\\x01])|(?:[\\x03]{1,2})+");
    assert_true(map['a'] == 3 && map['B'] == 2 && map[0xC9] == 2 && map['7'] == 1 && map['b'] == 0);
    buffer_clear(&out);
    assert_int_equal(pattern_translate("a{1,2}+$|[^\\S\\n]", PATTERN_RUST, &out, map, &err), 0);
    assert_string_equal(out.data, "[\\x02]{1,2}+\\z|[\\x01]");
    buffer_clear(&out);
    assert_int_equal(pattern_translate("(?i:s)|[a&&b]", PATTERN_ONIGURUMA, &out, map, &err), 0);
    assert_true(map['s'] == map['S'] && map['S'] == map[0x17F] && map['s'] != map['t']);
    assert_non_null(strstr(out.data, "|(?!)")); /* nothing is both */
}

/* What means something else in PCRE2, or is not known to mean the same. */
static void other_expressions_are_refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"a**", "a repetition of nothing or of a repetition at byte 2"},
        {"+", "a repetition of nothing"},
        {"(a", "a ( without )"},
        {"a)", "a ) without ("},
        {"[a", "a class without an end"},
        {"(?<n>a)", "a group of this kind"},
        {"(a)\\1", "the escape at byte 3"},
        {"\\Ga", "the escape at byte 0"},
        {"\\p{Greek_Extended}", "a \\p{...} of this name"},
        {"\\pL", "\\p without {...}"},
        {"(?i:ss)", "(?i) over these letters"},
        {"(?i:\xC3\xA9)", "(?i) over characters beyond ASCII"},
        {"[[:alpha:]]", "a class of this kind"},
        {"[a-z--b]", "a difference of classes"},
        {"[b-a]", "a range that ends before it begins"},
        {"(?:a*)*", "a repetition of an empty match"},
        {"a{2}?", "a lazy repetition of a fixed size"},
        {"a{1001}", "a repetition of this size"},
        {"a(?i)b", "a group of this kind"},
        {"\\x{110000}", "a character by its number"},
        {"a\\", "a backslash"},
    };
    static uint8_t map[PATTERN_BYTES];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct muster_error err = {0};
        scope_buffer out = {0};
        assert_int_equal(pattern_translate(cases[i][0], PATTERN_ONIGURUMA, &out, map, &err), -1);
        if (!strstr(err.text, cases[i][1]))
            fail_msg("%s: '%s' does not say '%s'", cases[i][0], err.text, cases[i][1]);
    }
}

static void assert_form(bool compatible, bool composed, const char *text, const char *wanted)
{
    scope_buffer out = {0};
    normal_form(compatible, composed, text, strlen(text), &out);
    assert_int_equal(out.length, strlen(wanted));
    assert_memory_equal(out.data, wanted, out.length);
}

static void normal_forms_are_those_of_the_table(void **state)
{
    (void)state;
    assert_form(false, true, "e\xCC\x81", "\xC3\xA9"); /* e, U+0301 */
    assert_form(false, false, "\xC3\xA9", "e\xCC\x81");
    assert_form(false, true, "a\xCC\x81\xFF\xCC\x81", "\xC3\xA1\xFF\xCC\x81"); /* nothing crosses a byte */
    assert_form(true, true, "\xEF\xAC\x81\xC2\xB2", "fi2");                    /* a ligature, a small 2 */
    assert_form(false, true, "\xEF\xAC\x81", "\xEF\xAC\x81");
    assert_form(false, true, "\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB", "\xED\x95\x9C"); /* Hangul */
    assert_form(false, false, "\xED\x95\x9C", "\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB");
    assert_form(false, true, "q\xCC\x87\xCC\xA3", "q\xCC\xA3\xCC\x87");   /* in the order of their classes */
    assert_form(false, true, "\xE0\xA5\x98", "\xE0\xA4\x95\xE0\xA4\xBC"); /* U+0958 is never composed */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_cuts),
        cmocka_unit_test(the_patterns_with_lines_cut),
        cmocka_unit_test(digits_are_cut),
        cmocka_unit_test(characters_are_those_of_the_standard),
        cmocka_unit_test(classes_are_there),
        cmocka_unit_test(expressions_are_over_bytes),
        cmocka_unit_test(other_expressions_are_refused),
        cmocka_unit_test(normal_forms_are_those_of_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
