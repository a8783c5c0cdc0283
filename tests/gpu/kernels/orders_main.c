/* orders_main.c - gpu_kernels_orders [NAME ...]: the tests of orders_*.c, or those named. A failure is a line
 * on stderr and status 1. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "proto/base/mem.h"
#include "tests/gpu/emulator/watch.h"
#include "tests/gpu/kernels/orders.h"

enum { KEYS = 256 };

static int failures, tests;
static char **names;
static int name_count;

/* The operations of the table, and how many cases of each ran. */
static struct {
    const char *name;
    int ran;
    bool elsewhere;
} operations[] = {
#define OPERATION(name, parameters, arguments) {#name, 0, false},
/* a library's: products/linear_test.c */
#define PRODUCT(name, parameters, arguments) {#name, 0, KERNELS_PICK(CUDA_LIBRARY_##name, true, false)},
#define FIXED(name, parameters, arguments)   {#name, 0, false},
#include "kernels/operations.inc"
};
enum { OPERATIONS = sizeof operations / sizeof operations[0] };

/* The buffers of an operation, in a type, that were moved while all others lay at multiples of 16 bytes, and
 * its kernels read or wrote several values at once. */
static struct moved {
    const char *what;
    enum dtype halves;
    int count;
    uint32_t done;
} moves[KEYS];

static struct moved *moved_of(const struct call_case *c)
{
    for (int i = 0; i < KEYS; i++) {
        if (!moves[i].what)
            moves[i] = (struct moved){.what = c->what, .halves = c->halves, .count = c->count};
        if (strcmp(moves[i].what, c->what) == 0 && moves[i].halves == c->halves)
            return &moves[i];
    }
    abort();
}

static void fail_case(const struct call_case *c, const char *order, int buffer, const char *why)
{
    fprintf(stderr, "wrong: %s, threads %s, buffer %d: %s\n", c->what, order, buffer, why);
    failures++;
}

static void cuda_must(cudaError_t status, const char *what)
{
    if (status == cudaSuccess)
        return;
    fprintf(stderr, "wrong: %s: %s\n", what, cudaGetErrorString(status));
    exit(1);
}

int case_bytes(struct call_case *c, const void *from, size_t size, enum value value, enum role role)
{
    struct buffer *b = &c->buffer[c->count];
    b->host = malloc(size ? size : 1);
    if (!b->host || c->count == BUFFERS - 1)
        abort();
    if (size)
        memcpy(b->host, from, size);
    b->size = size;
    b->value = value;
    b->role = role;
    return c->count++;
}

static int case_floats(struct call_case *c, size_t floats, enum role role)
{
    float *values = floats_new(floats, FILL_UNIT);
    int index = case_bytes(c, values, floats * sizeof *values, FLOATS, role);
    mem_free(values);
    return index;
}

int case_in(struct call_case *c, size_t floats)
{
    return case_floats(c, floats, OPERAND);
}

int case_result(struct call_case *c, size_t floats)
{
    return case_floats(c, floats, RESULT);
}

void case_narrow(struct call_case *c, int index)
{
    struct buffer *b = &c->buffer[index];
    const size_t values = b->size / sizeof(float);
    if (c->halves == DTYPE_F32)
        return;
    uint16_t *halves = malloc(values * sizeof *halves + 1);
    if (!halves)
        abort();
    kernels_ref_f32()->cast(halves, c->halves, b->host, DTYPE_F32, (int64_t)values, NULL);
    kernels_ref_f32()->cast(b->host, DTYPE_F32, halves, c->halves, (int64_t)values, NULL);
    free(halves);
    b->value = NARROW;
}

static int case_values(struct call_case *c, size_t values, enum role role)
{
    const int index = case_floats(c, values, role);
    case_narrow(c, index);
    return index;
}

int case_value_in(struct call_case *c, size_t values)
{
    return case_values(c, values, OPERAND);
}

int case_value_result(struct call_case *c, size_t values)
{
    return case_values(c, values, RESULT);
}

int case_work(struct call_case *c, size_t size)
{
    void *work = malloc(size ? size : 1);
    if (!work)
        abort();
    memset(work, 0xff, size);
    int index = case_bytes(c, work, size, BYTES, WORK);
    free(work);
    return index;
}

int awkward(int limit)
{
    static const int sizes[] = {0, 1, 2, 7, 31, 32, 33, 63, 64, 65, 127, 129, 255, 257, 513, 1025};
    int known = 0;
    while (known < (int)(sizeof sizes / sizeof sizes[0]) && sizes[known] <= limit)
        known++;
    return random_below(3) ? sizes[random_below((uint32_t)known)] : (int)random_below((uint32_t)limit + 1);
}

static size_t element_size(const struct buffer *b)
{
    return b->value == FLOATS || b->value == NARROW ? sizeof(float)
           : b->value == HALVES                     ? sizeof(uint16_t)
                                                    : sizeof(double);
}

