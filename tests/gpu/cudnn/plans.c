/* plans.c - prints which attention cuDNN plans for a described GPU, and its workspace:
 *
 *     gpu_cudnn_plans DEVICE bf16|f16 B,T,HEADS,KV_HEADS,HEAD_SIZE...
 *
 * A line a shape, of packed rows as GPT-2 has them: "taken FORWARD BACKWARD" with the bytes of each, "own
 * REASON", or "forward FORWARD REASON" of a backward that is ours. */
#include <stdio.h>
#include <string.h>

#include "runtime/cuda/cudnn/attention.h"
#include "runtime/cuda/devices/devices.h"

static const struct cuda_description *named(const char *name)
{
    const struct cuda_description *found = NULL;
    for (int i = 0; cuda_description(i) && !found; i++)
        found = strcmp(cuda_description(i)->name, name) ? NULL : cuda_description(i);
    return found;
}

int main(int argc, char **argv)
{
    struct muster_error err = {0};
    const struct cuda_description *device = argc > 3 ? named(argv[1]) : NULL;
    if (!device)
        return 2;
    struct attention_by *by = cudnn_attention_open(device, device->capability, device->memory_bytes,
                                                   strcmp(argv[2], "bf16") ? DTYPE_F16 : DTYPE_BF16, &err);
    for (int i = 3; i < argc; i++) {
        struct attention a = {.causal = 1, .by = by};
        size_t forward = 0, backward = 0;
        if (sscanf(argv[i], "%d,%d,%d,%d,%d", &a.B, &a.T, &a.heads, &a.kv_heads, &a.head_size) != 5)
            return 2;
        a.q_row = a.k_row = a.v_row = (int64_t)(a.heads + 2 * a.kv_heads) * a.head_size;
        if (!by || !cudnn_attention_takes(&a, 0, &forward, &err))
            printf("own %s\n", err.text);
        else if (cudnn_attention_takes(&a, 1, &backward, &err))
            printf("taken %zu %zu\n", forward, backward);
        else
            printf("forward %zu %s\n", forward, err.text);
    }
    cudnn_attention_close(by);
    return 0;
}
