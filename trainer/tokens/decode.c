/* decode.c - see parts.h: the decoder of a tokenizer.json, a list of steps over the texts of tokens. */
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "trainer/tokens/parts.h"

enum { DECODE_STEPS = 16, DECODE_STRIPPED = 1 << 20 };

enum decode_kind {
    DECODE_BYTE_LEVEL,
    DECODE_WORDPIECE,
    DECODE_METASPACE,
    DECODE_BPE,
    DECODE_BYTE_FALLBACK,
    DECODE_FUSE,
    DECODE_STRIP,
    DECODE_REPLACE,
};

struct decode_step {
    enum decode_kind kind;
    char *
        text; /* wordpiece: what continues a word; bpe: what ends one; strip: a character; replace: content */
    struct finder *finder; /* replace */
    bool cleanup;          /* wordpiece */
    bool prefixed;         /* metaspace */
    int64_t start, stop;   /* strip: characters at most */
};

struct decoder {
    struct decode_step step[DECODE_STEPS];
    int count;
};

void decoder_destroy(struct decoder *d)
{
    if (!d)
        return;
    for (int i = 0; i < d->count; i++) {
        finder_destroy(d->step[i].finder);
        mem_free(d->step[i].text);
    }
    mem_free(d);
}
GUARD_DEFINE(decoder, struct decoder *, decoder_destroy);

/* ---- reading ---- */

static int keep_text(const struct part_reader *r, const json_t *part, const char *key,
                     struct decode_step *step)
{
    const char *text = part_text(r, part, key);
    if (text && !(step->text = mem_strdup(text)))
        return error_set(r->err, MUSTER_E_NOMEM, "no memory for a decoder");
    return text ? 0 : -1;
}

static int read_strip(const struct part_reader *r, const json_t *part, struct decode_step *step)
{
    if (keep_text(r, part, "content", step) < 0)
        return -1;
    if (!*step->text || unicode_next(step->text, strlen(step->text)).length != strlen(step->text))
        return part_refuse(r, "decoder", part);
    return part_number(r, part, "start", DECODE_STRIPPED, &step->start) < 0
               ? -1
               : part_number(r, part, "stop", DECODE_STRIPPED, &step->stop);
}

static int read_metaspace(const struct part_reader *r, const json_t *part, struct decode_step *step)
{
    const json_t *scheme = json_object_get(part, "prepend_scheme");
    const char *mark = json_string_value(json_object_get(part, "replacement")),
               *name = json_string_value(scheme);
    bool prefix;
    if (!mark || strcmp(mark, NORMALIZE_MARK) != 0 || (scheme && !name) ||
        (name && strcmp(name, "always") != 0 && strcmp(name, "first") != 0 && strcmp(name, "never") != 0))
        return part_refuse(r, "decoder", part);
    if (part_flag(r, part, "add_prefix_space", 1, &prefix) < 0)
        return -1;
    step->prefixed = !name || strcmp(name, "never") != 0;
    return !prefix && step->prefixed ? part_refuse(r, "decoder", part) : 0; /* they contradict each other */
}

