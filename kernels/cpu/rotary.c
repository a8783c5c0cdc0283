/* rotary.c - the rotary position embedding (formulas: kernels/ref/rotary.c), bound by memory because sine and
 * cosine are nearly free: a piece of work is ROTARY_POSITIONS positions of all sequences and heads; it asks
 * the library for the angles of its first position and goes on from one to the next by turning by one
 * position's angle, in double (32 turns lose less than 1e-14). Frequencies are taken ROTARY_PAIRS at a time,
 * so that they and the angles are on the stack. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/value.h"

#include <math.h>

enum { ROTARY_POSITIONS = 32, ROTARY_PAIRS = 128 };

/* Pairs first..first+count-1 of every head. */
struct rotary_pairs {
    int first, count;
    double frequency[ROTARY_PAIRS], cosine[ROTARY_PAIRS], sine[ROTARY_PAIRS]; /* at one position */
};

struct rotary_call {
    VALUE *out;
    const VALUE *in;
    const int32_t *positions; /* (B,T); NULL: first.. */
    int first, B, T, NH, HS, size, beta;
    double direction; /* 1 or -1 */
    double amplitude;
};

static void turn_head(VALUE *out, const VALUE *in, const float *restrict cosine, const float *restrict sine,
                      int count, int half, int beta)
{
    VALUE *out2 = out + half;
    const VALUE *in2 = in + half;
    /* out may be in, at the same index only. */
    if (beta) {
#pragma omp simd
        for (int i = 0; i < count; i++) {
            float x = LOAD(in[i]), y = LOAD(in2[i]);
            STORE(out[i], LOAD(out[i]) + (x * cosine[i] - y * sine[i]));
            STORE(out2[i], LOAD(out2[i]) + (y * cosine[i] + x * sine[i]));
        }
    } else {
#pragma omp simd
        for (int i = 0; i < count; i++) {
            float x = LOAD(in[i]), y = LOAD(in2[i]);
            STORE(out[i], x * cosine[i] - y * sine[i]);
            STORE(out2[i], y * cosine[i] + x * sine[i]);
        }
    }
}

/* Sequences first..end-1 of the batch. */
struct rotary_rows {
    int first, end;
};

static void turn_position(const struct rotary_call *c, const struct rotary_pairs *pairs,
                          struct rotary_rows rows, int t, const float *cosine, const float *sine)
{
    for (int b = rows.first; b < rows.end; b++)
        for (int h = 0; h < c->NH; h++) {
            size_t at = (((size_t)b * c->T + t) * c->NH + h) * c->HS + pairs->first;
            turn_head(c->out + at, c->in + at, cosine, sine, pairs->count, c->size / 2, c->beta);
        }
}

/* The elements from..end-1 of sequences turn by `position` and its followers. */
static void turn_run(const struct rotary_call *c, const struct rotary_pairs *pairs, struct rotary_rows rows,
                     int from, int end, int position)
{
    double cosine[ROTARY_PAIRS], sine[ROTARY_PAIRS];
    float cosine_now[ROTARY_PAIRS], sine_now[ROTARY_PAIRS];
    for (int i = 0; i < pairs->count; i++) {
        double angle = c->direction * position * pairs->frequency[i];
        cosine[i] = cos(angle), sine[i] = sin(angle);
    }
    for (int t = from; t < end; t++) {
        for (int i = 0; i < pairs->count; i++) {
            double x = cosine[i], y = sine[i];
            cosine_now[i] = (float)(c->amplitude * x), sine_now[i] = (float)(c->amplitude * y);
            cosine[i] = x * pairs->cosine[i] - y * pairs->sine[i];
            sine[i] = y * pairs->cosine[i] + x * pairs->sine[i];
        }
        turn_position(c, pairs, rows, t, cosine_now, sine_now);
    }
}

static void turn_positions(const struct rotary_call *c, const struct rotary_pairs *pairs, int from, int end)
{
    if (!c->positions) {
        turn_run(c, pairs, (struct rotary_rows){0, c->B}, from, end, c->first + from);
        return;
    }
    for (int b = 0; b < c->B; b++) {
        const int32_t *at = c->positions + (size_t)b * c->T;
        for (int first = from, last; first < end; first = last) {
            for (last = first + 1; last < end && at[last] == at[last - 1] + 1;)
                last++;
            turn_run(c, pairs, (struct rotary_rows){b, b + 1}, first, last, at[first]);
        }
    }
}

/* Elements that do not turn. */
static void rotary_rest(const struct rotary_call *c)
{
    CPU_PARALLEL_FOR((int64_t)c->B * c->T * c->NH * c->HS >= CPU_PARALLEL_MIN)
    for (int64_t head = 0; head < (int64_t)c->B * c->T * c->NH; head++)
        for (int i = c->size; i < c->HS; i++) {
            const int64_t at = head * c->HS + i;
            STORE(c->out[at], c->beta ? LOAD(c->out[at]) + LOAD(c->in[at]) : LOAD(c->in[at]));
        }
}

void CPU(rotary)(void *out, const void *in, const struct rotary *rotary, int B, int T, int NH, int HS,
                 int backward, int beta, void *stream)
{
    const struct rotary_call c = {.out = out,
                                  .in = in,
                                  .positions = rotary->positions,
                                  .first = rotary->first,
                                  .B = B,
                                  .T = T,
                                  .NH = NH,
                                  .HS = HS,
                                  .size = rotary_size(rotary, HS),
                                  .amplitude = rotary_amplitude(rotary),
                                  .beta = beta,
                                  .direction = backward ? -1.0 : 1.0};
    (void)stream;
    if (c.size < HS)
        rotary_rest(&c);
    for (int first = 0; first < c.size / 2; first += ROTARY_PAIRS) {
        struct rotary_pairs pairs = {.first = first};
        pairs.count = c.size / 2 - first < ROTARY_PAIRS ? c.size / 2 - first : (int)ROTARY_PAIRS;
        for (int i = 0; i < pairs.count; i++) {
            pairs.frequency[i] = rotary_frequency(rotary, HS, rotary->first + T, first + i);
            pairs.cosine[i] = cos(pairs.frequency[i]);
            pairs.sine[i] = c.direction * sin(pairs.frequency[i]);
        }
        CPU_PARALLEL_FOR((int64_t)B * T * NH * HS >= CPU_PARALLEL_MIN)
        for (int from = 0; from < T; from += ROTARY_POSITIONS)
            turn_positions(&c, &pairs, from, T - from < ROTARY_POSITIONS ? T : from + ROTARY_POSITIONS);
    }
}
