/* sentencepiece_bpe.c - see bpe.h: a BPE model of sentencepiece as merges of characters.
 *
 * libsentencepiece joins the two neighbours whose joined text is the piece with the highest score. Each way
 * to cut a piece into two pieces is a merge here, and its rank is the place of the piece's score. A model in
 * which that is not the same (Unigram, a charsmap, user-defined or unused pieces, no byte fallback) stays
 * with the library. */
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "trainer/tokens/bpe.h"

/* ---- protobuf's wire format, as far as a model has it ---- */

enum wire { WIRE_NUMBER = 0, WIRE_EIGHT = 1, WIRE_BYTES = 2, WIRE_FOUR = 5 };

struct wire_reader {
    const unsigned char *at, *end;
};
struct wire_field {
    uint64_t number; /* of the field */
    enum wire wire;
    uint64_t value; /* WIRE_NUMBER, WIRE_FOUR */
    const char *data;
    size_t length; /* WIRE_BYTES */
};

static bool wire_number(struct wire_reader *r, uint64_t *out)
{
    *out = 0;
    for (unsigned shift = 0; r->at < r->end && shift < 64; shift += 7) {
        const unsigned char byte = *r->at++;
        *out |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return true;
    }
    return false;
}

/* 1: a field; 0: the end; -1: the bytes are no message. */
static int wire_next(struct wire_reader *r, struct wire_field *f)
{
    uint64_t key;
    if (r->at == r->end)
        return 0;
    if (!wire_number(r, &key))
        return -1;
    *f = (struct wire_field){.number = key >> 3, .wire = (enum wire)(key & 7)};
    if (f->wire == WIRE_NUMBER)
        return wire_number(r, &f->value) ? 1 : -1;
    uint64_t length = f->wire == WIRE_FOUR ? 4 : f->wire == WIRE_EIGHT ? 8 : 0;
    if ((f->wire == WIRE_BYTES && !wire_number(r, &length)) || (!length && f->wire != WIRE_BYTES) ||
        length > (uint64_t)(r->end - r->at))
        return -1;
    f->data = (const char *)r->at;
    f->length = (size_t)length;
    if (f->wire == WIRE_FOUR) {
        uint32_t four;
        memcpy(&four, r->at, sizeof four);
        f->value = four;
    }
    r->at += length;
    return 1;
}

static struct wire_reader reader_of(const char *data, size_t length)
{
    return (struct wire_reader){(const unsigned char *)data, (const unsigned char *)data + length};
}

/* ---- sentencepiece_model.proto: fields and their defaults ---- */

enum { MODEL_PIECE = 1, MODEL_TRAINER = 2, MODEL_NORMALIZER = 3 };
enum { PIECE_TEXT = 1, PIECE_SCORE = 2, PIECE_TYPE = 3 };
enum { TRAINER_TYPE = 3, TRAINER_SUFFIX = 24, TRAINER_FALLBACK = 35, TRAINER_BPE = 2 };
enum { NORMALIZER_CHARSMAP = 2, NORMALIZER_PREFIX = 3, NORMALIZER_BLANKS = 4, NORMALIZER_ESCAPES = 5 };
enum { TYPE_NORMAL = 1, TYPE_UNKNOWN = 2, TYPE_CONTROL = 3, TYPE_BYTE = 6 };

struct piece {
    int32_t id;
    float score;
};
struct model {
    struct piece *piece; /* the normal ones */
    size_t count, capacity;
    int64_t ids;
    bool bpe, suffix, fallback, charsmap, prefix, blanks, escapes;
    bool other; /* it has pieces that are neither normal, unknown, control nor byte */
};

/* Returns 0, or -1 with an error, or 1: the bytes are no piece. */
static int add_piece(struct model *m, struct bpe *bpe, const struct wire_field *field,
                     struct muster_error *err)
{
    struct wire_reader r = reader_of(field->data, field->length);
    struct wire_field f;
    const char *text = NULL;
    size_t length = 0;
    float score = 0;
    uint64_t type = TYPE_NORMAL;
    int more;
    while ((more = wire_next(&r, &f)) > 0) {
        if (f.number == PIECE_TEXT && f.wire == WIRE_BYTES) {
            text = f.data;
            length = f.length;
        } else if (f.number == PIECE_SCORE && f.wire == WIRE_FOUR) {
            const uint32_t bits = (uint32_t)f.value;
            memcpy(&score, &bits, sizeof score);
        } else if (f.number == PIECE_TYPE && f.wire == WIRE_NUMBER) {
            type = f.value;
        }
    }
    const int64_t id = m->ids++;
    if (more < 0 || !text || !length || id >= VOCABULARY_LIMIT)
        return 1;
    m->other = m->other ||
               !(type == TYPE_NORMAL || type == TYPE_UNKNOWN || type == TYPE_CONTROL || type == TYPE_BYTE);
    if (type == TYPE_UNKNOWN || type == TYPE_CONTROL)
        return 0; /* no text has them */
    if (vocabulary_find(&bpe->words, text, length) >= 0)
        return 1;
    if (vocabulary_add(&bpe->words, text, length, id, err) < 0 ||
        vocabulary_add(&bpe->all, text, length, id, err) < 0)
        return -1;
    if (type == TYPE_BYTE)
        return 0;
    if (m->count == m->capacity) {
        const size_t wanted = m->capacity * 2 + 1024;
        struct piece *grown = mem_realloc(m->piece, wanted, sizeof *grown);
        if (!grown)
            return error_set(err, MUSTER_E_NOMEM, "no memory for a model");
        m->piece = grown;
        m->capacity = wanted;
    }
    m->piece[m->count++] = (struct piece){(int32_t)id, score};
    return 0;
}

