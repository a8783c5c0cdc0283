/* gradient_support.h - backwards of the double reference against central differences of their forwards.
 *
 * The loss is L = sum(out * r) for a fixed random r. With h = 1e-5 a central difference is off by h^2/6 times
 * the third derivative (below 100 for these inputs: 2e-9) and by double's roundoff of L over h (about 1e-15 *
 * 10 / 1e-5 = 1e-9): BOUND leaves a factor of ten or more, and a wrong formula is off by the size of the
 * gradient itself. Accumulation is also checked: with beta = 1 the gradient is added, exactly once, to
 * the earlier value. */
#ifndef MUSTER_TESTS_GRADIENT_SUPPORT_H
#define MUSTER_TESTS_GRADIENT_SUPPORT_H

#include "tests/unit/kernels/kernels_support.h"

const struct kernels *table(void); /* under test */

/* n random values, or copies; freed by mem_free. */
double *doubles_new(size_t n);
double *doubles_copy(const double *from, size_t n);

/* L of a vector x that everything else is in context for. */
typedef double loss_function(void *context);
void check_gradient(const char *what, loss_function *loss, void *context, double *x, const double *gradient,
                    size_t n);
/* added was `before` when backward ran with beta = 1; plain comes from beta = 0. */
void check_added(const char *what, const double *added, const double *plain, const double *before, size_t n);
/* The loss of out: sum(out * r). */
double weighted_sum(const double *out, const double *r, size_t n);

/* The checks: one a differentiable operation. */
#define GRADIENT_CHECKS(X)                                                                                   \
    X(linear)                                                                                                \
    X(embedding)                                                                                             \
    X(layernorm)                                                                                             \
    X(rms_norm)                                                                                              \
    X(attention)                                                                                             \
    X(conv2d)                                                                                                \
    X(max_pool2d)                                                                                            \
    X(batch_norm)                                                                                            \
    X(avg_pool2d)                                                                                            \
    X(mean)                                                                                                  \
    X(cross_entropy)                                                                                         \
    X(squared_error)                                                                                         \
    X(rotary)                                                                                                \
    X(activation)                                                                                            \
    X(gated)                                                                                                 \
    X(slice)                                                                                                 \
    X(dropout)                                                                                               \
    X(sums)
#define GRADIENT_DECLARE(name) void name##_gradient(void **state);
GRADIENT_CHECKS(GRADIENT_DECLARE)
#undef GRADIENT_DECLARE

#endif
