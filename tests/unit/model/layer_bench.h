/* layer_bench.h - one layer of a model alone, on the double reference kernels: no device, no plan, no other
 * layer. Memory is filled with NaN and is between guards: reads of unwritten memory, and accesses outside of
 * a layer's own memory, show. */
#ifndef MUSTER_TESTS_LAYER_BENCH_H
#define MUSTER_TESTS_LAYER_BENCH_H

#include "runtime/model/program.h"

struct block { /* memory between guards */
    char *base;
    int64_t bytes;
};

struct layer_bench {
    const struct model *model;
    const struct layer_desc *layer;
    const struct kernels *kernels;
    struct shape shape;
    struct layer_sizes train, recompute, eval;
    double *weight[LAYER_PARAMS], *in[LAYER_SOURCES];        /* random */
    int64_t weights[LAYER_PARAMS], ins[LAYER_SOURCES], outs; /* elements */
    struct block grad[LAYER_PARAMS], din[LAYER_SOURCES];
    bool no_grad[LAYER_PARAMS], no_din[LAYER_SOURCES]; /* not wanted: NULL */
    uint8_t grad_beta[LAYER_PARAMS], din_beta[LAYER_SOURCES];
    struct block out, dout, saved, work;
    double *slope; /* dout: the loss is the sum of out * slope */
    int32_t *tokens, *targets;
    float *more[BATCH_INPUTS]; /* the inputs after these two, of f32 or i32 */
    struct step_scalars scalars;
    double loss;
    int64_t counted;
    uint64_t seed;
    int64_t chunk_bytes;
    double tolerance; /* tolerance of finite differences; 3e-8 unless set after opening */
};

/* The model's layer of that index, with random weights and inputs. Sources of other layers are given random
 * values, too. The batch is tokens and targets below `vocabulary`, then random numbers for f32 inputs, with
 * a NaN where it does not count, and lengths or targets for i32 inputs. */
void bench_open(struct layer_bench *b, const struct model *model, int layer, struct shape shape,
                const struct kernels *kernels, int vocabulary, uint64_t seed);
/* Chunks of so many bytes in place of the table's (layer_context); 0: the table's. */
void bench_chunks(struct layer_bench *b, int64_t chunk_bytes);
void bench_close(struct layer_bench *b);

double bench_random(struct layer_bench *b); /* -1..1 */

/* Forward in fresh memory; the loss. TRAIN of a loss layer runs its backward to get the loss, and wants no
 * gradient then. */
double bench_loss(struct layer_bench *b, enum layer_mode mode);
/* Forward (for training, then once more to recompute where `recompute`) and backward, with gradients as they
 * are: the caller fills them. Fails the test where a guard was touched. */
void bench_train(struct layer_bench *b, bool recompute);

/* All gradients with beta 0 by finite differences of the loss; then combinations of beta, of gradients that
 * are not wanted and of recomputation against those. Fails the test with `what`. */
void bench_check_gradients(struct layer_bench *b, const char *what);
/* In each mode: no byte beyond the sizes is written, and the last bytes of each are, but for recomputation,
 * which may be planned a little larger. slack: bytes of scratch memory that the kernels do not use. */
void bench_check_sizes(struct layer_bench *b, const char *what, int64_t slack);

#endif