static int read_settings(struct model *m, const struct wire_field *field)
{
    struct wire_reader r = reader_of(field->data, field->length);
    struct wire_field f;
    int more;
    while ((more = wire_next(&r, &f)) > 0) {
        if (field->number == MODEL_TRAINER) {
            m->bpe = f.number == TRAINER_TYPE ? f.value == TRAINER_BPE : m->bpe;
            m->suffix = f.number == TRAINER_SUFFIX ? f.value != 0 : m->suffix;
            m->fallback = f.number == TRAINER_FALLBACK ? f.value != 0 : m->fallback;
        } else {
            m->charsmap = f.number == NORMALIZER_CHARSMAP ? f.length > 0 : m->charsmap;
            m->prefix = f.number == NORMALIZER_PREFIX ? f.value != 0 : m->prefix;
            m->blanks = f.number == NORMALIZER_BLANKS ? f.value != 0 : m->blanks;
            m->escapes = f.number == NORMALIZER_ESCAPES ? f.value != 0 : m->escapes;
        }
    }
    return more < 0;
}

static int read_model(struct model *m, struct bpe *bpe, const char *data, size_t length,
                      struct muster_error *err)
{
    struct wire_reader r = reader_of(data, length);
    struct wire_field f;
    int more, result = 0;
    while (!result && (more = wire_next(&r, &f)) > 0) {
        if (f.wire != WIRE_BYTES)
            continue;
        if (f.number == MODEL_PIECE)
            result = add_piece(m, bpe, &f, err);
        else if (f.number == MODEL_TRAINER || f.number == MODEL_NORMALIZER)
            result = read_settings(m, &f);
    }
    return result ? result : more < 0;
}

/* ---- merges ---- */

/* The highest score first. */
static int compare_scores(const void *left, const void *right)
{
    const struct piece *a = left, *b = right;
    return a->score != b->score ? (a->score < b->score) - (a->score > b->score)
                                : (a->id > b->id) - (a->id < b->id);
}

/* 1: a character of a piece is no piece, and the library may join it all the same. */
static int add_cuts(struct bpe *bpe, const struct piece *piece, uint32_t rank, struct muster_error *err)
{
    size_t length;
    const char *text = vocabulary_text(&bpe->words, piece->id, &length);
    for (size_t at = 0, bytes; at < length; at += bytes) {
        bytes = unicode_next(text + at, length - at).length;
        if (vocabulary_find(&bpe->words, text + at, bytes) < 0)
            return 1;
        if (!at)
            continue;
        const int32_t left = vocabulary_find(&bpe->words, text, at),
                      right = vocabulary_find(&bpe->words, text + at, length - at);
        if (left >= 0 && right >= 0 && merges_add(&bpe->merges, left, right, rank, piece->id, err) < 0)
            return -1;
    }
    return 0;
}

static int add_merges(struct model *m, struct bpe *bpe, struct muster_error *err)
{
    uint32_t rank = 0;
    int result = 0;
    if (m->count)
        qsort(m->piece, m->count, sizeof *m->piece, compare_scores);
    for (size_t i = 0; i < m->count && !result; i++) {
        rank += i && m->piece[i].score != m->piece[i - 1].score;
        result = add_cuts(bpe, &m->piece[i], rank, err);
    }
    return result;
}

static bool is_same_here(const struct model *m, const struct bpe *bpe)
{
    for (int byte = 0; byte < 256; byte++)
        if (bpe->bytes[byte] < 0)
            return false;
    return m->bpe && m->fallback && m->escapes && !m->other && !m->suffix && !m->charsmap && !m->blanks;
}

int bpe_of_sentencepiece(const char *data, size_t length, struct bpe **out, bool *prefix,
                         struct muster_error *err)
{
    GUARD(guard_bpe) struct bpe *bpe = bpe_create(err);
    struct model m = {.prefix = true, .blanks = true, .escapes = true};
    *out = NULL;
    if (!bpe)
        return -1;
    bpe->by_chars = bpe->byte_fallback = true;
    int result = read_model(&m, bpe, data, length, err);
    if (!result && m.count)
        result = bpe_finish(bpe, err);
    if (!result && m.count && is_same_here(&m, bpe)) {
        result = add_merges(&m, bpe, err);
        if (!result) {
            *prefix = m.prefix;
            *out = take_pointer(&bpe);
        }
    }
    mem_free(m.piece);
    return result < 0 ? -1 : 0;
}
