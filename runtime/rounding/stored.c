/* stored.c - see stored.h. */
#include "runtime/rounding/stored.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "kernels/narrow.h"

enum {
    INT8_LARGEST = 127,
    E4M3_LARGEST = 0x7e, /* 448; 0x7f is no number */
};

static const struct {
    const char *name;
    int64_t elements, bytes;
} kinds[] = {
#define STORED_ROW(symbol, name, elements, bytes) {name, elements, bytes},
    STORED_KINDS(STORED_ROW)
#undef STORED_ROW
};
_Static_assert(STORED_NF4_BYTES == 8456 && STORED_INT8_BYTES == 260, "as in STORED_KINDS");

const float stored_nf4[16] = {STORED_NF4_LEVELS};

const char *stored_name(enum stored stored)
{
    return kinds[stored].name;
}

int64_t stored_unit(enum stored stored)
{
    return kinds[stored].elements;
}

int64_t stored_bytes(enum stored stored, int64_t elements)
{
    return elements / kinds[stored].elements * kinds[stored].bytes;
}

/* ---- 8-bit floats: a sign, 4 bits of exponent (bias 7), 3 of mantissa ---- */

static float e4m3_open(uint8_t code)
{
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    const float size = exponent ? ldexpf((float)(8 + mantissa), exponent - 10) : ldexpf((float)mantissa, -9);
    return code & 0x80 ? -size : size;
}

/* The nearest; of two as near the even code. Sizes ascend with their codes. */
static uint8_t e4m3_round(float value)
{
    const float size = fabsf(value);
    int low = 0, high = E4M3_LARGEST;
    while (low + 1 < high) {
        const int middle = (low + high) / 2;
        if (e4m3_open((uint8_t)middle) <= size)
            low = middle;
        else
            high = middle;
    }
    const float below = size - e4m3_open((uint8_t)low), above = e4m3_open((uint8_t)high) - size;
    const int code = above < below || (above == below && high % 2 == 0) ? high : low;
    return (uint8_t)(code | (value < 0 ? 0x80 : 0));
}

/* ---- nf4 ---- */

static float or_zero(float value)
{
    return isfinite(value) ? value : 0;
}

static float largest(const float *values, int count)
{
    float most = 0;
    for (int i = 0; i < count; i++)
        most = fabsf(or_zero(values[i])) > most ? fabsf(or_zero(values[i])) : most;
    return most;
}

/* The nearest level; of two as near the lower. */
static unsigned nf4_code(float value)
{
    unsigned low = 0, high = 15;
    while (low < high) {
        const unsigned middle = (low + high) / 2;
        if (value <= (stored_nf4[middle] + stored_nf4[middle + 1]) / 2)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Replaces the sizes of blocks by their decoded values after the second quantisation. */
static void nf4_round_sizes(float sizes[STORED_NF4_BLOCKS], uint8_t *codes, float constants[2])
{
    double sum = 0;
    float most = 0;
    for (int b = 0; b < STORED_NF4_BLOCKS; b++)
        sum += (double)sizes[b];
    const float mean = (float)(sum / STORED_NF4_BLOCKS);
    for (int b = 0; b < STORED_NF4_BLOCKS; b++)
        most = fabsf(sizes[b] - mean) > most ? fabsf(sizes[b] - mean) : most;
    constants[0] = mean;
    constants[1] = most / e4m3_open(E4M3_LARGEST);
    for (int b = 0; b < STORED_NF4_BLOCKS; b++) {
        codes[b] = constants[1] > 0 ? e4m3_round((sizes[b] - mean) / constants[1]) : 0;
        sizes[b] = mean + constants[1] * e4m3_open(codes[b]);
    }
}

static void nf4_round(const float *values, uint8_t *out)
{
    float sizes[STORED_NF4_BLOCKS], constants[2];
    for (int b = 0; b < STORED_NF4_BLOCKS; b++)
        sizes[b] = largest(values + b * STORED_NF4_BLOCK, STORED_NF4_BLOCK);
    nf4_round_sizes(sizes, out + STORED_NF4_CODES, constants);
    memcpy(out + STORED_NF4_CODES + STORED_NF4_BLOCKS, constants, sizeof constants);
    for (int i = 0; i < STORED_NF4_UNIT; i += 2) {
        const float size = sizes[i / STORED_NF4_BLOCK], scale = size > 0 ? 1 / size : 0;
        out[i / 2] =
            (uint8_t)(nf4_code(or_zero(values[i]) * scale) | nf4_code(or_zero(values[i + 1]) * scale) << 4);
    }
}

static void nf4_open(const uint8_t *in, float *out)
{
    float constants[2], levels[16];
    memcpy(constants, in + STORED_NF4_CODES + STORED_NF4_BLOCKS, sizeof constants);
    for (int b = 0; b < STORED_NF4_BLOCKS; b++) {
        const float size = constants[0] + constants[1] * e4m3_open(in[STORED_NF4_CODES + b]);
        const uint8_t *codes = in + b * (STORED_NF4_BLOCK / 2);
        for (int l = 0; l < 16; l++)
            levels[l] = stored_nf4[l] * size;
        for (int i = 0; i < STORED_NF4_BLOCK / 2; i++) {
            out[b * STORED_NF4_BLOCK + 2 * i] = levels[codes[i] & 15];
            out[b * STORED_NF4_BLOCK + 2 * i + 1] = levels[codes[i] >> 4];
        }
    }
}

/* ---- int8 ---- */

static void int8_round(const float *values, uint8_t *out)
{
    const float scale = largest(values, STORED_INT8_UNIT) / INT8_LARGEST;
    for (int i = 0; i < STORED_INT8_UNIT; i++)
        out[i] = (uint8_t)(int8_t)(scale > 0 ? rintf(or_zero(values[i]) / scale) : 0);
    memcpy(out + STORED_INT8_UNIT, &scale, sizeof scale);
}

static void int8_open(const uint8_t *in, float *out)
{
    float scale;
    memcpy(&scale, in + STORED_INT8_UNIT, sizeof scale);
    for (int i = 0; i < STORED_INT8_UNIT; i++)
        out[i] = scale * (float)(int8_t)in[i];
}

/* ---- all units ---- */

void stored_round(enum stored stored, const float *values, int64_t elements, uint8_t *out)
{
    const int64_t unit = kinds[stored].elements, bytes = kinds[stored].bytes;
    for (int64_t i = 0; i < elements / unit; i++)
        (stored == STORED_NF4 ? nf4_round : int8_round)(values + i * unit, out + i * bytes);
}

/* The elements of one unit, of another type than float. */
static void store(const float *opened, int64_t count, enum dtype dtype, void *out)
{
    for (int64_t k = 0; k < count; k++)
        if (dtype == DTYPE_F64)
            ((double *)out)[k] = (double)opened[k];
        else
            ((uint16_t *)out)[k] = dtype == DTYPE_BF16 ? narrow_to_bf16(opened[k]) : narrow_to_f16(opened[k]);
}

void stored_open(enum stored stored, const uint8_t *in, int64_t elements, void *out, enum dtype dtype)
{
    const int64_t unit = kinds[stored].elements, bytes = kinds[stored].bytes;
    float opened[STORED_NF4_UNIT];
    for (int64_t i = 0; i < elements / unit; i++) {
        char *to = (char *)out + i * unit * dtype_size(dtype);
        float *floats = dtype == DTYPE_F32 ? (float *)to : opened;
        (stored == STORED_NF4 ? nf4_open : int8_open)(in + i * bytes, floats);
        if (floats == opened)
            store(opened, unit, dtype, to);
    }
}