/* Bytes of the buffer on the device, and its contents there; freed by the caller. */
static size_t image_size(const struct buffer *b)
{
    return b->value == NARROW ? b->size / 2 : b->size;
}
static void *image_of(const struct call_case *c, const struct buffer *b)
{
    void *image = malloc(b->size ? b->size : 1);
    if (!image)
        abort();
    if (b->value == NARROW)
        kernels_ref_f32()->cast(image, c->halves, b->host, DTYPE_F32, (int64_t)(b->size / sizeof(float)),
                                NULL);
    else if (b->size)
        memcpy(image, b->host, b->size);
    return image;
}

/* `device`: values are the device's, else the reference's. */
static double element(const struct call_case *c, const struct buffer *b, const void *values, size_t i,
                      bool device)
{
    float half = 0;
    if (b->value == HALVES || (b->value == NARROW && device)) {
        kernels_ref_f32()->widen(&half, (const uint16_t *)values + i, c->halves, 0, 1, NULL);
        return (double)half;
    }
    return b->value != DOUBLES ? (double)((const float *)values)[i] : ((const double *)values)[i];
}

static void compare(const struct call_case *c, int index, const void *got)
{
    const struct buffer *b = &c->buffer[index];
    char text[128];
    if (b->value == BYTES) {
        if (b->size && memcmp(got, b->host, b->size) != 0)
            fail_case(c, "up", index, "other bytes than the reference's");
        return;
    }
    for (size_t i = 0; i < b->size / element_size(b); i++) {
        double x = element(c, b, got, i, true), expected = element(c, b, b->host, i, false);
        const double rounded = b->value != NARROW ? 0 : c->halves == DTYPE_BF16 ? 0.0045 : 0.00055;
        const double relative = b->value == HALVES ? 0.008 : c->relative + rounded;
        if (fabs(x - expected) <= c->absolute + relative * fabs(expected) || (isnan(x) && isnan(expected)))
            continue;
        snprintf(text, sizeof text, "element %zu is %.9g, the reference's %.9g", i, x, expected);
        fail_case(c, "up", index, text);
        return;
    }
}

/* How far a buffer lies after a multiple of 16 bytes when it is moved: a value, and what any type wants where
 * a buffer is bytes. */
static size_t moved_by(const struct buffer *b, bool moved)
{
    return !moved                                     ? 0
           : b->value == BYTES || b->value == DOUBLES ? sizeof(double)
           : b->value == HALVES || b->value == NARROW ? sizeof(uint16_t)
                                                      : sizeof(float);
}

/* One run; the results are left in out[]. Buffer `moved` lies at no multiple of 16 bytes; -1: all do. Buffers
 * that have a bit in `spoilt` are full of NaN before. */
static void run_once(const struct call_case *c, void *out[BUFFERS], int moved, uint32_t spoilt,
                     int (*cuda)(void **p, const void *argument, struct muster_error *err),
                     const void *argument)
{
    void *device[BUFFERS] = {NULL}, *memory[BUFFERS];
    struct muster_error err = {0};
    for (int i = 0; i < c->count; i++) {
        const struct buffer *b = &c->buffer[i];
        const size_t by = moved_by(b, i == moved);
        cuda_must(cudaMalloc(&memory[i], (b->size ? image_size(b) : 1) + by), "cudaMalloc");
        device[i] = (char *)memory[i] + by;
        void *image = image_of(c, b);
        if (spoilt >> i & 1)
            memset(image, 0xff, image_size(b));
        if (b->size)
            cuda_must(cudaMemcpy(device[i], image, image_size(b), cudaMemcpyHostToDevice), "to the device");
        free(image);
    }
    if (cuda(device, argument, &err) != 0) {
        fprintf(stderr, "wrong: %s: %s\n", c->what, err.text);
        exit(1);
    }
    cuda_must(cudaDeviceSynchronize(), c->what);
    for (int i = 0; i < c->count; i++) {
        const struct buffer *b = &c->buffer[i];
        out[i] = malloc(b->size ? b->size : 1);
        if (out[i] && b->size)
            cuda_must(cudaMemcpy(out[i], device[i], image_size(b), cudaMemcpyDeviceToHost),
                      "from the device");
        cuda_must(cudaFree(memory[i]), "cudaFree");
    }
}

/* Each buffer lies at no multiple of 16 bytes once, alone: expected are the bits of a run in which none does.
 */
static void run_moved(const struct call_case *c, void *const expected[BUFFERS],
                      int (*cuda)(void **p, const void *argument, struct muster_error *err),
                      const void *argument)
{
    struct moved *moved = moved_of(c);
    for (int i = 0; i < c->count; i++) {
        void *out[BUFFERS] = {NULL};
        if (moved->done >> i & 1 || !c->buffer[i].size)
            continue;
        moved->done |= UINT32_C(1) << i;
        run_once(c, out, i, 0, cuda, argument);
        for (int j = 0; j < c->count; j++) {
            const struct buffer *b = &c->buffer[j];
            if (b->size && b->role == RESULT && memcmp(out[j], expected[j], image_size(b)) != 0)
                fail_case(c, "up", j, "other bits than where all memory is aligned");
            free(out[j]);
        }
    }
}

