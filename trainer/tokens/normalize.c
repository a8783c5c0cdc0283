/* normalize.c - see parts.h: the normalizer of a tokenizer.json, a list of steps over the whole text. */
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "trainer/tokens/parts.h"

enum { NORMAL_STEPS = 16 };

enum normal_kind {
    NORMAL_FORM,
    NORMAL_LOWERCASE,
    NORMAL_STRIP,
    NORMAL_STRIP_ACCENTS,
    NORMAL_REPLACE,
    NORMAL_PREPEND,
    NORMAL_BERT,
    NORMAL_NMT,
    NORMAL_BYTES,
};

struct normal_step {
    enum normal_kind kind;
    bool compatible, composed;           /* form */
    bool left, right;                    /* strip */
    bool clean, chinese, accents, lower; /* bert */
    struct finder *finder;               /* replace */
    char *text;                          /* replace, prepend */
};

struct normalizer {
    struct normal_step step[NORMAL_STEPS];
    int count;
    bool only_beyond_ascii; /* a text of ASCII stays as it is */
    bool removes;
};

void normalizer_destroy(struct normalizer *n)
{
    if (!n)
        return;
    for (int i = 0; i < n->count; i++) {
        finder_destroy(n->step[i].finder);
        mem_free(n->step[i].text);
    }
    mem_free(n);
}
GUARD_DEFINE(normalizer, struct normalizer *, normalizer_destroy);

/* ---- reading ---- */

static const struct {
    const char *type;
    bool compatible, composed;
} normal_forms[] = {{"NFC", false, true}, {"NFD", false, false}, {"NFKC", true, true}, {"NFKD", true, false}};

static int read_bert(const struct part_reader *r, const json_t *part, struct normal_step *step)
{
    const json_t *accents = json_object_get(part, "strip_accents");
    if (part_flag(r, part, "clean_text", -1, &step->clean) < 0 ||
        part_flag(r, part, "handle_chinese_chars", -1, &step->chinese) < 0 ||
        part_flag(r, part, "lowercase", -1, &step->lower) < 0)
        return -1;
    step->accents = step->lower; /* null, as in BERT's own code */
    return !accents || json_is_null(accents) ? 0 : part_flag(r, part, "strip_accents", -1, &step->accents);
}

static int read_text_of_step(const struct part_reader *r, const json_t *part, const char *key,
                             struct normal_step *step)
{
    const char *text = part_text(r, part, key);
    if (text && !(step->text = mem_strdup(text)))
        return error_set(r->err, MUSTER_E_NOMEM, "no memory for a normalizer");
    return text ? 0 : -1;
}

/* Fills a zeroed step; its memory belongs to the normalizer in any case. */
static int read_step(const struct part_reader *r, const json_t *part, struct normal_step *step)
{
    const char *type = part_type(part);
    for (size_t i = 0; i < sizeof normal_forms / sizeof *normal_forms; i++)
        if (!strcmp(type, normal_forms[i].type)) {
            *step = (struct normal_step){.kind = NORMAL_FORM,
                                         .compatible = normal_forms[i].compatible,
                                         .composed = normal_forms[i].composed};
            return 0;
        }
    static const struct {
        const char *type;
        enum normal_kind kind;
    } kinds[] = {{"Lowercase", NORMAL_LOWERCASE},
                 {"StripAccents", NORMAL_STRIP_ACCENTS},
                 {"Strip", NORMAL_STRIP},
                 {"Replace", NORMAL_REPLACE},
                 {"Prepend", NORMAL_PREPEND},
                 {"BertNormalizer", NORMAL_BERT},
                 {"Nmt", NORMAL_NMT},
                 {"ByteLevel", NORMAL_BYTES}};
    size_t i = 0;
    while (i < sizeof kinds / sizeof *kinds && strcmp(type, kinds[i].type) != 0)
        i++;
    if (i == sizeof kinds / sizeof *kinds)
        return part_refuse(r, "normalizer", part);
    step->kind = kinds[i].kind;
    switch (step->kind) {
    case NORMAL_STRIP:
        return part_flag(r, part, "strip_left", -1, &step->left) < 0
                   ? -1
                   : part_flag(r, part, "strip_right", -1, &step->right);
    case NORMAL_REPLACE:
        step->finder = finder_read(r, json_object_get(part, "pattern"), part);
        return step->finder ? read_text_of_step(r, part, "content", step) : -1;
    case NORMAL_PREPEND:
        return read_text_of_step(r, part, "prepend", step);
    case NORMAL_BERT:
        return read_bert(r, part, step);
    default:
        return 0;
    }
}

