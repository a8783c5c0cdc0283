/* topk.c - compress.h: sums with feedback, dense pieces, and the largest elements. */
#include <math.h>
#include <string.h>

#include "kernels/narrow.h"
#include "runtime/compress/compress_internal.h"

int64_t compress_kept(double ratio, int64_t count)
{
    const int64_t kept = (int64_t)(ratio * (double)count);
    return count < 1 ? 0 : kept < 1 ? 1 : kept > count ? count : kept;
}

struct compress_sizes compress_measure(const struct compress_piece *pieces, int count)
{
    struct compress_sizes sizes = {0};
    for (int i = 0; i < count; i++) {
        const struct compress_piece *p = &pieces[i];
        sizes.dense += compress_is_dense(p) ? p->count : 0;
        sizes.kept += p->kept;
        sizes.left += p->rows * p->rank;
        sizes.right += p->columns * p->rank;
    }
    return sizes;
}

/* ---- sums and dense pieces ---- */

NUMBER_INLINE void add_feedback_in(void *sum, const void *feedback, bool wide, int64_t count, double unscale)
{
    for (int64_t i = 0; i < count; i++)
        number_set(sum, wide, i, number_get(sum, wide, i) + number_get(feedback, wide, i) * unscale);
}

void compress_add_feedback(const struct compress_call *c, const struct compress_piece *piece)
{
    const bool wide = c->dtype == DTYPE_F64;
    if (!c->feedback)
        return;
    void *sum = number_at(c->gradient, wide, piece->at);
    const void *feedback = number_of(c->feedback, wide, piece->at);
    if (wide)
        add_feedback_in(sum, feedback, true, piece->count, 1 / c->factor);
    else
        add_feedback_in(sum, feedback, false, piece->count, 1 / c->factor);
}

void compress_pack(const struct compress_call *c, void *dense)
{
    const int size = dtype_size(c->dtype);
    char *to = dense;
    for (int i = 0; i < c->count; i++) {
        const struct compress_piece *piece = &c->pieces[i];
        if (!compress_is_dense(piece))
            continue;
        memcpy(to, (const char *)c->gradient + piece->at * size, (size_t)(piece->count * size));
        to += piece->count * size;
    }
}

void compress_unpack(const struct compress_call *c, const void *dense)
{
    const int size = dtype_size(c->dtype);
    const char *from = dense;
    for (int i = 0; i < c->count; i++) {
        const struct compress_piece *piece = &c->pieces[i];
        if (!compress_is_dense(piece))
            continue;
        memcpy((char *)c->gradient + piece->at * size, from, (size_t)(piece->count * size));
        from += piece->count * size;
    }
}

/* ---- the largest elements ---- */

/* The order of magnitudes is the order of these numbers; a NaN is the largest. */
NUMBER_INLINE uint64_t magnitude(const void *values, bool wide, int64_t i)
{
    if (wide) {
        uint64_t bits;
        memcpy(&bits, (const char *)values + 8 * i, sizeof bits);
        return bits & (UINT64_MAX >> 1);
    }
    uint32_t bits;
    memcpy(&bits, (const char *)values + 4 * i, sizeof bits);
    return bits & (UINT32_MAX >> 1);
}

enum { DIGIT = 11 };

/* The magnitude of the kept-th largest element, digit by digit from the highest. *equal: how many elements of
 * this magnitude are among the kept ones. No memory is needed: a pass counts one digit. */
NUMBER_INLINE uint64_t find_border(const void *values, bool wide, int64_t count, int64_t kept, int64_t *equal)
{
    int64_t histogram[1 << DIGIT];
    uint64_t border = 0;
    int left = wide ? 63 : 31; /* bits of the magnitude below the border's */
    while (left) {
        const int bits = left < DIGIT ? left : DIGIT, above = left;
        left -= bits;
        memset(histogram, 0, sizeof histogram);
        for (int64_t i = 0; i < count; i++) {
            const uint64_t m = magnitude(values, wide, i);
            if (m >> above == border)
                histogram[m >> left & ((1U << bits) - 1)]++;
        }
        int digit = (1 << bits) - 1;
        while (digit > 0 && histogram[digit] < kept)
            kept -= histogram[digit--];
        border = border << bits | (unsigned)digit;
    }
    *equal = kept;
    return border;
}

static bool is_narrow(const struct compress_call *c)
{
    return c->wire == DTYPE_BF16 || c->wire == DTYPE_F16;
}

static int value_size(const struct compress_call *c)
{
    return dtype_size(is_narrow(c) ? c->wire : c->dtype);
}

