/* words.c - see texts.h. */
#include <string.h>
#include <xxhash.h>

#include "proto/base/buffer.h"
#include "proto/base/error.h"
#include "proto/base/io.h"
#include "proto/base/mem.h"
#include "proto/base/text.h"
#include "trainer/corpus/texts.h"
#include "trainer/tokens/unicode.h"

enum { LONGEST = 256 }; /* bytes of a word that are hashed; no language has longer words */

struct range {
    uint32_t first, last;
};

static bool is_in(const struct range *ranges, size_t count, uint32_t point)
{
    for (size_t i = 0; i < count && point >= ranges[i].first; i++)
        if (point <= ranges[i].last)
            return true;
    return false;
}

/* Blocks of combining marks, and of the scripts of India, whose vowel signs are no letters. */
bool words_is_mark(uint32_t point)
{
    static const struct range ranges[] = {
        {0x300, 0x36F},   {0x483, 0x487},   {0x591, 0x5C7},   {0x610, 0x61A},   {0x64B, 0x65F},
        {0x670, 0x670},   {0x6D6, 0x6ED},   {0x711, 0x711},   {0x730, 0x74A},   {0x900, 0x963},
        {0x966, 0xDF3},   {0xE31, 0xE4E},   {0xEB1, 0xECD},   {0xF18, 0xF19},   {0xF35, 0xF84},
        {0x102B, 0x103E}, {0x17B4, 0x17D3}, {0x1AB0, 0x1AFF}, {0x1DC0, 0x1DFF}, {0x200C, 0x200D},
        {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}};
    return point >= ranges[0].first && is_in(ranges, sizeof ranges / sizeof *ranges, point);
}

static bool is_alone(uint32_t point)
{
    static const struct range ranges[] = {{0xE00, 0xEFF},   {0x1000, 0x109F},  {0x1780, 0x17FF},
                                          {0x3040, 0x30FF}, {0x3400, 0x4DBF},  {0x4E00, 0x9FFF},
                                          {0xF900, 0xFAFF}, {0x20000, 0x3FFFF}};
    return point >= ranges[0].first && is_in(ranges, sizeof ranges / sizeof *ranges, point);
}

static uint64_t hash_of(const char *word, size_t length)
{
    char lower[LONGEST];
    const size_t kept = length < LONGEST ? length : LONGEST;
    for (size_t i = 0; i < kept; i++)
        lower[i] = (char)(word[i] >= 'A' && word[i] <= 'Z' ? word[i] + 'a' - 'A' : word[i]);
    const uint64_t hash = XXH3_64bits(lower, kept);
    return hash ? hash : 1;
}

static int add_word(struct words *words, const char *word, size_t length, size_t chars)
{
    if (words->count == words->capacity) {
        const size_t wanted = words->capacity * 2 + 1024;
        uint64_t *grown = mem_realloc(words->hash, wanted, sizeof *grown);
        if (!grown)
            return -1;
        words->hash = grown;
        words->capacity = wanted;
    }
    words->hash[words->count++] = hash_of(word, length);
    words->chars += chars;
    return 0;
}

/* Bytes of the word at text; 0: no word begins there, and the next *skip bytes belong to none. */
static size_t word_at(const char *text, size_t length, size_t *chars, size_t *skip)
{
    size_t at = 0;
    *chars = 0;
    while (at < length) {
        const struct unicode_char c = unicode_next(text + at, length - at);
        const bool letter = c.classes & (UNICODE_LETTER | UNICODE_NUMBER);
        if (!letter && !(at && words_is_mark(c.point))) {
            *skip = c.length;
            break;
        }
        if (letter && is_alone(c.point) && *chars)
            break; /* this character is the next word */
        at += c.length;
        ++*chars;
        if (letter && is_alone(c.point)) {
            while (at < length) { /* its marks belong to the word */
                const struct unicode_char mark = unicode_next(text + at, length - at);
                if ((mark.classes & (UNICODE_LETTER | UNICODE_NUMBER)) || !words_is_mark(mark.point))
                    break;
                at += mark.length;
            }
            break;
        }
    }
    return at;
}