static bool has_nan(const struct call_case *c, const struct buffer *b, const void *values)
{
    for (size_t i = 0; b->value != BYTES && i < b->size / element_size(b); i++)
        if (isnan(element(c, b, values, i, false)))
            return true;
    return false;
}

/* A bit for each result that does not depend on its old values: with NaN in them the reference has none. */
static uint32_t overwritten_of(const struct call_case *c, void (*reference)(void **p, const void *argument),
                               const void *argument)
{
    uint32_t overwritten = 0;
    for (int spoilt = 0; spoilt < c->count; spoilt++) {
        void *host[BUFFERS] = {NULL};
        bool nan = false;
        if (c->buffer[spoilt].role != RESULT || c->buffer[spoilt].value == BYTES || !c->buffer[spoilt].size)
            continue;
        for (int i = 0; i < c->count; i++) {
            host[i] = malloc(c->buffer[i].size + 1);
            if (!host[i])
                abort();
            memcpy(host[i], c->buffer[i].host, c->buffer[i].size);
        }
        memset(host[spoilt], 0xff, c->buffer[spoilt].size);
        reference(host, argument);
        for (int i = 0; i < c->count; i++) {
            nan |= c->buffer[i].role == RESULT && has_nan(c, &c->buffer[i], host[i]);
            free(host[i]);
        }
        overwritten |= nan ? 0 : UINT32_C(1) << spoilt;
    }
    return overwritten;
}

void case_run(struct call_case *c, void (*reference)(void **p, const void *argument),
              int (*cuda)(void **p, const void *argument, struct muster_error *err), const void *argument)
{
    static const char *const orders[] = {"up", "down", "shuffled"};
    enum { ORDERS = sizeof orders / sizeof orders[0] };
    void *out[ORDERS][BUFFERS] = {{NULL}}, *host[BUFFERS] = {NULL};
    int times = 0;
    const uint32_t overwritten = overwritten_of(c, reference, argument);
    for (int i = 0; i < OPERATIONS; i++)
        if (strcmp(operations[i].name, c->what) == 0)
            times = operations[i].ran++;
    for (int order = 0; order < ORDERS; order++) {
        setenv("EMU_ORDER", orders[order], 1);
        /* with the threads down a buffer of the case is moved, in the operation's next case the next one */
        int moved = order == 1 && c->count ? (times + times / c->count) % c->count : -1;
        if (moved >= 0 && c->buffer[moved].role == WORK)
            moved = -1;
        (void)emu_took_vectors();
        run_once(c, out[order], moved, order == 2 ? overwritten : 0, cuda, argument);
        if (order == 0 && emu_took_vectors())
            run_moved(c, out[order], cuda, argument);
        for (int i = 0; i < c->count; i++) {
            const struct buffer *b = &c->buffer[i];
            void *image = image_of(c, b);
            if (b->size && b->role == RESULT && memcmp(out[order][i], out[0][i], image_size(b)) != 0)
                fail_case(c, orders[order], i, "other bits than with the threads up");
            if (b->size && b->role == OPERAND && memcmp(out[order][i], image, image_size(b)) != 0)
                fail_case(c, orders[order], i, "an operand was changed");
            free(image);
        }
    }
    for (int i = 0; i < c->count; i++)
        host[i] = c->buffer[i].host;
    reference(host, argument);
    for (int i = 0; i < c->count; i++) {
        if (c->buffer[i].role == RESULT)
            compare(c, i, out[0][i]);
        free(c->buffer[i].host);
        for (int order = 0; order < ORDERS; order++)
            free(out[order][i]);
    }
}

static void run(const char *name, void (*test)(void))
{
    int wanted = name_count == 0, before = failures;
    for (int i = 0; i < name_count; i++)
        wanted |= strcmp(names[i], name) == 0;
    if (!wanted)
        return;
    tests++;
    test();
    printf("%s: %s\n", name, failures == before ? "ok" : "FAILED");
}

int main(int argc, char **argv)
{
    names = argv + 1;
    name_count = argc - 1;
    kernels_test_begin(1);
    orders_elements(run);
    orders_rows(run);
    orders_attention(run);
    orders_images(run);
    orders_streams(run);
    for (int i = 0; name_count == 0 && i < OPERATIONS; i++)
        if (!operations[i].ran && !operations[i].elsewhere) {
            fprintf(stderr, "wrong: no case has the operation %s\n", operations[i].name);
            failures++;
        }
    for (int i = 0; name_count == 0 && moves[i].what; i++)
        if (moves[i].done != (UINT32_C(1) << moves[i].count) - 1) {
            fprintf(stderr, "wrong: %s of %s: no case moves buffers %x\n", moves[i].what,
                    dtype_name(moves[i].halves), ~moves[i].done & ((UINT32_C(1) << moves[i].count) - 1));
            failures++;
        }
    if (tests == 0)
        fprintf(stderr, "wrong: no test has that name\n");
    return failures > 0 || tests == 0;
}
