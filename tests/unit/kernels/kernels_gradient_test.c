/* kernels_gradient_test.c - walks the table of operations: each is differentiable and has a check by
 * differences, or is the backward or the work memory of such an operation, or gives a reason why it has no
 * gradient. Also the optimizers, by hand. */
#include "tests/support/cmocka_all.h"

#include <math.h>

#include "tests/unit/kernels/gradient_support.h"

enum operation {
#define OPERATION(name, parameters, arguments) OPERATION_##name,
#define WORK                                   OPERATION
#include "kernels/operations.inc"
    OPERATION_COUNT
};

static const char *const operation_names[] = {
#define OPERATION(name, parameters, arguments) #name,
#define WORK                                   OPERATION
#include "kernels/operations.inc"
};

/* `check` covers the operation, or `reason` says why it has no gradient. */
struct coverage {
    void (*check)(void **state);
    const char *reason;
};

static const struct coverage coverage[OPERATION_COUNT] = {
    [OPERATION_linear_forward] = {.check = linear_gradient},
    [OPERATION_linear_backward_input] = {.check = linear_gradient},
    [OPERATION_linear_backward_weight] = {.check = linear_gradient},
    [OPERATION_embedding_forward] = {.check = embedding_gradient},
    [OPERATION_embedding_backward] = {.check = embedding_gradient},
    [OPERATION_rows_add] = {.reason = "a part of embedding_backward, which it is compared with"},
    [OPERATION_layernorm_forward] = {.check = layernorm_gradient},
    [OPERATION_layernorm_backward] = {.check = layernorm_gradient},
    [OPERATION_layernorm_backward_work] = {.check = layernorm_gradient},
    [OPERATION_add_layernorm_forward] = {.reason = "add and layernorm_forward, and their gradients"},
    [OPERATION_add_rms_norm_forward] = {.reason = "add and rms_norm_forward, and their gradients"},
    [OPERATION_rms_norm_forward] = {.check = rms_norm_gradient},
    [OPERATION_rms_norm_backward] = {.check = rms_norm_gradient},
    [OPERATION_rms_norm_backward_work] = {.check = rms_norm_gradient},
    [OPERATION_rotary] = {.check = rotary_gradient},
    [OPERATION_attention_forward] = {.check = attention_gradient},
    [OPERATION_attention_backward] = {.check = attention_gradient},
    [OPERATION_attention_work] = {.check = attention_gradient},
    [OPERATION_attention_past] = {.reason = "of generation"},
    [OPERATION_attention_past_work] = {.reason = "of generation"},
    [OPERATION_conv2d_forward] = {.check = conv2d_gradient},
    [OPERATION_conv2d_backward_input] = {.check = conv2d_gradient},
    [OPERATION_conv2d_backward_weight] = {.check = conv2d_gradient},
    [OPERATION_conv2d_work] = {.check = conv2d_gradient},
    [OPERATION_max_pool2d_forward] = {.check = max_pool2d_gradient},
    [OPERATION_max_pool2d_backward] = {.check = max_pool2d_gradient},
    [OPERATION_avg_pool2d_forward] = {.check = avg_pool2d_gradient},
    [OPERATION_avg_pool2d_backward] = {.check = avg_pool2d_gradient},
    [OPERATION_mean_forward] = {.check = mean_gradient},
    [OPERATION_mean_backward] = {.check = mean_gradient},
    [OPERATION_batch_norm_forward] = {.check = batch_norm_gradient},
    [OPERATION_batch_norm_fixed] = {.reason = "of evaluation"},
    [OPERATION_batch_norm_backward] = {.check = batch_norm_gradient},
    [OPERATION_batch_norm_change] = {.reason = "of statistics, which no loss of the step depends on"},
    [OPERATION_batch_norm_step] = {.reason = "of statistics, behind the optimizer"},
    [OPERATION_activation_forward] = {.check = activation_gradient},
    [OPERATION_activation_backward] = {.check = activation_gradient},
    [OPERATION_gated_forward] = {.check = gated_gradient},
    [OPERATION_gated_backward] = {.check = gated_gradient},
    [OPERATION_slice_forward] = {.check = slice_gradient},
    [OPERATION_slice_backward] = {.check = slice_gradient},
    [OPERATION_dropout] = {.check = dropout_gradient},
    [OPERATION_add] = {.check = sums_gradient},
    [OPERATION_accumulate] = {.check = sums_gradient},
    [OPERATION_scale] = {.check = sums_gradient},
    [OPERATION_cross_entropy] = {.check = cross_entropy_gradient},
    [OPERATION_squared_error] = {.check = squared_error_gradient},
    [OPERATION_correct_sum] = {.reason = "a count"},
    [OPERATION_loss_sum] = {.check = cross_entropy_gradient},
    [OPERATION_norm_squared] = {.reason = "of gradients, not of activations"},
    [OPERATION_clip_factor] = {.reason = "of gradients, not of activations"},
    [OPERATION_adamw] = {.reason = "an optimizer"},
    [OPERATION_adam] = {.reason = "an optimizer"},
    [OPERATION_sgd] = {.reason = "an optimizer"},
    [OPERATION_average] = {.reason = "of parameters, behind the optimizer"},
    [OPERATION_cast] = {.reason = "a conversion: its gradient is one too"},
    [OPERATION_widen] = {.reason = "a conversion: its gradient is one too"},
};

