/* operations.h - the names of all operations in the table, so that declarations and table fills are one line
 * each and cannot drift from kernels.h: KERNELS_OPERATIONS(X) calls X(name) for every one. Inside kernels/
 * only. */
#ifndef MUSTER_KERNELS_OPERATIONS_H
#define MUSTER_KERNELS_OPERATIONS_H

#include "kernels/kernels.h"

#define KERNELS_OPERATIONS(X)                                                                                \
    X(linear_forward)                                                                                        \
    X(linear_backward_input)                                                                                 \
    X(linear_backward_weight)                                                                                \
    X(embedding_forward)                                                                                     \
    X(embedding_backward)                                                                                    \
    X(rows_add)                                                                                              \
    X(layernorm_forward)                                                                                     \
    X(layernorm_backward)                                                                                    \
    X(layernorm_backward_work)                                                                               \
    X(rms_norm_forward)                                                                                      \
    X(rms_norm_backward)                                                                                     \
    X(rms_norm_backward_work)                                                                                \
    X(rotary)                                                                                                \
    X(attention_forward)                                                                                     \
    X(attention_backward)                                                                                    \
    X(attention_work)                                                                                        \
    X(conv2d_forward)                                                                                        \
    X(conv2d_backward_input)                                                                                 \
    X(conv2d_backward_weight)                                                                                \
    X(conv2d_work)                                                                                           \
    X(max_pool2d_forward)                                                                                    \
    X(max_pool2d_backward)                                                                                   \
    X(avg_pool2d_forward)                                                                                    \
    X(avg_pool2d_backward)                                                                                   \
    X(mean_forward)                                                                                          \
    X(mean_backward)                                                                                         \
    X(batch_norm_forward)                                                                                    \
    X(batch_norm_fixed)                                                                                      \
    X(batch_norm_backward)                                                                                   \
    X(batch_norm_change)                                                                                     \
    X(batch_norm_step)                                                                                       \
    X(activation_forward)                                                                                    \
    X(activation_backward)                                                                                   \
    X(gated_forward)                                                                                         \
    X(gated_backward)                                                                                        \
    X(slice_forward)                                                                                         \
    X(slice_backward)                                                                                        \
    X(dropout)                                                                                               \
    X(add)                                                                                                   \
    X(accumulate)                                                                                            \
    X(cross_entropy)                                                                                         \
    X(squared_error)                                                                                         \
    X(correct_sum)                                                                                           \
    X(loss_sum)                                                                                              \
    X(norm_squared)                                                                                          \
    X(clip_factor)                                                                                           \
    X(adamw)                                                                                                 \
    X(adam)                                                                                                  \
    X(sgd)                                                                                                   \
    X(average)                                                                                               \
    X(scale)                                                                                                 \
    X(cast)                                                                                                  \
    X(widen)

/* Declares `symbol` with the signature that the table's slot `operation` has. */
#define KERNELS_DECLARE(operation, symbol) extern __typeof__(*((const struct kernels *)0)->operation) symbol;

#endif
