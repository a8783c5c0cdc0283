/* UTF-8, and where the pre-tokenizers cut a text. Equality with `tokenizers` on all code points is held by
 * tests/compat/data/tokens_torch_test.py. */
#include <string.h>

#include "tests/support/cmocka_all.h"
#include "trainer/tokens/bpe.h"
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
    assert_int_equal(unicode_classes(0xE9), UNICODE_LETTER);
    assert_int_equal(unicode_classes(0x3000), UNICODE_BLANK);
    assert_int_equal(unicode_classes(0x663), UNICODE_NUMBER | UNICODE_NUMERIC);
    assert_int_equal(unicode_classes(0x4E00), UNICODE_LETTER);
    assert_int_equal(unicode_classes(0x301), 0);
    assert_int_equal(unicode_classes(0x1C), 0);
    assert_int_equal(unicode_classes(0x11DE0), UNICODE_NUMERIC);
    assert_int_equal(unicode_classes(0x10FFFF), 0);
    for (uint32_t c = 0; c < 128; c++)
        assert_int_equal(unicode_next(&(char){(char)c}, 1).classes, unicode_classes(c));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_cuts),         cmocka_unit_test(the_patterns_with_lines_cut),
        cmocka_unit_test(digits_are_cut),    cmocka_unit_test(characters_are_those_of_the_standard),
        cmocka_unit_test(classes_are_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
