/* tokens_dump.c - for tokens_torch_test.py: the ids of texts, and the texts of those ids.
 *
 * usage: tokens_dump TOKENIZER TEXTS OUT. TEXTS: for each text its length (uint32) and its bytes. OUT: first
 * the vocabulary, bos, eos and unk (int32), then for each text the count of its ids (uint32), the ids
 * (int32), the length of the decoded text and its bytes. */
#include <stdio.h>
#include <string.h>

#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "trainer/tokens/tokenizer.h"

static int dump_text(struct tokenizer *tokenizer, const char *text, uint32_t length, FILE *out,
                     struct muster_error *err)
{
    scope_token_list ids = {0};
    scope_buffer decoded = {0};
    if (tokenizer_encode(tokenizer, text, length, &ids, err) < 0 ||
        tokenizer_decode(tokenizer, ids.tokens, ids.count, &decoded, err) < 0)
        return -1;
    const uint32_t sizes[] = {(uint32_t)ids.count, (uint32_t)decoded.length};
    (void)fwrite(&sizes[0], sizeof sizes[0], 1, out); /* a failure stays in the stream, for fclose */
    if (ids.count)
        (void)fwrite(ids.tokens, sizeof *ids.tokens, ids.count, out);
    (void)fwrite(&sizes[1], sizeof sizes[1], 1, out);
    if (decoded.length)
        (void)fwrite(decoded.data, 1, decoded.length, out);
    return 0;
}

static int dump(char **argv, struct muster_error *err)
{
    GUARD(guard_tokenizer) struct tokenizer *tokenizer = tokenizer_open(argv[1], err);
    scope_buffer texts = {0};
    if (!tokenizer || io_read_file(argv[2], (size_t)1 << 30, &texts, err) < 0)
        return -1;
    scope_fclose FILE *out = fopen(argv[3], "wb");
    if (!out)
        return -1;
    const struct tokenizer_special special = tokenizer_special(tokenizer);
    const int32_t about[] = {(int32_t)tokenizer_vocabulary(tokenizer), special.bos, special.eos, special.unk};
    (void)fwrite(about, sizeof *about, 4, out);
    for (size_t at = 0; at + sizeof(uint32_t) <= texts.length;) {
        uint32_t length;
        memcpy(&length, texts.data + at, sizeof length);
        at += sizeof length;
        if (length > texts.length - at || dump_text(tokenizer, texts.data + at, length, out, err) < 0)
            return -1;
        at += length;
    }
    return fclose(take_pointer(&out));
}

int main(int argc, char **argv)
{
    struct muster_error err = {0};
    if (argc == 4 && !dump(argv, &err))
        return 0;
    fprintf(stderr, "tokens_dump: %s\n", err.text[0] ? err.text : "usage: tokens_dump TOKENIZER TEXTS OUT");
    return 1;
}
