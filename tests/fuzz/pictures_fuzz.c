/* pictures_fuzz.c - arbitrary bytes as a pickled batch of CIFAR: an array and labels that are inside of it
 * and of the pool, or an error with a text. */
#include <stdlib.h>

#include "proto/base/mem.h"
#include "tests/fuzz/random_main.h"
#include "trainer/pictures/pictures_internal.h"

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
                  (!batch.owned &&
                   (batch.data < data || batch.data + batch.rows * batch.columns > data + size)))
        abort();
    for (int64_t i = 0; !result && batch.owned && i < batch.rows * batch.columns; i++)
        labels[i % UNPICKLE_PICTURES] ^= batch.owned[i]; /* all of it is there */
    if (!result)
        mem_free(batch.owned);
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
    static const char encoded[] = "\x80\x02}(X\6\0\0\0labels](K\1K\2"
                                  "eX\4\0\0\0"
                                  "datacnumpy.core.multiarray\n_reconstruct\n(tR(K\1K\2K\3\x86"
                                  "cnumpy\ndtype\nX\2\0\0\0u1\x85R\x89"
                                  "c_codecs\nencode\nX\x07\0\0\0"
                                  "abcde\xC3\xBFX\6\0\0\0latin1\x86Rtbu.";
    const struct fuzz_seed seeds[] = {{good, sizeof good - 1}, {encoded, sizeof encoded - 1}};
    return fuzz_main(argc, argv, seeds, 2);
}
#endif