int words_split(struct words *words, const char *text, size_t length)
{
    words->count = words->chars = 0;
    while (length) {
        size_t chars, skip = 0;
        const size_t word = word_at(text, length, &chars, &skip);
        if (word && add_word(words, text, word, chars) < 0)
            return -1;
        const size_t past = word ? word : skip;
        text += past;
        length -= past;
    }
    return 0;
}

void words_free(struct words *words)
{
    if (!words)
        return;
    mem_free(words->hash);
    memset(words, 0, sizeof *words);
}

/* ---- a set of hashes ---- */

enum { SET_LEAST = 256, SET_KEPT = 1 << 16 };

static size_t hash_slot(const struct hash_set *set, uint64_t hash)
{
    size_t at = (size_t)(hash * UINT64_C(0x9E3779B97F4A7C15) >> 20) & (set->capacity - 1);
    while (set->slot[at] && set->slot[at] != hash)
        at = (at + 1) & (set->capacity - 1);
    return at;
}

static int grow_set(struct hash_set *set)
{
    struct hash_set larger = {.capacity = set->capacity ? set->capacity * 2 : SET_LEAST};
    larger.slot = mem_calloc(larger.capacity, sizeof *larger.slot);
    if (!larger.slot)
        return -1;
    for (size_t i = 0; i < set->capacity; i++)
        if (set->slot[i])
            larger.slot[hash_slot(&larger, set->slot[i])] = set->slot[i];
    larger.count = set->count;
    mem_free(set->slot);
    *set = larger;
    return 0;
}

int hash_set_add(struct hash_set *set, uint64_t hash)
{
    hash = hash ? hash : 1;
    if (set->count * 2 >= set->capacity && grow_set(set) < 0)
        return -1;
    const size_t at = hash_slot(set, hash);
    if (set->slot[at])
        return 1;
    set->slot[at] = hash;
    set->count++;
    return 0;
}

bool hash_set_has(const struct hash_set *set, uint64_t hash)
{
    return set->capacity && set->slot[hash_slot(set, hash ? hash : 1)] != 0;
}

void hash_set_clear(struct hash_set *set)
{
    if (set->capacity > SET_KEPT) {
        hash_set_free(set);
        return;
    }
    if (set->count)
        memset(set->slot, 0, set->capacity * sizeof *set->slot);
    set->count = 0;
}

void hash_set_free(struct hash_set *set)
{
    if (!set)
        return;
    mem_free(set->slot);
    memset(set, 0, sizeof *set);
}

/* ---- lists of words ---- */

enum { LIST_LIMIT = 64 << 20 };

static int add_line(struct words *words, const char *line, size_t length, struct hash_set *out,
                    struct muster_error *err)
{
    while (length && strchr(" \t\r", line[length - 1]))
        length--;
    if (!length || *line == '#')
        return 0;
    if (words_split(words, line, length) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a list of words");
    if (words->count != 1)
        return error_set(err, MUSTER_E_INVALID, "'%.*s' is %zu words, and a line has one",
                         (int)(length < 40 ? length : 40), line, words->count);
    return hash_set_add(out, words->hash[0]) < 0
               ? error_set(err, MUSTER_E_NOMEM, "no memory for a list of words")
               : 0;
}

static int add_lines(struct words *words, const char *path, const char *text, size_t length,
                     struct hash_set *out, struct muster_error *err)
{
    for (int number = 1; length; number++) {
        const char *end = memchr(text, '\n', length);
        const size_t line = end ? (size_t)(end - text) : length;
        if (add_line(words, text, line, out, err) < 0)
            return error_wrap(err, "%s:%d", path, number);
        text += line + (end != NULL);
        length -= line + (end != NULL);
    }
    return 0;
}

int word_list_read(const char *path, struct hash_set *out, uint64_t *hash, struct muster_error *err)
{
    scope_buffer bytes = {0};
    struct words words = {0};
    if (io_read_file(path, LIST_LIMIT, &bytes, err) < 0)
        return -1;
    const char *text = bytes.data ? bytes.data : "";
    *hash = text_hash(*hash, text, bytes.length);
    const size_t mark = text_byte_order_mark(text, bytes.length);
    const int result = add_lines(&words, path, text + mark, bytes.length - mark, out, err);
    words_free(&words);
    return result;
}
