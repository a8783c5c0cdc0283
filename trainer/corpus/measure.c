/* measure.c - see measure.h. */
#include "trainer/corpus/measure.h"

#include <math.h>
#include <string.h>
#include <xxhash.h>

#include "trainer/tokens/unicode.h"

enum { RUN_WORDS = 4 }; /* of a repeated run */

void measure_room_free(struct measure_room *room)
{
    if (room)
        hash_set_free(&room->seen);
}

/* Punctuation of sentences; the rest that is no letter, number or blank is a symbol. */
static bool is_punctuation(uint32_t point)
{
    return point < 0x80 ? strchr(".,;:!?'\"()-", (int)point) != NULL
                        : (point >= 0x2010 && point <= 0x2027) || point == 0xA1 || point == 0xBF ||
                              point == 0xAB || point == 0xBB || point == 0x964 || point == 0x965 ||
                              point == 0x60C || point == 0x61B || point == 0x61F || point == 0x6D4 ||
                              (point >= 0x3001 && point <= 0x3011) || (point >= 0xFF01 && point <= 0xFF0E) ||
                              point == 0xFF1A || point == 0xFF1B || point == 0xFF1F;
}

struct characters {
    size_t all, letters, symbols, visible;
};

static struct characters count_characters(const char *text, size_t length)
{
    struct characters n = {0};
    while (length) {
        const struct unicode_char c = unicode_next(text, length);
        const bool letter = (c.classes & UNICODE_LETTER) || words_is_mark(c.point);
        n.all++;
        n.visible += !(c.classes & UNICODE_BLANK);
        n.letters += letter;
        n.symbols += !letter && !(c.classes & (UNICODE_NUMBER | UNICODE_BLANK)) && !is_punctuation(c.point);
        text += c.length;
        length -= c.length;
    }
    return n;
}

static double share(size_t part, size_t of)
{
    return of ? (double)part / (double)of : 0;
}

/* Bytes in lines that were there before, of those in all lines; blanks around a line do not count. */
static int measure_lines(struct hash_set *seen, const char *text, size_t length, double *out)
{
    size_t all = 0, repeated = 0;
    hash_set_clear(seen);
    while (length) {
        const char *end = memchr(text, '\n', length);
        const size_t line = end ? (size_t)(end - text) : length;
        size_t from = 0, to = line;
        while (from < to && strchr(" \t\r", text[from]))
            from++;
        while (to > from && strchr(" \t\r", text[to - 1]))
            to--;
        const int found = to > from ? hash_set_add(seen, XXH3_64bits(text + from, to - from)) : 0;
        if (found < 0)
            return -1;
        all += to - from;
        repeated += found ? to - from : 0;
        text += line + (end != NULL);
        length -= line + (end != NULL);
    }
    *out = share(repeated, all);
    return 0;
}

static int measure_runs(struct hash_set *seen, const struct words *words, double *out)
{
    size_t repeated = 0;
    hash_set_clear(seen);
    const size_t runs = words->count < RUN_WORDS ? 0 : words->count - RUN_WORDS + 1;
    for (size_t i = 0; i < runs; i++) {
        const int found = hash_set_add(seen, XXH3_64bits(words->hash + i, RUN_WORDS * sizeof *words->hash));
        if (found < 0)
            return -1;
        repeated += (size_t)found;
    }
    *out = share(repeated, runs);
    return 0;
}

static double count_listed(const struct hash_set *list, const struct words *words)
{
    size_t count = 0;
    for (size_t i = 0; list && i < words->count; i++)
        count += hash_set_has(list, words->hash[i]);
    return list ? (double)count : (double)NAN;
}

int measure_text(struct measure_room *room, const struct measure_lists *lists, const char *text,
                 size_t length, const struct words *words, struct measures *out)
{
    const struct characters n = count_characters(text, length);
    double *value = out->value;
    value[RULE_JSON] = value[RULE_UTF8] = value[RULE_LANGUAGE] = (double)NAN;
    value[RULE_CHARS] = (double)n.all;
    value[RULE_WORDS] = (double)words->count;
    value[RULE_LETTERS] = share(n.letters, n.visible);
    value[RULE_SYMBOLS] = share(n.symbols, n.visible);
    value[RULE_WORD_LENGTH] = share(words->chars, words->count);
    value[RULE_BLOCKED] = count_listed(lists->blocked, words);
    value[RULE_REQUIRED] = count_listed(lists->required, words);
    return measure_lines(&room->seen, text, length, &value[RULE_LINES]) < 0 ||
                   measure_runs(&room->seen, words, &value[RULE_NGRAMS]) < 0
               ? -1
               : 0;
}
