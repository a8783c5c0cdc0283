/* signatures.cu - proof by the compiler that every operation here has its slot's arguments and err: a table
 * made of them later needs no casts. No code comes of this file. */
#include "kernels/cuda/operations.h"

#include <type_traits>

template <typename Slot> struct with_error;
template <typename... Arguments> struct with_error<void (*)(Arguments...)> {
    using type = int(Arguments..., struct muster_error *);
};

#define CUDA_SAME_SIGNATURE(operation)                                                                       \
    static_assert(                                                                                           \
        std::is_same<with_error<decltype(kernels::operation)>::type, decltype(cuda_##operation)>::value,     \
        #operation " differs from its slot in kernels.h");
CUDA_OPERATIONS(CUDA_SAME_SIGNATURE)
#undef CUDA_SAME_SIGNATURE

#define CUDA_SAME_COMPRESSION(operation)                                                                     \
    static_assert(std::is_same<with_error<decltype(kernels_compress::operation)>::type,                      \
                               decltype(cuda_##operation)>::value,                                           \
                  #operation " differs from its slot in kernels.h");
CUDA_SAME_COMPRESSION(topk_encode)
CUDA_SAME_COMPRESSION(topk_decode)
CUDA_SAME_COMPRESSION(power_left)
CUDA_SAME_COMPRESSION(power_right)
CUDA_SAME_COMPRESSION(power_decode)
#undef CUDA_SAME_COMPRESSION

static_assert(
    std::is_same<decltype(cuda_attention_forward), decltype(cuda_attention_forward_tf32)>::value &&
        std::is_same<decltype(cuda_attention_backward), decltype(cuda_attention_backward_tf32)>::value,
    "attention in tf32 has the arguments of attention");

static_assert(
    std::is_same<decltype(kernels::layernorm_backward_work), decltype(&cuda_layernorm_backward_work)>::value,
    "layernorm_backward_work differs from its slot in kernels.h");
static_assert(
    std::is_same<decltype(kernels::rms_norm_backward_work), decltype(&cuda_rms_norm_backward_work)>::value,
    "rms_norm_backward_work differs from its slot in kernels.h");
static_assert(std::is_same<decltype(kernels::attention_work), decltype(&cuda_attention_work)>::value,
              "attention_work differs from its slot in kernels.h");
