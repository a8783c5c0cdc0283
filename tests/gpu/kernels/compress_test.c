/* compress_test.c - compression of gradients, and opening of parameters in few bits, on the device against
 * runtime/compress and runtime/rounding: the same bits of what is opened or sent, kept back and added up;
 * figures to their rounding. Runs of all sizes, more than a launch has, with dense ones between; ties, zeros,
 * values that are not finite; matrices in parts; steps that are skipped.
 *
 *   gpu_kernels_compress [TURNS]
 */
#include <math.h>
#include <stdlib.h>

#include "runtime/compress/compress.h"
#include "runtime/rounding/stored.h"
#include "tests/unit/kernels/kernels_cuda_support.h"

enum { REPLICAS = 3, MOST = 40 };

struct side {
    float *gradient, *feedback, *encoded, *dense, *left, *right, *factor;
};

struct setup {
    struct compress_piece pieces[MOST];
    int count;
    int64_t elements;
    struct compress_sizes sizes;
    struct step_scalars scalars;
    struct side host, device;
    double figures[2];
    struct step_scalars *scalars_there;
    double *figures_there;
    void *work;
    enum dtype wire; /* top-k */
};

static unsigned seed, turns = 3;
static double number(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (double)(seed >> 8) / 0x1p23 - 1;
}
static int64_t below(int64_t limit)
{
    return (int64_t)((number() + 1) / 2 * (double)limit);
}

static float *made(int64_t count, bool ties)
{
    float *values = malloc((size_t)(count + 1) * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i <= count; i++)
        values[i] = ties ? (float)(int)(number() * 3) : (float)(number() * pow(10, (double)below(6)));
    return values;
}

static size_t bytes_of(int64_t count)
{
    return (size_t)(count + 1) * sizeof(float);
}

static float *twin(const float *from, int64_t count)
{
    return device_copy(from, bytes_of(count));
}

static void both(float **host, float **device, int64_t count, bool ties)
{
    *host = made(count, ties);
    *device = twin(*host, count);
}

static void open_setup(struct setup *s, bool power, bool feedback, bool skip)
{
    const bool ties = below(3) == 0;
    *s = (struct setup){.count = 1 + (int)below(MOST), .scalars = {.clip = 0.37, .skip = skip}};
    int64_t left = 0, right = 0;
    for (int i = 0; i < s->count; i++) {
        struct compress_piece *p = &s->pieces[i];
        p->at = s->elements + below(3);
        p->count = 1 + below(i == 0 ? 6000 : 300);
        if (!power && below(4))
            p->kept = 1 + below(p->count);
        if (power && below(4)) {
            p->rows = 1 + below(40);
            p->columns = 1 + below(i == 0 ? 200 : 40);
            p->rank = 1 + (int)below(4);
            p->first = below(p->rows * p->columns);
            p->count = below(p->rows * p->columns - p->first + 1);
            p->left = left;
            p->right = right;
            left += p->rows * p->rank;
            right += p->columns * p->rank;
        }
        s->elements = p->at + p->count;
    }
    s->sizes = compress_measure(s->pieces, s->count);
    both(&s->host.gradient, &s->device.gradient, s->elements, ties);
    if (feedback)
        both(&s->host.feedback, &s->device.feedback, s->elements, false);
    both(&s->host.encoded, &s->device.encoded, 2 * s->sizes.kept * REPLICAS, false);
    both(&s->host.dense, &s->device.dense, s->sizes.dense, false);
    both(&s->host.left, &s->device.left, left, false);
    both(&s->host.right, &s->device.right, right, false);
    both(&s->host.factor, &s->device.factor, right, false);
    s->scalars_there = device_copy(&s->scalars, sizeof s->scalars);
    s->figures_there = device_copy(s->figures, sizeof s->figures);
    const size_t work = power ? cuda_power_work() : cuda_topk_work();
    void *none = malloc(work);
    memset(none, 0xff, work);
    s->work = device_copy(none, work);
    free(none);
}

static void same(const char *what, const float *host, const float *device, int64_t count)
{
    float *got = malloc(bytes_of(count));
    assert_non_null(got);
    fetch(got, device, bytes_of(count));
    for (int64_t i = 0; i <= count; i++)
        if (memcmp(&got[i], &host[i], sizeof *got) != 0)
            fail_msg("%s: element %lld of %lld is %.9g, not %.9g", what, (long long)i, (long long)count,
                     (double)got[i], (double)host[i]);
    free(got);
}

static void same_figures(const struct setup *s)
{
    double got[2];
    fetch(got, s->figures_there, sizeof got);
    for (int i = 0; i < 2; i++)
        if (got[i] != s->figures[i] && !(fabs(got[i] - s->figures[i]) <= 1e-12 * fabs(s->figures[i])) &&
            !(isnan(got[i]) && isnan(s->figures[i])))
            fail_msg("figure %d is %.17g, not %.17g", i, got[i], s->figures[i]);
}