static int read_step(const struct part_reader *r, const json_t *part, struct decode_step *step)
{
    static const struct {
        const char *type;
        enum decode_kind kind;
    } kinds[] = {{"ByteLevel", DECODE_BYTE_LEVEL},
                 {"WordPiece", DECODE_WORDPIECE},
                 {"Metaspace", DECODE_METASPACE},
                 {"BPEDecoder", DECODE_BPE},
                 {"ByteFallback", DECODE_BYTE_FALLBACK},
                 {"Fuse", DECODE_FUSE},
                 {"Strip", DECODE_STRIP},
                 {"Replace", DECODE_REPLACE}};
    const char *type = part_type(part);
    bool ignored;
    size_t i = 0;
    while (i < sizeof kinds / sizeof *kinds && strcmp(type, kinds[i].type) != 0)
        i++;
    if (i == sizeof kinds / sizeof *kinds)
        return part_refuse(r, "decoder", part);
    step->kind = kinds[i].kind;
    switch (step->kind) {
    case DECODE_BYTE_LEVEL:
        return part_flag(r, part, "add_prefix_space", 1, &ignored) < 0 ||
                       part_flag(r, part, "trim_offsets", 1, &ignored) < 0 ||
                       part_flag(r, part, "use_regex", 1, &ignored) < 0
                   ? -1
                   : 0;
    case DECODE_WORDPIECE:
        return keep_text(r, part, "prefix", step) < 0 ? -1
                                                      : part_flag(r, part, "cleanup", -1, &step->cleanup);
    case DECODE_METASPACE:
        return read_metaspace(r, part, step);
    case DECODE_BPE:
        return keep_text(r, part, "suffix", step);
    case DECODE_STRIP:
        return read_strip(r, part, step);
    case DECODE_REPLACE:
        step->finder = finder_read(r, json_object_get(part, "pattern"), part);
        return step->finder ? keep_text(r, part, "content", step) : -1;
    default:
        return 0;
    }
}

static int read_parts(const struct part_reader *r, const json_t *part, struct decoder *d, int depth)
{
    const json_t *parts = json_object_get(part, "decoders"), *each;
    size_t i;
    if (!strcmp(part_type(part), "Sequence") && json_is_array(parts) && depth < 8) {
        json_array_foreach(parts, i, each)
        {
            if (read_parts(r, each, d, depth + 1) < 0)
                return -1;
        }
        return 0;
    }
    if (d->count == DECODE_STEPS)
        return part_malformed(r, "the decoder has too many parts");
    return read_step(r, part, &d->step[d->count++]);
}

static struct decoder *create_decoder(struct muster_error *err)
{
    struct decoder *d = mem_calloc(1, sizeof *d);
    if (!d)
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a decoder");
    return d;
}

struct decoder *decoder_read(const struct part_reader *r, const json_t *part)
{
    GUARD(guard_decoder) struct decoder *d = create_decoder(r->err);
    if (!d || part_is_nothing(part)) {
        if (d) /* each token but the last is followed by a blank */
            d->step[d->count++] = (struct decode_step){.kind = DECODE_WORDPIECE};
        return take_pointer(&d);
    }
    return read_parts(r, part, d, 0) < 0 ? NULL : take_pointer(&d);
}

struct decoder *decoder_wordpiece(struct muster_error *err)
{
    GUARD(guard_decoder) struct decoder *d = create_decoder(err);
    if (!d)
        return NULL;
    d->step[d->count++] =
        (struct decode_step){.kind = DECODE_WORDPIECE, .text = mem_strdup("##"), .cleanup = true};
    if (d->step[0].text)
        return take_pointer(&d);
    (void)error_set(err, MUSTER_E_NOMEM, "no memory for a decoder");
    return NULL;
}

/* ---- texts of tokens ---- */

void pieces_add(struct pieces *p)
{
    if (p->count == p->capacity) {
        const size_t wanted = p->capacity * 2 + 64;
        size_t *grown = mem_realloc(p->end, wanted, sizeof *grown);
        if (!grown) {
            p->text.failed = true;
            return;
        }
        p->end = grown;
        p->capacity = wanted;
    }
    p->end[p->count++] = p->text.length;
}

void pieces_free(struct pieces *p)
{
    buffer_free(&p->text);
    mem_free(p->end);
    *p = (struct pieces){0};
}

static const char *piece_text(const struct pieces *p, size_t i, size_t *length)
{
    const size_t begin = i ? p->end[i - 1] : 0;
    *length = p->end[i] - begin;
    return p->text.data ? p->text.data + begin : "";
}

static bool starts_with_text(const char *text, size_t length, const char *with)
{
    return length >= strlen(with) && !memcmp(text, with, strlen(with));
}

/* ---- the steps: from one list of tokens to another; a failure stays in the list ---- */

static void add_text(struct pieces *to, const char *text, size_t length)
{
    (void)buffer_append(&to->text, text, length); /* remembers a failure */
}