static int read_parts(const struct part_reader *r, const json_t *part, struct normalizer *n, int depth)
{
    const json_t *parts = json_object_get(part, "normalizers"), *each;
    size_t i;
    if (!strcmp(part_type(part), "Sequence") && json_is_array(parts) && depth < 8) {
        json_array_foreach(parts, i, each)
        {
            if (read_parts(r, each, n, depth + 1) < 0)
                return -1;
        }
        return 0;
    }
    if (n->count == NORMAL_STEPS)
        return part_malformed(r, "the normalizer has too many parts");
    return read_step(r, part, &n->step[n->count++]);
}

struct normalizer *normalizer_read(const struct part_reader *r, const json_t *part)
{
    GUARD(guard_normalizer) struct normalizer *n = mem_calloc(1, sizeof *n);
    if (!n) {
        (void)error_set(r->err, MUSTER_E_NOMEM, "no memory for a normalizer");
        return NULL;
    }
    if (part && !json_is_null(part) && read_parts(r, part, n, 0) < 0)
        return NULL;
    n->only_beyond_ascii = true;
    for (int i = 0; i < n->count; i++) {
        const enum normal_kind kind = n->step[i].kind;
        n->only_beyond_ascii = n->only_beyond_ascii && (kind == NORMAL_FORM || kind == NORMAL_STRIP_ACCENTS);
        n->removes = n->removes || kind == NORMAL_STRIP || kind == NORMAL_STRIP_ACCENTS ||
                     kind == NORMAL_BERT || kind == NORMAL_NMT || kind == NORMAL_REPLACE;
    }
    return take_pointer(&n);
}

static struct normalizer *of_one_step(struct normal_step step, struct muster_error *err)
{
    struct normalizer *n = mem_calloc(1, sizeof *n);
    if (!n) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a normalizer");
        return NULL;
    }
    n->step[n->count++] = step;
    return n;
}

struct normalizer *normalizer_nfc(struct muster_error *err)
{
    struct normalizer *n = of_one_step((struct normal_step){.kind = NORMAL_FORM, .composed = true}, err);
    if (n)
        n->only_beyond_ascii = true;
    return n;
}

struct normalizer *normalizer_bert(bool chinese, bool accents, bool lowercase, struct muster_error *err)
{
    return of_one_step(
        (struct normal_step){
            .kind = NORMAL_BERT, .clean = true, .chinese = chinese, .accents = accents, .lower = lowercase},
        err);
}

bool normalizer_removes(const struct normalizer *n)
{
    return n->removes;
}

static bool is_ascii(const char *text, size_t length)
{
    unsigned char all = 0;
    for (size_t i = 0; i < length; i++)
        all |= (unsigned char)text[i];
    return all < 0x80;
}

bool normalizer_changes(const struct normalizer *n, const char *text, size_t length)
{
    return n->count && !(n->only_beyond_ascii && is_ascii(text, length));
}

/* ---- applying ---- */

static void put_lower(const struct unicode_char *c, const char *text, struct buffer *out)
{
    char bytes[4];
    const uint32_t lower = unicode_lower(c->point);
    if (lower == c->point)                         /* also a byte that is no UTF-8 */
        (void)buffer_append(out, text, c->length); /* out remembers a failure */
    else
        (void)buffer_append(out, bytes, unicode_write(lower, bytes));
    if (c->point == 0x130)
        (void)buffer_text(out, "\xCC\x87"); /* U+0307 */
}

static void lowercase(const char *text, size_t length, struct buffer *out)
{
    for (size_t at = 0; at < length;) {
        const struct unicode_char c = unicode_next(text + at, length - at);
        put_lower(&c, text + at, out);
        at += c.length;
    }
}

static void without_classes(unsigned classes, const char *text, size_t length, struct buffer *out)
{
    for (size_t at = 0; at < length;) {
        const struct unicode_char c = unicode_next(text + at, length - at);
        if (!(c.classes & classes))
            (void)buffer_append(out, text + at, c.length); /* out remembers a failure */
        at += c.length;
    }
}

static void strip(const struct normal_step *step, const char *text, size_t length, struct buffer *out)
{
    size_t from = 0;
    while (step->left && from < length) {
        const struct unicode_char c = unicode_next(text + from, length - from);
        if (!(c.classes & UNICODE_BLANK))
            break;
        from += c.length;
    }
    while (step->right && length > from) {
        const size_t last = unicode_last(text + from, length - from);
        if (!(unicode_next(text + length - last, last).classes & UNICODE_BLANK))
            break;
        length -= last;
    }
    (void)buffer_append(out, text + from, length - from); /* out remembers a failure */
}

static int replace_matches(const struct normal_step *step, const char *text, size_t length,
                           struct buffer *out, struct muster_error *err)
{
    struct search search;
    size_t from = 0, begin = 0, end = 0;
    int found = finder_begin(step->finder, text, length, &search, err) < 0 ? -1 : 1;
    while (found > 0 && (found = finder_next(&search, &begin, &end, err)) > 0) {
        (void)buffer_append(out, text + from, begin - from); /* out remembers a failure */
        (void)buffer_text(out, step->text);
        from = end;
    }
    finder_end(&search);
    (void)buffer_append(out, text + from, length - from);
    return found;
}

