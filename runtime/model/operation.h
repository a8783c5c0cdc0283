/* operation.h - an operation of a program: its computation, the values that its backward reads, and the
 * memory that it may write over. Each operation is a row of the table; program.c knows nothing else about it.
 *
 * To add an operation: its row in operation.c (or in its own file next to it), its name in OPERATIONS below,
 * its function in program.h, and its case in tests/unit/model/operation_test.c, which fails without a case.
 */
#ifndef MUSTER_RUNTIME_MODEL_OPERATION_H
#define MUSTER_RUNTIME_MODEL_OPERATION_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/plan/model.h"

enum { OPERATION_INPUTS = 3, OPERATION_PARAMS = 5, OPERATION_STATISTICS = 2 };

/* Numbers that an operation was written down with; each reads the ones it needs. */
struct operation_settings {
    double epsilon;
    double offset;      /* added to the weight of rms_norm */
    double probability; /* probability that an element is dropped */
    double factor;
    int kind; /* kind of the activation */
    int heads, kv_heads;
    bool causal;
    int window;        /* attention only, see struct attention, as scale and cap */
    double scale, cap; /* cap: of attention's scores or of cross_entropy's logits; 0: none */
    int first;      /* slice: the first element of each group (heads: the groups); embedding: the position of
                       the sequence's first element in the table of positions */
    bool by_length; /* attention only: `input` has the lengths of the samples; later positions are not seen */
    int documents;  /* attention, rotary, embedding: index + 1 of the batch's array with each position's place
                       in  its document; 0: none. A batch without the array has one document a sample */
    struct rotary rotary;
    int input;                     /* index into model.inputs, for a number of the batch */
    enum dtype dtype;              /* type of the elements, where an operation takes several */
    int64_t vocabulary, positions; /* rows of the tables */
    uint32_t site;                 /* number of this dropout in the model */
    bool classes;                  /* cross_entropy only: rows whose class was found are counted */
    struct conv2d conv;
    struct pool2d pool;        /* averages use only the input's sizes */
    int out_height, out_width; /* size of averages */
    struct batch_norm norm;    /* the call fills in its place in the step */
};

/* An operation while it runs. Values have `rows` rows; in[i] and din[i] are (rows, in_width[i]), out and dout
 * (rows, width), where the operation pools (samples, width). In backward only the values are valid that the
 * row's `reads` names. While sizes are computed all pointers but context.kernels are NULL. */
struct operation_call {
    const struct layer_context *context;
    const struct operation_settings *settings;
    int rows, width, in_width[OPERATION_INPUTS];
    bool evaluates; /* no gradient will be formed: nothing is dropped */
    const void *in[OPERATION_INPUTS];
    void *out;                              /* NULL: of a loss */
    void *statistics[OPERATION_STATISTICS]; /* formed by forward for backward */
    const void *weight[OPERATION_PARAMS];
    /* Gradients; NULL: not wanted. add: 0 write, 1 add. */
    void *dout;
    void *din[OPERATION_INPUTS];
    int add[OPERATION_INPUTS];
    void *dweight[OPERATION_PARAMS];
    int weight_add[OPERATION_PARAMS];
    void *work;
    /* Used by a norm's forward. in[0] is to be formed too, as their sum. NULL: it is there. */
    const void *addend[2];
    /* Used by a product's backward. in[0] is the result of an activation of that kind; before is the
     * activation's input, and din[0] gets the gradient of before. NULL: din[0] gets the gradient of in[0].
     * before_bias: the gradient of a bias in before, which is formed too, or added to; NULL: none. */
    const void *before;
    int before_kind;
    void *before_bias;
    int before_bias_add;
};

/* The array of settings->documents, (B,T); NULL: none. */
static inline const int32_t *operation_positions(const struct operation_call *c)
{
    const struct batch *batch = c->context->batch; /* NULL while sizes are computed */
    return c->settings->documents && batch ? (const int32_t *)batch->input[c->settings->documents - 1] : NULL;
}

/* Copies n values to memory of the kernels' statistics (struct layer_capture). */
void operation_copy_out(const struct layer_context *x, void *out, const void *values, int64_t n);

/* Bits of `reads`, `forward_over` and `backward_over`. */
enum { OPERATION_IN0 = 1, OPERATION_IN1 = 2, OPERATION_IN2 = 4, OPERATION_OUT = 8 };

struct operation {
    const char *name;
    void (*forward)(const struct operation_call *call);
    void (*backward)(const struct operation_call *call);
    unsigned reads;         /* values that backward reads; statistics and weights it may always read */
    unsigned forward_over;  /* inputs that `out` may be written over */
    unsigned backward_over; /* inputs whose gradient, where it is written and not added, may overwrite dout */
    bool whole;             /* backward forms the gradients of all inputs or of none: din has no NULL */
    bool sequences;         /* reads several positions of a sample: its values have no row a sample */
    bool pools;             /* the result has a row for each sample, and no longer for each position */
    bool shares; /* the gradient of every input is dout itself: backward is left alone where din is dout */
    bool loss;   /* ends the model: no out; see layer_context.loss_total */
    bool
        batch; /* reads settings.input of the batch; of a loss: its targets, where -1 or NaN does not count */
    size_t kernel; /* offset in struct kernels of a function that some tables lack; 0: every table has the
                      functions that it calls */
    /* Bytes of scratch memory; NULL: none. */
    size_t (*work)(const struct operation_call *call, bool backward);
    double (*flops)(const struct operation_call *call); /* forward's; NULL: too few to count */
};

#define OPERATIONS(X)                                                                                        \
    X(linear)                                                                                                \
    X(layer_norm)                                                                                            \
    X(rms_norm)                                                                                              \
    X(rotary)                                                                                                \
    X(attention)                                                                                             \
    X(attention_packed)                                                                                      \
    X(relu)                                                                                                  \
    X(conv2d)                                                                                                \
    X(max_pool2d)                                                                                            \
    X(batch_norm2d)                                                                                          \
    X(avg_pool2d)                                                                                            \
    X(mean)                                                                                                  \
    X(first)                                                                                                 \
    X(activation)                                                                                            \
    X(gated)                                                                                                 \
    X(slice)                                                                                                 \
    X(add)                                                                                                   \
    X(scale)                                                                                                 \
    X(dropout)                                                                                               \
    X(embedding)                                                                                             \
    X(values)                                                                                                \
    X(cross_entropy)                                                                                         \
    X(squared_error)

#define OPERATION_DECLARE(name) extern const struct operation operation_##name;
OPERATIONS(OPERATION_DECLARE)
#undef OPERATION_DECLARE

/* All rows, NULL at the end. */
const struct operation *const *operation_table(void);

#endif