static void close_setup(struct setup *s)
{
    float *const hosts[] = {s->host.gradient, s->host.feedback, s->host.encoded, s->host.dense,
                            s->host.left,     s->host.right,    s->host.factor};
    float *devices[] = {s->device.gradient, s->device.feedback, s->device.encoded, s->device.dense,
                        s->device.left,     s->device.right,    s->device.factor};
    for (int i = 0; i < 7; i++) {
        free(hosts[i]);
        device_free(&devices[i]);
    }
    device_free(&s->scalars_there);
    device_free(&s->figures_there);
    device_free(&s->work);
}

static struct compress_call call_of(struct setup *s)
{
    return (struct compress_call){DTYPE_F32, s->host.gradient, s->host.feedback,     s->pieces,
                                  s->count,  s->scalars.clip,  s->scalars.skip != 0, s->figures,
                                  s->wire};
}

static void spoil(struct setup *s)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1e-30f};
    for (int i = 0; i < 6 && s->elements; i++)
        s->host.gradient[below(s->elements)] = odd[i];
    device_free(&s->device.gradient);
    s->device.gradient = twin(s->host.gradient, s->elements);
}

static void top_k(void **state)
{
    (void)state;
    static const enum dtype wires[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F32, DTYPE_F16};
    for (unsigned turn = 0; turn < 2 * turns; turn++) {
        struct setup s;
        seed = turn * 977 + 1;
        open_setup(&s, false, turn % 3 != 0, turn % 5 == 2);
        if (turn % 7 == 6)
            spoil(&s);
        s.wire = turn % 7 == 6 ? DTYPE_F32 : wires[turn % 4];
        const struct compress_call call = call_of(&s);
        const int64_t before = compress_values_bytes(s.sizes.kept, dtype_size(s.wire)),
                      stride = before + 4 * s.sizes.kept;
        compress_topk_encode(&call, s.host.encoded + stride / 4, s.host.dense);
        ENQUEUED(cuda_topk_encode(s.device.encoded + stride / 4, s.device.dense, s.device.gradient,
                                  s.device.feedback, s.pieces, s.count, s.wire, s.scalars_there,
                                  s.figures_there, s.work, NULL, &failed));
        same("sum", s.host.gradient, s.device.gradient, s.elements);
        if (s.host.feedback)
            same("feedback", s.host.feedback, s.device.feedback, s.elements);
        same("dense", s.host.dense, s.device.dense, s.sizes.dense);
        same("encoded", s.host.encoded, s.device.encoded, 2 * s.sizes.kept * REPLICAS);
        same_figures(&s);
        /* the other replicas have sent the same places, rotated in nothing but their values */
        for (int r = 0; r < REPLICAS; r += 2) {
            memcpy(s.host.encoded + r * stride / 4, s.host.encoded + stride / 4, (size_t)stride);
            for (int64_t i = 0; s.wire == DTYPE_F32 && i < s.sizes.kept; i++)
                s.host.encoded[r * stride / 4 + i] = (float)number();
        }
        device_free(&s.device.encoded);
        s.device.encoded = twin(s.host.encoded, 2 * s.sizes.kept * REPLICAS);
        compress_topk_decode(&call, s.host.encoded, REPLICAS, stride, s.host.dense);
        ENQUEUED(cuda_topk_decode(s.device.gradient, s.device.encoded, s.device.dense, s.pieces, s.count,
                                  s.wire, REPLICAS, stride, s.scalars_there, NULL, &failed));
        same("decoded", s.host.gradient, s.device.gradient, s.elements);
        close_setup(&s);
    }
}

/* An odd number of values of 16 bits is followed by zeros, also where it is one. */
static void one_kept_value(void **state)
{
    (void)state;
    for (unsigned turn = 0; turn < 2; turn++) {
        struct setup s;
        seed = turn * 331 + 7;
        open_setup(&s, false, true, false);
        s.count = 1;
        s.pieces[0].kept = 1;
        s.wire = turn ? DTYPE_F16 : DTYPE_BF16;
        s.sizes = compress_measure(s.pieces, 1);
        const struct compress_call call = call_of(&s);
        compress_topk_encode(&call, s.host.encoded, s.host.dense);
        ENQUEUED(cuda_topk_encode(s.device.encoded, s.device.dense, s.device.gradient, s.device.feedback,
                                  s.pieces, 1, s.wire, s.scalars_there, s.figures_there, s.work, NULL,
                                  &failed));
        same("encoded", s.host.encoded, s.device.encoded, 2 * s.sizes.kept);
        same("sum", s.host.gradient, s.device.gradient, s.elements);
        close_setup(&s);
    }
}

