/* split.c - see parts.h. */
#include <stdbool.h>
#include <string.h>

#include "trainer/tokens/parts.h"

enum { WORD = UNICODE_LETTER | UNICODE_NUMBER, LONG_S = 0x17F }; /* LONG_S: (?i:s) matches it */

static bool is_other(const struct unicode_char *c)
{
    return !(c->classes & (WORD | UNICODE_BLANK));
}

/* The end of the run of characters from `at` in the given classes; at most `most` characters. */
static size_t run_of(const char *text, size_t at, size_t length, unsigned classes, size_t most)
{
    for (; at < length && most > 0; most--) {
        const struct unicode_char c = unicode_next(text + at, length - at);
        if (!(c.classes & classes))
            break;
        at += c.length;
    }
    return at;
}

static size_t run_of_others(const char *text, size_t at, size_t length)
{
    while (at < length) {
        const struct unicode_char c = unicode_next(text + at, length - at);
        if (!is_other(&c))
            break;
        at += c.length;
    }
    return at;
}

/* Bytes of 's|'t|'re|'ve|'m|'ll|'d at the start; 0: no match. */
static size_t contraction(const char *text, size_t length)
{
    if (length < 2 || text[0] != '\'')
        return 0;
    if (strchr("stmd", text[1]) && text[1])
        return 2;
    return length > 2 &&
                   (!memcmp(text + 1, "re", 2) || !memcmp(text + 1, "ve", 2) || !memcmp(text + 1, "ll", 2))
               ? 3
               : 0;
}

/* The same for upper and lower case. */
static size_t contraction_of_any_case(const char *text, size_t length)
{
    if (length < 2 || text[0] != '\'')
        return 0;
    const struct unicode_char next = unicode_next(text + 1, length - 1);
    if (next.point == LONG_S)
        return 1 + next.length;
    char lower[3] = {'\'', (char)(text[1] | 32), (char)(length > 2 ? text[2] | 32 : 0)};
    return contraction(lower, length > 2 ? 3 : 2);
}

/* \s+(?!\S)|\s+ for blanks that end at `end`: the last blank is left to the word after it. */
static size_t blanks(const char *text, size_t end, size_t length)
{
    const size_t last = unicode_last(text, end);
    return end == length || end == last ? end : end - last;
}

size_t split_gpt2(const char *text, size_t length)
{
    const size_t contracted = contraction(text, length);
    if (contracted)
        return contracted;
    const size_t at = text[0] == ' ' && length > 1;
    const struct unicode_char first = unicode_next(text + at, length - at);
    if (first.classes & UNICODE_LETTER)
        return run_of(text, at, length, UNICODE_LETTER, length);
    if (first.classes & UNICODE_NUMBER)
        return run_of(text, at, length, UNICODE_NUMBER, length);
    if (is_other(&first))
        return run_of_others(text, at, length);
    return blanks(text, run_of(text, 0, length, UNICODE_BLANK, length), length);
}

static bool is_line_end(char c)
{
    return c == '\r' || c == '\n';
}

/* The end of \s*[\r\n]+ in blanks that end at `end`; 0: the blanks have no line end. */
static size_t last_line_end(const char *text, size_t end)
{
    while (end > 0 && !is_line_end(text[end - 1]))
        end--;
    return end;
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[\r\n]*
 * |\s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t split_with_lines(const char *text, size_t length, size_t digits)
{
    const size_t contracted = contraction_of_any_case(text, length);
    if (contracted)
        return contracted;
    const struct unicode_char first = unicode_next(text, length);
    size_t at = 0;
    if (!(first.classes & WORD) && !is_line_end(text[0]))
        at = first.length;
    const size_t letters = run_of(text, at, length, UNICODE_LETTER, length);
    if (letters > at)
        return letters;
    if (first.classes & UNICODE_NUMBER)
        return run_of(text, 0, length, UNICODE_NUMBER, digits);
    at = text[0] == ' ';
    size_t end = run_of_others(text, at, length);
    if (end > at) {
        while (end < length && is_line_end(text[end]))
            end++;
        return end;
    }
    end = run_of(text, 0, length, UNICODE_BLANK, length);
    const size_t lines = last_line_end(text, end);
    return lines ? lines : blanks(text, end, length);
}

static size_t split_llama3(const char *text, size_t length)
{
    return split_with_lines(text, length, 3);
}

static size_t split_qwen2(const char *text, size_t length)
{
    return split_with_lines(text, length, 1);
}

static size_t to_next_number(const char *text, size_t length)
{
    size_t at = 0;
    while (at < length) {
        const struct unicode_char c = unicode_next(text + at, length - at);
        if (c.classes & UNICODE_NUMERIC)
            break;
        at += c.length;
    }
    return at;
}

size_t split_digits(const char *text, size_t length)
{
    const size_t before = to_next_number(text, length);
    return before ? before : unicode_next(text, length).length;
}

size_t split_numbers(const char *text, size_t length)
{
    const size_t before = to_next_number(text, length);
    return before ? before : run_of(text, 0, length, UNICODE_NUMERIC, length);
}

size_t split_marks(const char *text, size_t length)
{
    size_t at = 1;
    while (at < length && !normalize_is_mark(text + at, length - at))
        at++;
    return at;
}

size_t split_runs(const char *text, size_t length)
{
    const unsigned classes = UNICODE_RUST_WORD | UNICODE_BLANK,
                   kind = unicode_next(text, length).classes & classes;
    size_t at = 0;
    while (at < length) {
        const struct unicode_char c = unicode_next(text + at, length - at);
        if ((c.classes & classes) != kind)
            break;
        at += c.length;
    }
    return at;
}

splitter split_by_pattern(const char *pattern)
{
    static const struct {
        const char *pattern;
        splitter split;
    } known[] = {
        {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", split_gpt2},
        {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
         "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
         "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
         split_llama3},
        {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
         "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
         split_qwen2},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(pattern, known[i].pattern))
            return known[i].split;
    return NULL;
}