/* Writes a value of 16 bits. Returns the part of it that is not sent. */
static double put_narrow(uint16_t *to, enum dtype wire, double value)
{
    const float limit = compress_narrow_limit(wire), exact = (float)value,
                sent = isfinite(exact) ? fminf(fmaxf(exact, -limit), limit) : exact;
    *to = wire == DTYPE_BF16 ? narrow_to_bf16(sent) : narrow_to_f16(sent);
    return isfinite(exact)
               ? value - (double)(wire == DTYPE_BF16 ? narrow_from_bf16(*to) : narrow_from_f16(*to))
               : 0;
}

/* Copies the largest elements of a piece to values and places. The feedback keeps what they leave. */
NUMBER_INLINE void encode_piece(const struct compress_call *c, const struct compress_piece *piece, bool wide,
                                void *values, int32_t *places)
{
    const bool narrow = is_narrow(c);
    const void *sum = number_of(c->gradient, wide, piece->at);
    void *feedback = c->feedback ? number_at(c->feedback, wide, piece->at) : NULL;
    double left = 0, whole = 0;
    int64_t equal, sent = 0;
    const uint64_t border = find_border(sum, wide, piece->count, piece->kept, &equal);
    for (int64_t i = 0; i < piece->count; i++) {
        const uint64_t m = magnitude(sum, wide, i);
        const double value = number_get(sum, wide, i);
        const bool is_sent = m > border || (m == border && equal > 0);
        const double rest = !is_sent ? value
                            : narrow ? put_narrow((uint16_t *)values + sent, c->wire, value)
                                     : 0;
        whole += value * value;
        left += rest * rest;
        if (feedback)
            number_set(feedback, wide, i, rest * c->factor);
        if (!is_sent)
            continue;
        equal -= m == border;
        if (!narrow)
            number_set(values, wide, sent, value);
        places[sent++] = (int32_t)(uint32_t)i;
    }
    c->figures[0] += left;
    c->figures[1] += whole;
}

void compress_topk_encode(const struct compress_call *c, void *encoded, void *dense)
{
    const bool wide = c->dtype == DTYPE_F64;
    const struct compress_sizes sizes = compress_measure(c->pieces, c->count);
    char *values = encoded;
    const int64_t values_bytes = compress_values_bytes(sizes.kept, value_size(c));
    int32_t *places = (int32_t *)((char *)encoded + values_bytes);
    if (c->skip) {
        memset(encoded, 0, (size_t)(values_bytes + sizes.kept * 4));
        if (dense)
            memset(dense, 0, (size_t)(sizes.dense * dtype_size(c->dtype)));
        return;
    }
    if (dense)
        compress_pack(c, dense);
    if (is_narrow(c)) /* an odd number of them ends with two bytes of 0 */
        memset((char *)encoded + sizes.kept * 2, 0, (size_t)(values_bytes - sizes.kept * 2));
    for (int i = 0; i < c->count; i++) {
        const struct compress_piece *piece = &c->pieces[i];
        if (!piece->kept)
            continue;
        compress_add_feedback(c, piece);
        if (wide)
            encode_piece(c, piece, true, values, places);
        else
            encode_piece(c, piece, false, values, places);
        values += piece->kept * value_size(c);
        places += piece->kept;
    }
}

NUMBER_INLINE void add_values(void *sum, const void *values, const int32_t *places, bool wide, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = (uint32_t)places[i];
        number_set(sum, wide, at, number_get(sum, wide, at) + number_get(values, wide, i));
    }
}

static void add_narrow(void *sum, bool wide, const uint16_t *values, enum dtype wire, const int32_t *places,
                       int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = (uint32_t)places[i];
        const float value = wire == DTYPE_BF16 ? narrow_from_bf16(values[i]) : narrow_from_f16(values[i]);
        number_set(sum, wide, at, number_get(sum, wide, at) + (double)value);
    }
}

void compress_topk_decode(const struct compress_call *c, const void *encoded, int replicas, int64_t stride,
                          const void *dense)
{
    const bool wide = c->dtype == DTYPE_F64;
    const int size = dtype_size(c->dtype), sent = value_size(c);
    const int64_t all = compress_values_bytes(compress_measure(c->pieces, c->count).kept, sent);
    int64_t before = 0; /* kept elements of the pieces before */
    if (c->skip)
        return;
    if (dense)
        compress_unpack(c, dense);
    for (int i = 0; i < c->count; i++) {
        const struct compress_piece *piece = &c->pieces[i];
        char *sum = (char *)c->gradient + piece->at * size;
        if (!piece->kept)
            continue;
        memset(sum, 0, (size_t)(piece->count * size));
        for (int r = 0; r < replicas; r++) {
            const char *from = (const char *)encoded + r * stride;
            const int32_t *places = (const int32_t *)(from + all) + before;
            from += before * sent;
            if (is_narrow(c))
                add_narrow(sum, wide, (const uint16_t *)from, c->wire, places, piece->kept);
            else if (wide)
                add_values(sum, from, places, true, piece->kept);
            else
                add_values(sum, from, places, false, piece->kept);
        }
        before += piece->kept;
    }
}
