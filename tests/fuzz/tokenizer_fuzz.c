/* tokenizer_fuzz.c - arbitrary bytes as a tokenizer.json, and as GPT-2's pair of files (cut at a byte 0xFF):
 * a tokenizer that encodes and decodes any text, all ids inside of its vocabulary, or an error
 * with a text. */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/random_main.h"
#include "trainer/tokens/bpe.h"

static void use(struct bpe *bpe, const char *text, size_t length)
{
    struct token_list ids = {0};
    struct buffer decoded = {0};
    const int64_t vocabulary = bpe_ops.vocabulary(bpe);
    if (length && bpe_ops.encode(bpe, text, length, &ids, NULL) < 0)
        abort();
    for (size_t i = 0; i < ids.count; i++)
        if (ids.tokens[i] < 0 || ids.tokens[i] >= vocabulary)
            abort();
    if (ids.count && bpe_ops.decode(bpe, ids.tokens, ids.count, &decoded, NULL) < 0)
        abort();
    token_list_free(&ids);
    buffer_free(&decoded);
    bpe_destroy(bpe);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data, *cut = size ? memchr(data, 0xFF, size) : NULL;
    const size_t words = cut ? (size_t)(cut - text) : size;
    struct muster_error err = {0};
    struct bpe *bpe = cut ? bpe_parse_pair("fuzz", text, words, cut + 1, size - words - 1, NULL, &err)
                          : bpe_parse_json("fuzz", text, size, &err);
    if (bpe)
        use(bpe, text, size);
    else if (!err.text[0])
        abort();
    return 0;
}

#ifndef MUSTER_LIBFUZZER
int main(int argc, char **argv)
{
    static const char json[] =
        "{\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":"
        "\"Digits\",\"individual_digits\":true},{\"type\":\"ByteLevel\",\"add_prefix_space\":false}]},"
        "\"added_tokens\":[{\"id\":5,\"content\":\"<e>\",\"normalized\":false,\"lstrip\":true}],"
        "\"model\":{\"type\":\"BPE\",\"unk_token\":\"a\",\"ignore_merges\":false,"
        "\"vocab\":{\"a\":0,\"b\":1,\"\\u0120\":2,\"ab\":3,\"\\u0120ab\":4},"
        "\"merges\":[\"a b\",[\"\\u0120\",\"ab\"]]}}",
                      pair[] = "{\"a\":0,\"b\":1,\"ab\":2,\"<|endoftext|>\":3}\xFF#version: 0.2\na b\n";
    const struct fuzz_seed seeds[] = {{json, sizeof json - 1}, {pair, sizeof pair - 1}};
    return fuzz_main(argc, argv, seeds, 2);
}
#endif