static void decode_byte_level(const struct pieces *from, struct pieces *to)
{
    for (size_t i = 0; i < from->count; i++) {
        size_t length;
        const char *text = piece_text(from, i, &length);
        if (!alphabet_bytes(text, length, &to->text)) /* an added token with other characters */
            add_text(to, text, length);
    }
    pieces_add(to);
}

/* Every occurrence of `what` in a text becomes `by`. */
static void put_replaced(const char *text, size_t length, const char *what, const char *by,
                         struct buffer *out)
{
    const size_t bytes = strlen(what);
    for (const char *found; bytes && (found = memmem(text, length, what, bytes));) {
        const size_t before = (size_t)(found - text);
        (void)buffer_append(out, text, before); /* out remembers a failure */
        (void)buffer_text(out, by);
        text = found + bytes;
        length -= before + bytes;
    }
    (void)buffer_append(out, text, length);
}

/* English as BERT's own code writes it: each row over the result of the row before. */
static void put_cleaned(const char *text, size_t length, struct buffer *out)
{
    static const char *const rows[][2] = {
        {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
        {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    scope_buffer one = {0}, other = {0};
    (void)buffer_append(&one, text, length); /* remembers a failure */
    struct buffer *now = &one, *next = &other;
    for (size_t i = 0; i < sizeof rows / sizeof *rows && memchr(now->data ? now->data : "", ' ', now->length);
         i++) {
        buffer_clear(next);
        put_replaced(now->data, now->length, rows[i][0], rows[i][1], next);
        struct buffer *last = now;
        now = next;
        next = last;
    }
    out->failed = out->failed || one.failed || other.failed;
    (void)buffer_append(out, now->data ? now->data : "", now->length);
}

static void decode_wordpiece(const struct decode_step *step, const struct pieces *from, struct pieces *to)
{
    for (size_t i = 0; i < from->count; i++) {
        size_t length;
        scope_buffer whole = {0};
        const char *text = piece_text(from, i, &length);
        const bool goes_on = i && step->text && starts_with_text(text, length, step->text);
        if (i && !goes_on)
            (void)buffer_text(&whole, " "); /* whole remembers a failure */
        (void)buffer_append(&whole, text + (goes_on ? strlen(step->text) : 0),
                            length - (goes_on ? strlen(step->text) : 0));
        if (step->cleanup)
            put_cleaned(whole.data ? whole.data : "", whole.length, &to->text);
        else
            add_text(to, whole.data ? whole.data : "", whole.length);
        to->text.failed = to->text.failed || whole.failed;
        pieces_add(to);
    }
}

static void decode_metaspace(const struct decode_step *step, const struct pieces *from, struct pieces *to)
{
    for (size_t i = 0; i < from->count; i++) {
        size_t length;
        const char *text = piece_text(from, i, &length);
        put_replaced(text, length, NORMALIZE_MARK, i || !step->prefixed ? " " : "", &to->text);
        pieces_add(to);
    }
}

static void decode_bpe(const struct decode_step *step, const struct pieces *from, struct pieces *to)
{
    for (size_t i = 0; i < from->count; i++) {
        size_t length;
        const char *text = piece_text(from, i, &length);
        put_replaced(text, length, step->text, i + 1 < from->count ? " " : "", &to->text);
        pieces_add(to);
    }
}

static int hex_digit(char c)
{
    const char lower = (char)(c | 32);
    return c >= '0' && c <= '9' ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/* The byte of "<0x0A>"; -1: another token. */
static int byte_of_token(const char *text, size_t length)
{
    if (length != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    const int high = hex_digit(text[3]), low = hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

/* Adds bytes that are UTF-8 as one token, others as a U+FFFD each. */
static void put_fallback(const struct buffer *bytes, struct pieces *to)
{
    bool whole = true;
    for (size_t at = 0, step; at < bytes->length; at += step) {
        step = unicode_next(bytes->data + at, bytes->length - at).length;
        whole = whole && (step > 1 || (unsigned char)bytes->data[at] < 0x80);
    }
    if (bytes->length && whole) {
        add_text(to, bytes->data, bytes->length);
        pieces_add(to);
        return;
    }
    for (size_t i = 0; i < bytes->length; i++) {
        add_text(to, "\xEF\xBF\xBD", 3);
        pieces_add(to);
    }
}

static void decode_byte_fallback(const struct pieces *from, struct pieces *to)
{
    scope_buffer bytes = {0};
    for (size_t i = 0; i < from->count; i++) {
        size_t length;
        const char *text = piece_text(from, i, &length);
        const int byte = byte_of_token(text, length);
        if (byte >= 0) {
            (void)buffer_append(&bytes, &(char){(char)byte}, 1); /* bytes remember a failure */
            continue;
        }
        put_fallback(&bytes, to);
        buffer_clear(&bytes);
        add_text(to, text, length);
        pieces_add(to);
    }
    put_fallback(&bytes, to);
    to->text.failed = to->text.failed || bytes.failed;
}

static void decode_strip(const struct decode_step *step, const struct pieces *from, struct pieces *to)
{
    const size_t bytes = strlen(step->text);
    for (size_t i = 0; i < from->count; i++) {
        size_t length;
        const char *text = piece_text(from, i, &length);
        for (int64_t n = 0; n < step->start && starts_with_text(text, length, step->text); n++) {
            text += bytes;
            length -= bytes;
        }
        for (int64_t n = 0;
             n < step->stop && length >= bytes && !memcmp(text + length - bytes, step->text, bytes); n++)
            length -= bytes;
        add_text(to, text, length);
        pieces_add(to);
    }
}

static int decode_replace(const struct decode_step *step, const struct pieces *from, struct pieces *to,
                          struct muster_error *err)
{
    for (size_t i = 0; i < from->count; i++) {
        size_t length, at = 0, begin = 0, end = 0;
        struct search search;
        const char *text = piece_text(from, i, &length);
        int found = finder_begin(step->finder, text, length, &search, err) < 0 ? -1 : 1;
        while (found > 0 && (found = finder_next(&search, &begin, &end, err)) > 0) {
            add_text(to, text + at, begin - at);
            add_text(to, step->text, strlen(step->text));
            at = end;
        }
        finder_end(&search);
        if (found < 0)
            return -1;
        add_text(to, text + at, length - at);
        pieces_add(to);
    }
    return 0;
}

static int decode_step(const struct decode_step *step, const struct pieces *from, struct pieces *to,
                       struct muster_error *err)
{
    switch (step->kind) {
    case DECODE_BYTE_LEVEL:
        decode_byte_level(from, to);
        break;
    case DECODE_WORDPIECE:
        decode_wordpiece(step, from, to);
        break;
    case DECODE_METASPACE:
        decode_metaspace(step, from, to);
        break;
    case DECODE_BPE:
        decode_bpe(step, from, to);
        break;
    case DECODE_BYTE_FALLBACK:
        decode_byte_fallback(from, to);
        break;
    case DECODE_FUSE:
        add_text(to, from->text.data ? from->text.data : "", from->text.length);
        pieces_add(to);
        break;
    case DECODE_STRIP:
        decode_strip(step, from, to);
        break;
    case DECODE_REPLACE:
        return decode_replace(step, from, to, err);
    }
    return 0;
}

int decoder_apply(const struct decoder *d, struct pieces *tokens, struct buffer *out,
                  struct muster_error *err)
{
    int failed = 0;
    for (int i = 0; i < d->count && !failed; i++) {
        struct pieces next = {0};
        failed = decode_step(&d->step[i], tokens, &next, err);
        const bool no_memory = tokens->text.failed || next.text.failed;
        pieces_free(tokens);
        *tokens = next;
        tokens->text.failed = no_memory;
    }
    if (failed)
        return -1;
    if (!tokens->text.failed)
        (void)buffer_append(out, tokens->text.data ? tokens->text.data : "", tokens->text.length);
    return tokens->text.failed || out->failed
               ? error_set(err, MUSTER_E_NOMEM, "no memory for the text of the tokens")
               : 0;
}