static void every_operation_is_covered(void **state)
{
    (void)state;
    for (int i = 0; i < OPERATION_COUNT; i++) {
        const struct coverage *c = &coverage[i];
        if (!c->check == !c->reason)
            fail_msg(
                "operation %s of kernels.h has %s: add one to the table of this test", operation_names[i],
                c->check ? "a check and a reason for having none" : "neither a gradient check nor a reason");
        /* An operation with a backward is differentiable. */
        const char *backward = strstr(operation_names[i], "_backward");
        if (backward && !c->check)
            fail_msg("operation %s has no gradient check", operation_names[i]);
    }
}

/* AdamW has no backward: three steps by hand from the paper's algorithm 2, for a clip of one half. */
static void adamw_by_hand(void **state)
{
    double param = 0.5, m = 0, v = 0, p = 0.5, first = 0, second = 0;
    struct step_scalars s = {.beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8, .clip = 0.5};
    (void)state;
    s.learning_rate[2] = 0.01, s.weight_decay[2] = 0.1;
    for (int t = 1; t <= 3; t++) {
        double grad = 0.3 * t, g = 0.5 * grad;
        first = 0.9 * first + 0.1 * g, second = 0.99 * second + 0.01 * g * g;
        double m_hat = first / (1 - pow(0.9, t)), v_hat = second / (1 - pow(0.99, t));
        p = p - 0.01 * 0.1 * p - 0.01 * m_hat / (sqrt(v_hat) + 1e-8);
        s.bias_correction1 = 1 - pow(0.9, t), s.bias_correction2 = 1 - pow(0.99, t);
        table()->adamw(&param, &m, &v, &grad, OPTIMIZER_WHOLE(1, 2), NULL, DTYPE_F32, &s, NULL);
    }
    assert_true(fabs(param - p) < 1e-15 && fabs(m - first) < 1e-15 && fabs(v - second) < 1e-15);
}

/* torch.optim.Adam's rule: the decay is in the gradient. */
static void adam_by_hand(void **state)
{
    double param = 0.5, m = 0, v = 0, p = 0.5, first = 0, second = 0;
    struct step_scalars s = {.beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8, .clip = 0.5};
    (void)state;
    s.learning_rate[2] = 0.01, s.weight_decay[2] = 0.1;
    for (int t = 1; t <= 3; t++) {
        double grad = 0.3 * t, g = 0.5 * grad + 0.1 * p;
        first = 0.9 * first + 0.1 * g, second = 0.99 * second + 0.01 * g * g;
        p -= 0.01 * first / (1 - pow(0.9, t)) / (sqrt(second / (1 - pow(0.99, t))) + 1e-8);
        s.bias_correction1 = 1 - pow(0.9, t), s.bias_correction2 = 1 - pow(0.99, t);
        table()->adam(&param, &m, &v, &grad, OPTIMIZER_WHOLE(1, 2), NULL, DTYPE_F32, &s, NULL);
    }
    assert_true(fabs(param - p) < 1e-15 && fabs(m - first) < 1e-15 && fabs(v - second) < 1e-15);
}

/* Momentum 0.9, dampening 0.2: 1st the gradient, then 0.9 of the old value and 0.8 of the gradient. */
static void sgd_by_hand(void **state)
{
    double grad = 2, param = 1, momentum = 123; /* the first step does not read it */
    struct step_scalars s = {.clip = 0.5, .step = 1, .learning_rate = {0.1}};
    (void)state;
    table()->sgd(&param, &momentum, &grad, OPTIMIZER_WHOLE(1, 0), 0.9, 0.2, 0, NULL, DTYPE_F32, &s, NULL);
    assert_true(fabs(momentum - 1) < 1e-15 && fabs(param - 0.9) < 1e-15);
    s.step = 2;
    table()->sgd(&param, &momentum, &grad, OPTIMIZER_WHOLE(1, 0), 0.9, 0.2, 0, NULL, DTYPE_F32, &s, NULL);
    assert_true(fabs(momentum - 1.7) < 1e-15 && fabs(param - 0.73) < 1e-15);
    /* Nesterov's: one more momentum ahead. */
    table()->sgd(&param, &momentum, &grad, OPTIMIZER_WHOLE(1, 0), 0.9, 0, 1, NULL, DTYPE_F32, &s, NULL);
    assert_true(fabs(momentum - 2.53) < 1e-14 && fabs(param - (0.73 - 0.1 * (1 + 0.9 * 2.53))) < 1e-14);
    /* Without momentum, with decay. */
    s.weight_decay[0] = 0.5, param = 1;
    table()->sgd(&param, NULL, &grad, OPTIMIZER_WHOLE(1, 0), 0.9, 0, 0, NULL, DTYPE_F32, &s, NULL);
    assert_true(fabs(param - (1 - 0.1 * (1 + 0.5))) < 1e-15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_is_covered),
#define GRADIENT_TEST(name) cmocka_unit_test(name##_gradient),
        GRADIENT_CHECKS(GRADIENT_TEST)
#undef GRADIENT_TEST
            cmocka_unit_test(adamw_by_hand),
        cmocka_unit_test(adam_by_hand),
        cmocka_unit_test(sgd_by_hand),
    };
    kernels_test_begin(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
