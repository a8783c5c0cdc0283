/* measure.c - see texts.h and rules.h: the values of a text, its language, and the check of the rules. */
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <xxhash.h>

#include "proto/base/buffer.h"
#include "proto/base/error.h"
#include "proto/base/io.h"
#include "proto/base/library.h"
#include "trainer/corpus/rules.h"
#include "trainer/corpus/texts.h"
#include "trainer/tokens/unicode.h"

enum { RUN_WORDS = 4 }; /* words of a repeated run */

void measure_room_free(struct measure_room *room)
{
    if (room)
        hash_set_free(&room->seen);
}

/* Punctuation of sentences. Any other character that is no letter, number or blank is a symbol. */
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

/* The share of bytes in repeated lines; blanks around a line do not count. */
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

/* ---- language ---- */

enum {
    LOOKED_AT = 4096, /* most bytes of a text that are judged */
    SHORTEST = 80,    /* bytes; a shorter text is not judged */
    DATABASE_LIMIT = 1 << 20
};

/* Functions as textcat.h declares them; the build does not need that header. */
struct textcat_calls {
    void *(*init)(const char *database, const char *prefix);
    char *(*classify)(void *handle, const char *text, size_t length);
    void (*done)(void *handle);
};
static const struct library_function functions[] = {
    {"special_textcat_Init", offsetof(struct textcat_calls, init), false, NULL},
    {"textcat_Classify", offsetof(struct textcat_calls, classify), false, NULL},
    {"textcat_Done", offsetof(struct textcat_calls, done), false, NULL},
};
static const struct library textcat = {"libexttextcat-2.0.so.0", "--languages needs libexttextcat-2.0-0",
                                       functions, sizeof functions / sizeof *functions};

struct language {
    struct textcat_calls calls;
    void *handle;
    char *kept; /* ",en,de," */
};

static bool is_kept(const struct language *l, const char *name, size_t length)
{
    for (const char *at = l->kept; (at = strchr(at, ',')) && at[1]; at++)
        if (!strncmp(at + 1, name, length) && (at[1 + length] == ',' || at[1 + length] == '-'))
            return true;
    return false;
}

/* A line of the database is "en.lm en--utf8"; the language is the part before "--". */
static bool is_known(const char *database, const char *name, size_t length)
{
    for (const char *line = database; line && *line;
         line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        const char *code = line + strcspn(line, " \t\n");
        code += strspn(code, " \t");
        if (*line != '#' && !strncmp(code, name, length) && (code[length] == '-' || code[length] == '\n'))
            return true;
    }
    return false;
}

static int check_kept(const char *kept, const char *folder, const char *database, struct muster_error *err)
{
    for (const char *at = kept; *at; at += strspn(at, ",")) {
        const size_t length = strcspn(at, ",");
        if (!length || !is_known(database, at, length))
            return error_set(err, MUSTER_E_INVALID, "--languages: '%.*s' is no language of %s/fpdb.conf",
                             (int)length, at, folder);
        at += length;
    }
    return 0;
}

struct language *language_open(const char *kept, const char *folder, struct muster_error *err)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* the library has static state while it reads */
    scope_buffer database = {0};
    scope_free char *path = mem_printf("%s/fpdb.conf", folder), *prefix = mem_printf("%s/", folder);
    GUARD(guard_language) struct language *l = mem_calloc(1, sizeof *l);
    if (!path || !prefix || !l || !(l->kept = mem_printf(",%s,", kept))) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for --languages");
        return NULL;
    }
    if (io_read_file(path, DATABASE_LIMIT, &database, err) < 0) {
        (void)error_wrap(err, "--languages needs the n-grams of libexttextcat-data (--language_data)");
        return NULL;
    }
    if (check_kept(kept, folder, database.data ? database.data : "", err) < 0)
        return NULL;
    (void)pthread_mutex_lock(&lock); /* cannot fail: initialized, and not held */
    if (!library_load(&textcat, &l->calls, NULL, err) && !(l->handle = l->calls.init(path, prefix)))
        (void)error_set(err, MUSTER_E_INVALID, "%s: libexttextcat cannot read it, or a file that it names",
                        path);
    (void)pthread_mutex_unlock(&lock);
    return l->handle ? take_pointer(&l) : NULL;
}

void language_close(struct language *l)
{
    if (!l)
        return;
    if (l->handle)
        l->calls.done(l->handle);
    mem_free(l->kept);
    mem_free(l);
}

/* The library answers "[en--utf8][sco--utf8]", the likely languages, or SHORT or UNKNOWN. */
double language_measure(struct language *l, const char *text, size_t length)
{
    if (length > LOOKED_AT) {
        length = LOOKED_AT;
        while (length && ((unsigned char)text[length] & 0xC0) == 0x80)
            length--;
    }
    if (length < SHORTEST)
        return (double)NAN;
    const char *answer = l->calls.classify(l->handle, text, length);
    if (!answer || *answer != '[')
        return answer && !strcmp(answer, "SHORT") ? (double)NAN : 0;
    for (; *answer == '['; answer += strcspn(answer, "]") + 1)
        if (is_kept(l, answer + 1, strcspn(answer + 1, "-]")))
            return 1;
    return 0;
}

/* ---- rules ---- */

const struct rule_row corpus_rules[RULE_COUNT] = {
#define RULE_ROW(id, name, bound, limit, least, largest, help) [RULE_##id] = {name, bound},
    CORPUS_RULES(RULE_ROW)
#undef RULE_ROW
};

int rules_check(const struct measures *measures, const double limits[RULE_COUNT])
{
    for (int i = 0; i < RULE_COUNT; i++) {
        const double value = measures->value[i], limit = limits[i];
        if (corpus_rules[i].bound == RULE_AT_LEAST ? value < limit : value > limit)
            return i;
    }
    return RULE_PASSED;
}
