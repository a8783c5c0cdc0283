/* find.c - see parts.h: matches of a text, of a class of characters, or of a regular expression by PCRE2. */
#include <pthread.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/library.h"
#include "proto/base/mem.h"
#include "trainer/tokens/parts.h"

/* Functions as pcre2.h declares them, for 8 bits; the build does not need that header. */
struct pcre_calls {
    void *(*compile)(const uint8_t *pattern, size_t length, uint32_t options, int *error, size_t *place,
                     void *context);
    void (*code_free)(void *code);
    int (*jit_compile)(void *code, uint32_t options);
    int (*match)(const void *code, const uint8_t *text, size_t length, size_t from, uint32_t options,
                 void *data, void *context);
    void *(*data_create)(const void *code, void *context);
    void (*data_free)(void *data);
    size_t *(*places)(void *data);
    int (*message)(int error, uint8_t *text, size_t size);
    void *(*context_create)(void *general);
    void (*context_free)(void *context);
    void *(*stack_create)(size_t first, size_t most, void *general);
    void (*stack_free)(void *stack);
    void (*stack_assign)(void *context, void *call, void *stack);
};
#define ROW(name, member)                                                                                    \
    {                                                                                                        \
        "pcre2_" #name "_8", offsetof(struct pcre_calls, member), false, NULL                                \
    }
static const struct library_function functions[] = {ROW(compile, compile),
                                                    ROW(code_free, code_free),
                                                    ROW(jit_compile, jit_compile),
                                                    ROW(match, match),
                                                    ROW(match_data_create_from_pattern, data_create),
                                                    ROW(match_data_free, data_free),
                                                    ROW(get_ovector_pointer, places),
                                                    ROW(get_error_message, message),
                                                    ROW(match_context_create, context_create),
                                                    ROW(match_context_free, context_free),
                                                    ROW(jit_stack_create, stack_create),
                                                    ROW(jit_stack_free, stack_free),
                                                    ROW(jit_stack_assign, stack_assign)};
#undef ROW
enum {
    PCRE_JIT_COMPLETE = 1,
    PCRE_NO_MATCH = -1,
    STACK_FIRST = 32 << 10,
    STACK_MOST = 16 << 20, /* bytes; an expression that goes back further is an error */
};

static struct pcre_calls calls; /* never changes once it is filled */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int load_pcre(struct muster_error *err)
{
    static const struct library library = {
        .file = "libpcre2-8.so.0",
        .needs = "a regular expression that muster-train has no code for needs libpcre2-8-0",
        .functions = functions,
        .count = sizeof functions / sizeof *functions,
    };
    (void)pthread_mutex_lock(&lock); /* cannot fail: initialized, and not held */
    const int result = library_load(&library, &calls, NULL, err);
    (void)pthread_mutex_unlock(&lock);
    return result;
}

struct finder {
    char *text; /* looked for as it is; NULL: the classes, or the expression */
    size_t length;
    unsigned classes;
    uint8_t *map; /* byte of each code point */
    void *code, *data, *context, *stack;
};

void finder_destroy(struct finder *f)
{
    if (!f)
        return;
    if (f->data)
        calls.data_free(f->data);
    if (f->context)
        calls.context_free(f->context);
    if (f->stack)
        calls.stack_free(f->stack);
    if (f->code)
        calls.code_free(f->code);
    mem_free(f->map);
    mem_free(f->text);
    mem_free(f);
}

static struct finder *no_finder(struct muster_error *err)
{
    (void)error_set(err, MUSTER_E_NOMEM, "no memory for a search of the tokenizer");
    return NULL;
}

struct finder *finder_of_text(const char *text, struct muster_error *err)
{
    GUARD(guard_finder) struct finder *f = mem_calloc(1, sizeof *f);
    if (!f || !(f->text = mem_strdup(text)))
        return no_finder(err);
    f->length = strlen(text);
    return take_pointer(&f);
}

struct finder *finder_of_classes(unsigned classes, struct muster_error *err)
{
    struct finder *f = mem_calloc(1, sizeof *f);
    if (!f)
        return no_finder(err);
    f->classes = classes;
    return f;
}

static int compile(struct finder *f, const struct buffer *expression, struct muster_error *err)
{
    int error = 0;
    size_t place = 0;
    f->code =
        calls.compile((const uint8_t *)expression->data, expression->length - 1, 0, &error, &place, NULL);
    if (!f->code) {
        char why[160] = "";
        (void)calls.message(error, (uint8_t *)why, sizeof why);
        return error_set(err, MUSTER_E_UNSUPPORTED, "PCRE2: %s", why);
    }
    (void)calls.jit_compile(f->code, PCRE_JIT_COMPLETE); /* without it matching is slower */
    f->data = calls.data_create(f->code, NULL);
    f->context = calls.context_create(NULL);
    f->stack = calls.stack_create(STACK_FIRST, STACK_MOST, NULL);
    if (!f->data || !f->context)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a regular expression");
    if (f->stack) /* NULL: a library without compilation */
        calls.stack_assign(f->context, NULL, f->stack);
    return 0;
}