static bool is_chinese(uint32_t c)
{
    static const uint32_t ranges[][2] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
                                         {0x20000, 0x2A6DF}, {0x2A700, 0x2B81F}, {0x2B920, 0x2CEAF},
                                         {0x2F800, 0x2FA1F}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i][0] && c <= ranges[i][1])
            return true;
    return false;
}

/* clean_text and handle_chinese_chars. A byte that is no UTF-8 is U+FFFD, which is removed. */
static void clean_for_bert(const struct normal_step *step, const char *text, size_t length,
                           struct buffer *out)
{
    for (size_t at = 0; at < length;) {
        const struct unicode_char c = unicode_next(text + at, length - at);
        const bool chinese = step->chinese && is_chinese(c.point),
                   line = c.point - '\t' < 2 || c.point == '\r';
        const char *from = text + at;
        at += c.length;
        if (step->clean && !line && (c.point == 0 || c.point == 0xFFFD || (c.classes & UNICODE_CONTROL)))
            continue;
        const bool blank = step->clean && (line || (c.classes & UNICODE_BLANK));
        if (chinese)
            (void)buffer_text(out, " "); /* out remembers a failure */
        (void)buffer_append(out, blank ? " " : from, blank ? 1 : c.length);
        if (chinese)
            (void)buffer_text(out, " ");
    }
}

static void bert(const struct normal_step *step, const char *text, size_t length, struct buffer *out)
{
    scope_buffer cleaned = {0}, formed = {0}, bare = {0};
    clean_for_bert(step, text, length, step->accents || step->lower ? &cleaned : out);
    const struct buffer *last = &cleaned;
    if (step->accents) {
        normal_form(false, false, cleaned.data ? cleaned.data : "", cleaned.length, &formed);
        without_classes(UNICODE_NONSPACING, formed.data, formed.length, step->lower ? &bare : out);
        last = &bare;
    }
    if (step->lower)
        lowercase(last->data, last->length, out);
    out->failed = out->failed || cleaned.failed || formed.failed || bare.failed;
}

/* sentencepiece's rule "nmt". */
static void nmt(const char *text, size_t length, struct buffer *out)
{
    for (size_t at = 0; at < length;) {
        const struct unicode_char c = unicode_next(text + at, length - at);
        const uint32_t p = c.point;
        const bool blank = p == 9 || p == 10 || p == 12 || p == 13 || p == 0x1680 ||
                           (p >= 0x200B && p <= 0x200F) || p == 0x2028 || p == 0x2029 || p == 0x2581 ||
                           p == 0xFEFF || p == 0xFFFD;
        const bool gone =
            (p >= 1 && p <= 8) || p == 11 || (p >= 14 && p <= 31) || p == 127 || p == 143 || p == 159;
        if (blank || !gone)
            (void)buffer_append(out, blank ? " " : text + at, blank ? 1 : c.length); /* remembers a failure */
        at += c.length;
    }
}

static int apply_step(const struct normal_step *step, const char *text, size_t length, struct buffer *out,
                      struct muster_error *err)
{
    switch (step->kind) {
    case NORMAL_FORM:
        normal_form(step->compatible, step->composed, text, length, out);
        break;
    case NORMAL_LOWERCASE:
        lowercase(text, length, out);
        break;
    case NORMAL_STRIP:
        strip(step, text, length, out);
        break;
    case NORMAL_STRIP_ACCENTS:
        without_classes(UNICODE_COMBINING, text, length, out);
        break;
    case NORMAL_REPLACE:
        if (replace_matches(step, text, length, out, err) < 0)
            return -1;
        break;
    case NORMAL_PREPEND:
        if (length) {
            (void)buffer_text(out, step->text); /* out remembers a failure */
            (void)buffer_append(out, text, length);
        }
        break;
    case NORMAL_BERT:
        bert(step, text, length, out);
        break;
    case NORMAL_NMT:
        nmt(text, length, out);
        break;
    case NORMAL_BYTES:
        alphabet_letters(text, length, out);
        break;
    }
    return out->failed ? error_set(err, MUSTER_E_NOMEM, "no memory for a text of %zu bytes", length) : 0;
}

int normalizer_apply(const struct normalizer *n, const char *text, size_t length, struct buffer *out,
                     struct muster_error *err)
{
    scope_buffer one = {0}, other = {0};
    for (int i = 0; i < n->count; i++) {
        struct buffer *to = i + 1 == n->count ? out : i % 2 ? &other : &one;
        if (to != out)
            buffer_clear(to);
        if (apply_step(&n->step[i], text, length, to, err) < 0)
            return -1;
        text = to->data ? to->data : "";
        length = to->length;
    }
    if (!n->count && buffer_append(out, text, length) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a text of %zu bytes", length);
    return 0;
}
