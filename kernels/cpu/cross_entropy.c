/* cross_entropy.c - softmax cross-entropy with its gradient, one row of logits at a time: maximum,
 * exponentials left in place and their sum, one multiplication (formulas: kernels/ref/cross_entropy.c). */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/exp.h"
#include "kernels/cpu/value.h"

#include <math.h>
#include <string.h>

/* Lanes are summed in float over this many values and then in double, so that the error of the sum does not
 * grow with V. */
enum { SUM_BLOCK = 1024 };

static double exp_sum(const VALUE *logits, float maximum, int V)
{
    double total = 0;
    for (int first = 0; first < V; first += SUM_BLOCK) {
        int end = first + SUM_BLOCK < V ? first + SUM_BLOCK : V;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int i = first; i < end; i++)
            sum += cpu_exp(LOAD(logits[i]) - maximum);
        total += (double)sum;
    }
    return total;
}

#ifdef CPU_BF16
/* Exponentials are formed again, since a value is rounded once. Returns their sum. */
static double form_gradient(VALUE *logits, float maximum, int target, int V, double inverse_tokens)
{
    const double sum = exp_sum(logits, maximum, V);
    const float factor = (float)(inverse_tokens / sum), at_target = LOAD(logits[target]);
    for (int i = 0; i < V; i++)
        STORE(logits[i], cpu_exp(LOAD(logits[i]) - maximum) * factor);
    STORE(logits[target], cpu_exp(at_target - maximum) * factor - (float)inverse_tokens);
    return sum;
}
#else
/* As exp_sum, and every logit becomes its exponential. */
static double exp_sum_in_place(float *logits, float maximum, int V)
{
    double total = 0;
    for (int first = 0; first < V; first += SUM_BLOCK) {
        int end = first + SUM_BLOCK < V ? first + SUM_BLOCK : V;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int i = first; i < end; i++) {
            float e = cpu_exp(logits[i] - maximum);
            logits[i] = e;
            sum += e;
        }
        total += (double)sum;
    }
    return total;
}

/* Logits become their gradient. Returns the sum of their exponentials. */
static double form_gradient(float *logits, float maximum, int target, int V, double inverse_tokens)
{
    const double sum = exp_sum_in_place(logits, maximum, V);
    const float factor = (float)(inverse_tokens / sum);
    for (int i = 0; i < V; i++)
        logits[i] *= factor;
    logits[target] -= (float)inverse_tokens;
    return sum;
}
#endif

static float cross_entropy_row(VALUE *logits, int target, int V, int gradient, double inverse_tokens)
{
    if (target < 0) {
        if (gradient)
            memset(logits, 0, (size_t)V * sizeof *logits);
        return 0;
    }
    float maximum = -INFINITY;
    const float at_target = LOAD(logits[target]);
#pragma omp simd reduction(max : maximum)
    for (int i = 0; i < V; i++)
        maximum = LOAD(logits[i]) > maximum ? LOAD(logits[i]) : maximum;
    if (!gradient)
        return (float)(log(exp_sum(logits, maximum, V)) + (double)maximum - (double)at_target);
    const double sum = form_gradient(logits, maximum, target, V, inverse_tokens);
    return (float)(log(sum) + (double)maximum - (double)at_target);
}

void CPU(cross_entropy)(void *logits_, void *losses_, const int32_t *targets, int N, int V, int row,
                        int gradient, const struct step_scalars *scalars, void *stream)
{
    VALUE *logits = logits_;
    float *losses = losses_;
    (void)stream;
    CPU_PARALLEL_FOR((int64_t)N * V >= CPU_PARALLEL_MIN)
    for (int n = 0; n < N; n++)
        losses[n] =
            cross_entropy_row(logits + (size_t)n * row, targets[n], V, gradient, scalars->inverse_tokens);
}
