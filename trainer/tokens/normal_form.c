/* normal_form.c - see parts.h. The forms come from `tokenizers`, which knows an earlier Unicode than the
 * libraries of a machine: the table is made from it, so that every machine gives the same ids. */
#include <stdlib.h>
#include <string.h>

#include "trainer/tokens/parts.h"

struct canonical_row {
    uint32_t point, first, second; /* second 0: it becomes first alone */
};
struct compatible_row {
    uint32_t point, to; /* bit 31 set: bits 8 to 30 are a place in the pool, bits 0 to 7 a length */
};
struct combining_row {
    uint32_t first, last, combining;
};
#include "trainer/tokens/normal_table.inc"

enum {
    SYLLABLES = 0xAC00, /* Hangul is composed by arithmetic, as chapter 3.12 of the standard says */
    LEADS = 0x1100,
    VOWELS = 0x1161,
    TAILS = 0x11A7,
    VOWEL_COUNT = 21,
    TAIL_COUNT = 28,
    SYLLABLE_COUNT = 19 * VOWEL_COUNT * TAIL_COUNT,
};
#define ROWS(table) (sizeof(table) / sizeof *(table))

/* Characters that wait for the next unmoved character, with their classes. */
struct moved {
    uint32_t point;
    unsigned combining;
};
struct normal_work {
    struct buffer waiting; /* struct moved */
    struct buffer *out;
    bool composed;
};

static int compare_point(const void *key, const void *row)
{
    const uint32_t point = *(const uint32_t *)key, other = *(const uint32_t *)row;
    return (point > other) - (point < other);
}

static int compare_range(const void *key, const void *row)
{
    const uint32_t point = *(const uint32_t *)key;
    const struct combining_row *range = row;
    return point < range->first ? -1 : point > range->last;
}

static unsigned combining_of(uint32_t point)
{
    const struct combining_row *row = point < 0x300 ? NULL
                                                    : bsearch(&point, combining_rows, ROWS(combining_rows),
                                                              sizeof *combining_rows, compare_range);
    return row ? row->combining : 0;
}

static int compare_pair(const void *key, const void *row)
{
    const struct canonical_row *pair = key, *other = &canonical_rows[*(const uint16_t *)row];
    if (pair->first != other->first)
        return pair->first < other->first ? -1 : 1;
    return (pair->second > other->second) - (pair->second < other->second);
}

/* The character of two; 0: they stay two. */
static uint32_t compose(uint32_t first, uint32_t second)
{
    const uint32_t lead = first - LEADS, vowel = second - VOWELS, tail = second - TAILS;
    if (lead < 19 && vowel < VOWEL_COUNT)
        return SYLLABLES + (lead * VOWEL_COUNT + vowel) * TAIL_COUNT;
    if (first - SYLLABLES < SYLLABLE_COUNT && (first - SYLLABLES) % TAIL_COUNT == 0 &&
        tail - 1 < TAIL_COUNT - 1)
        return first + tail;
    const struct canonical_row pair = {.first = first, .second = second};
    const uint16_t *found =
        bsearch(&pair, composing_rows, ROWS(composing_rows), sizeof *composing_rows, compare_pair);
    return found ? canonical_rows[*found].point : 0;
}

static void put_point(struct buffer *out, uint32_t point)
{
    char bytes[4];
    (void)buffer_append(out, bytes, unicode_write(point, bytes)); /* out remembers a failure */
}

/* Composes the waiting characters in place; returns their number. */
static size_t compose_waiting(struct moved *item, size_t count)
{
    size_t kept = 1;
    unsigned last = 0; /* class of the last character that stayed after the first */
    if (item[0].combining)
        return count; /* nothing to compose with */
    for (size_t i = 1; i < count; i++) {
        const bool blocked = kept > 1 && (last >= item[i].combining);
        const uint32_t joined = blocked ? 0 : compose(item[0].point, item[i].point);
        if (joined) {
            item[0].point = joined;
        } else {
            last = item[i].combining;
            item[kept++] = item[i];
        }
    }
    return kept;
}

/* Writes what waits. next: the starter that comes after it, which may be composed with it; 0: none. Returns
 * whether next was taken. */
static bool flush_waiting(struct normal_work *w, uint32_t next)
{
    struct moved *item = (struct moved *)(void *)w->waiting.data;
    size_t count = w->waiting.length / sizeof *item;
    if (!count)
        return false;
    if (w->composed) {
        count = compose_waiting(item, count);
        const uint32_t joined = count == 1 && next ? compose(item[0].point, next) : 0;
        if (joined && !item[0].combining) {
            item[0].point = joined;
            w->waiting.length = sizeof *item;
            return true;
        }
    }
    for (size_t i = 0; i < count; i++)
        put_point(w->out, item[i].point);
    buffer_clear(&w->waiting);
    return false;
}

static void add_waiting(struct normal_work *w, uint32_t point, unsigned combining)
{
    const struct moved added = {point, combining};
    if (!combining && flush_waiting(w, point))
        return;
    if (buffer_append(&w->waiting, &added, sizeof added) < 0) {
        w->out->failed = true;
        return;
    }
    struct moved *item = (struct moved *)(void *)w->waiting.data;
    size_t at = w->waiting.length / sizeof *item - 1;
    for (; combining && at > 0 && item[at - 1].combining > combining; at--)
        item[at] = item[at - 1];
    item[at] = added;
}

static void add_decomposed(struct normal_work *w, uint32_t point, bool compatible)
{
    if (point < 0xA0) {
        add_waiting(w, point, 0);
        return;
    }
    if (point - SYLLABLES < SYLLABLE_COUNT) {
        const uint32_t at = point - SYLLABLES, tail = at % TAIL_COUNT;
        add_waiting(w, LEADS + at / (VOWEL_COUNT * TAIL_COUNT), 0);
        add_waiting(w, VOWELS + at % (VOWEL_COUNT * TAIL_COUNT) / TAIL_COUNT, 0);
        if (tail)
            add_waiting(w, TAILS + tail, 0);
        return;
    }
    const struct compatible_row *other = compatible ? bsearch(&point, compatible_rows, ROWS(compatible_rows),
                                                              sizeof *compatible_rows, compare_point)
                                                    : NULL;
    const uint32_t *points = other ? &other->to : NULL;
    size_t count = 1;
    if (other && other->to >> 31) {
        points = compatible_pool + (other->to >> 8 & 0x7FFFFF);
        count = other->to & 255;
    }
    for (size_t i = 0; points && i < count; i++)
        add_waiting(w, points[i], combining_of(points[i])); /* decomposed already */
    if (points)
        return;
    const struct canonical_row *row =
        bsearch(&point, canonical_rows, ROWS(canonical_rows), sizeof *canonical_rows, compare_point);
    if (!row) {
        add_waiting(w, point, combining_of(point));
        return;
    }
    add_decomposed(w, row->first, false);
    if (row->second)
        add_waiting(w, row->second, combining_of(row->second));
}

void normal_form(bool compatible, bool composed, const char *text, size_t length, struct buffer *out)
{
    struct normal_work w = {.out = out, .composed = composed};
    for (size_t at = 0; at < length && !out->failed;) {
        const struct unicode_char c = unicode_next(text + at, length - at);
        if (c.length == 1 &&
            (unsigned char)text[at] >= 0x80) { /* no UTF-8: it stays, and nothing crosses it */
            (void)flush_waiting(&w, 0);
            (void)buffer_append(out, text + at, 1);
        } else {
            add_decomposed(&w, c.point, compatible);
        }
        at += c.length;
    }
    (void)flush_waiting(&w, 0);
    buffer_free(&w.waiting);
}