static void power(void **state)
{
    (void)state;
    for (unsigned turn = 0; turn < turns; turn++) {
        struct setup s;
        seed = turn * 1361 + 5;
        open_setup(&s, true, turn % 3 != 0, turn % 5 == 2);
        if (turn % 8 == 7) { /* columns that are lost: of zeros */
            memset(s.host.gradient, 0, bytes_of(s.elements));
            device_free(&s.device.gradient);
            s.device.gradient = twin(s.host.gradient, s.elements);
        }
        const struct compress_call call = call_of(&s);
        compress_left(&call, s.host.factor, s.host.left, s.host.dense);
        ENQUEUED(cuda_power_left(s.device.left, s.device.dense, s.device.gradient, s.device.feedback,
                                 s.device.factor, s.pieces, s.count, s.scalars_there, NULL, &failed));
        same("sum", s.host.gradient, s.device.gradient, s.elements);
        same("left", s.host.left, s.device.left, s.sizes.left);
        same("dense", s.host.dense, s.device.dense, s.sizes.dense);
        compress_right(&call, s.host.left, s.host.right);
        ENQUEUED(cuda_power_right(s.device.left, s.device.right, s.device.gradient, s.pieces, s.count,
                                  s.scalars_there, NULL, &failed));
        same("orthonormal left", s.host.left, s.device.left, s.sizes.left);
        same("right", s.host.right, s.device.right, s.sizes.right);
        compress_power_decode(&call, s.host.left, s.host.right, REPLICAS, s.host.dense, s.host.factor);
        ENQUEUED(cuda_power_decode(s.device.gradient, s.device.feedback, s.device.left, s.device.right,
                                   s.device.factor, s.device.dense, s.pieces, s.count, REPLICAS,
                                   s.scalars_there, s.figures_there, s.work, NULL, &failed));
        same("decoded", s.host.gradient, s.device.gradient, s.elements);
        if (s.host.feedback)
            same("feedback", s.host.feedback, s.device.feedback, s.elements);
        same("factor", s.host.factor, s.device.factor, s.sizes.right);
        same_figures(&s);
        close_setup(&s);
    }
}

/* All codes and sizes, of finite constants; in one round of the grid and in several. */
static uint8_t *units_of(enum stored kind, int64_t n)
{
    const int64_t unit = stored_unit(kind), bytes = stored_bytes(kind, unit);
    uint8_t *units = malloc((size_t)stored_bytes(kind, n));
    assert_non_null(units);
    for (int64_t i = 0; i < stored_bytes(kind, n); i++)
        units[i] = (uint8_t)below(256);
    for (int64_t u = 1; u <= n / unit; u++) {
        const float constants[] = {(float)number(), (float)number() / 448};
        const size_t size = kind == STORED_NF4 ? sizeof constants : sizeof *constants;
        memcpy(units + u * bytes - size, constants, size);
    }
    return units;
}

static void opened(enum stored kind, enum dtype dtype, int64_t n, int64_t offset)
{
    const size_t size = (size_t)dtype_size(dtype), bytes = (size_t)(n + offset + 1) * size;
    scope_memory uint8_t *units = units_of(kind, n), *host = malloc(bytes), *got = malloc(bytes);
    assert_true(host && got);
    memset(host, 0x5a, bytes);
    scope_device void *from = device_copy(units, (size_t)stored_bytes(kind, n)),
                      *to = device_copy(host, bytes);
    stored_open(kind, units, n, host + (size_t)offset * size, dtype);
    ENQUEUED(cuda_stored_open((uint8_t *)to + (size_t)offset * size, dtype, from, kind, n, NULL, &failed));
    fetch(got, to, bytes);
    for (size_t i = 0; i < bytes; i++)
        if (got[i] != host[i])
            fail_msg("%s as %s: element %zu of %lld differs", stored_name(kind), dtype_name(dtype), i / size,
                     (long long)n);
}

static void few_bits(void **state)
{
    (void)state;
    static const enum stored kinds[] = {STORED_NF4, STORED_INT8};
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    for (int i = 0; i < 6; i++) {
        const enum stored kind = kinds[i / 3];
        seed = (unsigned)i;
        opened(kind, dtypes[i % 3], 3 * stored_unit(kind), 0);
        opened(kind, dtypes[i % 3], 2 * stored_unit(kind), 1); /* no vector is aligned */
        opened(kind, dtypes[i % 3], 0, 0);
    }
    (void)setenv("EMU_GRID_LIMIT", "2", 1);
    opened(STORED_NF4, DTYPE_F32, 2 * STORED_NF4_UNIT, 0);
    opened(STORED_INT8, DTYPE_BF16, 130 * STORED_INT8_UNIT, 0);
    (void)unsetenv("EMU_GRID_LIMIT");
    assert_int_equal(cuda_stored_open(NULL, DTYPE_F32, NULL, STORED_NF4, 100, NULL, &failed), -1);
    assert_non_null(strstr(failed.text, "whole units of 16384"));
    assert_int_equal(cuda_stored_open(NULL, DTYPE_F64, NULL, STORED_INT8, 256, NULL, &failed), -1);
    assert_non_null(strstr(failed.text, "must be f32, bf16 or f16"));
}

int main(int argc, char **argv)
{
    turns = argc > 1 ? (unsigned)atoi(argv[1]) : turns;
    if (gpu_missing()) {
        printf("there is no GPU: %s\n", gpu_missing());
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(top_k), cmocka_unit_test(one_kept_value),
                                       cmocka_unit_test(power), cmocka_unit_test(few_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