struct finder *finder_of_pattern(const char *pattern, enum pattern_flavour flavour, struct muster_error *err)
{
    scope_buffer expression = {0};
    GUARD(guard_finder) struct finder *f = mem_calloc(1, sizeof *f);
    if (!f || !(f->map = mem_calloc(PATTERN_BYTES, 1)))
        return no_finder(err);
    if (pattern_translate(pattern, flavour, &expression, f->map, err) < 0 || load_pcre(err) < 0 ||
        compile(f, &expression, err) < 0)
        return NULL;
    return take_pointer(&f);
}

struct finder *finder_read(const struct part_reader *r, const json_t *pattern, const json_t *part)
{
    const json_t *regex = json_object_get(pattern, "Regex"), *text = json_object_get(pattern, "String");
    const json_t *value = regex ? regex : text;
    struct finder *f;
    if (json_object_size(pattern) != 1 || !json_is_string(value) || json_string_length(value) == 0 ||
        strlen(json_string_value(value)) != json_string_length(value)) {
        (void)part_refuse(r, r->section, part);
        return NULL;
    }
    f = regex ? finder_of_pattern(json_string_value(value), PATTERN_ONIGURUMA, r->err)
              : finder_of_text(json_string_value(value), r->err);
    if (!f && r->err) {
        const struct muster_error why = *r->err;
        (void)error_set(r->err, (enum muster_error_code)why.code,
                        "%s: the expression '%.120s' of the %s: %.200s", r->path, json_string_value(value),
                        r->section, why.text);
    }
    return f;
}

/* ---- a search ---- */

int finder_begin(struct finder *finder, const char *text, size_t length, struct search *s,
                 struct muster_error *err)
{
    s->finder = finder;
    s->text = text;
    s->length = length;
    s->at = s->seen = s->count = s->from = 0;
    s->matched = false;
    s->bytes = s->few;
    if (!finder->map)
        return 0;
    if (length > sizeof s->few && !(s->bytes = mem_realloc(NULL, length, 1)))
        return error_set(err, MUSTER_E_NOMEM, "no memory for a text of %zu bytes", length);
    for (size_t at = 0; at < length; s->count++) {
        const unsigned char byte = (unsigned char)text[at];
        if (byte < 0x80) {
            s->bytes[s->count] = finder->map[byte];
            at++;
            continue;
        }
        const struct unicode_char c = unicode_next(text + at, length - at);
        s->bytes[s->count] = finder->map[c.point];
        at += c.length;
    }
    return 0;
}

void finder_end(struct search *s)
{
    if (s->bytes != s->few)
        mem_free(s->bytes);
}

/* The place of a character, which is not before the character of the last call. */
static size_t byte_place(struct search *s, size_t character)
{
    if (s->count == s->length) {
        s->at = s->seen = character;
        return character;
    }
    for (; s->seen < character; s->seen++) {
        const unsigned char byte = (unsigned char)s->text[s->at];
        s->at += byte < 0x80 ? 1 : unicode_next(s->text + s->at, s->length - s->at).length;
    }
    return s->at;
}

static int next_of_pattern(struct search *s, size_t *begin, size_t *end, struct muster_error *err)
{
    const struct finder *f = s->finder;
    while (s->from <= s->count) {
        const int found = calls.match(f->code, s->bytes, s->count, s->from, 0, f->data, f->context);
        if (found == PCRE_NO_MATCH)
            return 0;
        if (found < 0) {
            char why[160] = "";
            (void)calls.message(found, (uint8_t *)why, sizeof why);
            return error_set(err, MUSTER_E_LIMIT,
                             "the regular expression of the tokenizer fails in a text of %zu bytes: %s",
                             s->length, why);
        }
        const size_t *places = calls.places(f->data), first = places[0], last = places[1];
        if (first == last && s->matched && last == s->from) { /* an empty match right after a match */
            s->matched = false;
            s->from++;
            continue;
        }
        s->matched = true;
        s->from = last;
        *begin = byte_place(s, first);
        *end = byte_place(s, last);
        return 1;
    }
    return 0;
}

static int next_of_classes(struct search *s, size_t *begin, size_t *end)
{
    while (s->at < s->length) {
        const struct unicode_char c = unicode_next(s->text + s->at, s->length - s->at);
        s->at += c.length;
        if (c.classes & s->finder->classes) {
            *begin = s->at - c.length;
            *end = s->at;
            return 1;
        }
    }
    return 0;
}

int finder_next(struct search *s, size_t *begin, size_t *end, struct muster_error *err)
{
    const struct finder *f = s->finder;
    if (f->map)
        return next_of_pattern(s, begin, end, err);
    if (!f->text)
        return next_of_classes(s, begin, end);
    const char *found = memmem(s->text + s->at, s->length - s->at, f->text, f->length);
    if (!found)
        return 0;
    *begin = (size_t)(found - s->text);
    *end = s->at = *begin + f->length;
    return 1;
}
