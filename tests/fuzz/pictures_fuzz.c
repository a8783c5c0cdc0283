/* pictures_fuzz.c - arbitrary bytes as a pickled batch of CIFAR-10: an array and labels that are inside of it
 * and of the pool, or an error with a text. */
#include <stdlib.h>

#include "proto/base/mem.h"
#include "runtime/pictures/unpickle.h"
#include "tests/fuzz/random_main.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct unpickled_batch batch;
    struct muster_error err = {0};
    uint8_t *labels = mem_calloc(UNPICKLE_PICTURES, 1);
    if (!labels)
        abort();
    const int result = unpickle_batch((const char *)data, size, &batch, labels, &err);
    if (result < 0
            ? !err.text[0]
            : batch.rows < 0 || batch.columns < 1 || batch.labels < 0 || batch.labels > UNPICKLE_PICTURES ||
                  batch.data < data || batch.data + batch.rows * batch.columns > data + size)
        abort();
    mem_free(labels);
    return 0;
}

#ifndef MUSTER_LIBFUZZER
int main(int argc, char **argv)
{
    static const char good[] = "\x80\x02}(U\x06labels](K\x01K\x02"
                               "eU\x04"
                               "datacnumpy.core.multiarray\n_reconstruct\n(tR(K\x01K\x02K\x03\x86"
                               "cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R\x89U\x06"
                               "abcdeftbu.";
    const struct fuzz_seed seeds[] = {{good, sizeof good - 1}};
    return fuzz_main(argc, argv, seeds, 1);
}
#endif
