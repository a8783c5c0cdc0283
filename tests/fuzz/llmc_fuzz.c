/* llmc_fuzz.c - arbitrary bytes as a checkpoint of llm.c, of any size that the first eight give it: its
 * tensors, all inside of it, or an error with a text. */
#include <stdlib.h>
#include <string.h>

#include "runtime/files/files_internal.h"
#include "tests/fuzz/random_main.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char header[LLMC_HEADER] = {0};
    struct gpt2_config config;
    struct file_tensors tensors = {0};
    struct muster_error err = {0};
    uint64_t bytes = 0;
    if (size < sizeof bytes)
        return 0;
    memcpy(&bytes, data, sizeof bytes);
    bytes &= INT64_MAX; /* what fstat may give */
    memcpy(header, data + sizeof bytes,
           size - sizeof bytes < sizeof header ? size - sizeof bytes : sizeof header);
    int result = llmc_parse("fuzz.bin", header, (int64_t)bytes, &config, &tensors, &err);
    if (result && !err.text[0])
        abort();
    for (int i = 0; i < tensors.count; i++) {
        const struct file_tensor *t = &tensors.item[i];
        if (t->offset < LLMC_HEADER || t->bytes <= 0 || t->offset > (int64_t)bytes - t->bytes ||
            tensor_elements(t->ndim, t->dim) * dtype_size(t->dtype) != t->bytes)
            abort();
    }
    tensors_free(&tensors);
    return 0;
}

#ifndef MUSTER_LIBFUZZER
int main(int argc, char **argv)
{
    /* 10 tokens (16 with padding), 4 positions, a layer of 8 channels. */
    const int32_t good[] = {
        1024 + 4 * (16 * 8 + 4 * 8 + 12 * 64 + 13 * 8 + 16), 0, LLMC_MAGIC, 3, 4, 10, 1, 2, 8, 16};
    const struct fuzz_seed seeds[] = {{good, sizeof good}};
    return fuzz_main(argc, argv, seeds, 1);
}
#endif
