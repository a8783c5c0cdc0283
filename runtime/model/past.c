/* past.c - see past.h. Sums are of eight lanes; scores are formed in float as the tiles of
 * kernels/cpu/attention.c are, so that both agree to float's rounding. */
#include "runtime/model/past.h"

#include <math.h>
#include <string.h>

#include "runtime/model/program_internal.h"

/* ---- memory of the past ---- */

/* Operations whose rows do not depend on other rows. */
static bool is_by_row(const struct operation *op)
{
    static const struct operation *const rows[] = {
        &operation_linear,     &operation_layer_norm, &operation_rms_norm,  &operation_rotary,
        &operation_activation, &operation_gated,      &operation_slice,     &operation_add,
        &operation_scale,      &operation_dropout,    &operation_embedding, &operation_cross_entropy};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i] == op)
            return true;
    return false;
}

/* Floats that an attention keeps of a position; -1: it is none that can. */
static int64_t kept_floats(const struct program *p, const struct program_step *step)
{
    const struct operation_settings *s = &step->settings;
    const bool attends = step->op == &operation_attention || step->op == &operation_attention_packed;
    if (!attends)
        return is_by_row(step->op) ? 0 : -1;
    return s->causal ? 2 * p->values[step->out].width / s->heads * s->kv_heads : -1;
}

int64_t model_past_bytes(const struct model *model, int room)
{
    int64_t floats = 1; /* a score */
    for (int l = 0; l < model->layer_count; l++) {
        const struct program *p = model->layers[l].config;
        if (model->layers[l].ops != &program_ops)
            return -1;
        for (int s = 0; s < p->step_count; s++) {
            const int64_t kept = kept_floats(p, &p->steps[s]);
            if (kept < 0)
                return -1;
            floats += kept;
        }
    }
    return floats * room * (int64_t)sizeof(float);
}

/* ---- rotary ---- */

/* in may be out. */
static void turn_pair(const struct operation_call *c, int row, int pair, int half, double angle, double by)
{
    const int heads = c->settings->heads, HS = c->width / heads;
    const float cosine = (float)(by * cos(angle)), sine = (float)(by * sin(angle));
    for (int h = 0; h < heads; h++) {
        const int64_t first = (int64_t)row * c->width + (int64_t)h * HS + pair;
        const float *in = (const float *)c->in[0] + first;
        float *out = (float *)c->out + first, x = in[0], y = in[half];
        out[0] = x * cosine - y * sine;
        out[half] = y * cosine + x * sine;
    }
}

void past_rotary(const struct operation_call *c)
{
    const struct operation_settings *s = c->settings;
    const int HS = c->width / s->heads, size = rotary_size(&s->rotary, HS), at = c->context->past->at;
    if (c->out != c->in[0])
        memcpy(c->out, c->in[0], (size_t)c->rows * (size_t)c->width * sizeof(float));
    for (int pair = 0; pair < size / 2; pair++) {
        const double frequency = rotary_frequency(&s->rotary, HS, at + c->rows, pair);
        for (int row = 0; row < c->rows; row++)
            turn_pair(c, row, pair, size / 2, frequency * (at + row), rotary_amplitude(&s->rotary));
    }
}

/* ---- attention ---- */

enum { LANES = 8 };
typedef float lanes __attribute__((vector_size(32), aligned(4), may_alias));

static float dot(const float *a, const float *b, int n)
{
    lanes sums = {0};
    float sum = 0;
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        sums += *(const lanes *)(a + i) * *(const lanes *)(b + i);
    for (int lane = 0; lane < LANES; lane++)
        sum += sums[lane];
    for (; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static void add_scaled(float *to, const float *from, float by, int n)
{
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        *(lanes *)(to + i) += by * *(const lanes *)(from + i);
    for (; i < n; i++)
        to[i] += by * from[i];
}

/* One head of one query over the positions 0..seen-1, whose keys and values are (seen, HS). */
static void attend(float *out, const float *q, const float *keys, const float *values, int seen, int HS,
                   const struct operation_settings *s, float *scores)
{
    const float scale = s->scale > 0 ? (float)s->scale : (float)(1.0 / sqrt((double)HS));
    const float cap = (float)s->cap;
    float most = -INFINITY;
    double sum = 0;
    for (int t = 0; t < seen; t++) {
        scores[t] = dot(q, keys + (int64_t)t * HS, HS) * scale;
        if (cap > 0)
            scores[t] = cap * tanhf(scores[t] / cap);
        most = fmaxf(most, scores[t]);
    }
    for (int t = 0; t < seen; t++) {
        scores[t] = expf(scores[t] - most);
        sum += (double)scores[t];
    }
    memset(out, 0, (size_t)HS * sizeof *out);
    for (int t = 0; t < seen; t++)
        add_scaled(out, values + (int64_t)t * HS, (float)((double)scores[t] / sum), HS);
}

/* Rows of keys or values into their heads' caches, (heads, room, HS). */
static void keep(float *cache, const float *from, int64_t row_floats, int rows, int kv_heads, int HS,
                 const struct layer_past *past)
{
    for (int row = 0; row < rows; row++)
        for (int h = 0; h < kv_heads; h++)
            memcpy(cache + ((int64_t)h * past->room + past->at + row) * HS,
                   from + row * row_floats + (int64_t)h * HS, (size_t)HS * sizeof *cache);
}

void past_attention(const struct operation_call *c)
{
    const struct operation_settings *s = c->settings;
    struct layer_past *past = c->context->past;
    const int HS = c->width / s->heads;
    const int64_t side = (int64_t)s->kv_heads * past->room * HS;
    float *keys = past->cache + past->taken, *values = keys + side;
    past->taken += 2 * side;
    keep(keys, c->in[1], c->in_width[1], c->rows, s->kv_heads, HS, past);
    keep(values, c->in[2], c->in_width[2], c->rows, s->kv_heads, HS, past);
    for (int row = 0; row < c->rows; row++)
        for (int h = 0; h < s->heads; h++) {
            const int end = past->at + row + 1, from = s->window > 0 && end > s->window ? end - s->window : 0;
            const int64_t head = ((int64_t)(h / (s->heads / s->kv_heads)) * past->room + from) * HS;
            attend((float *)c->out + (int64_t)row * c->width + (int64_t)h * HS,
                   (const float *)c->in[0] + row * c->in_width[0] + (int64_t)h * HS, keys + head,
                   values + head, end - from, HS, s, past->scores);
        }
}
