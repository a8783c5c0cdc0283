/* data_fuzz.c - arbitrary bytes as a token shard of llm.c, as a token cache of ours, and as a line of JSON:
 * tokens that are all inside of the file, documents in order, or an error with a text. */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/random_main.h"
#include "trainer/data/documents.h"
#include "trainer/data/token_file.h"

/* Every token and every document can be read. */
static void use(const struct token_file *file, size_t length)
{
    if (file->count < 0 || (size_t)file->count * (size_t)file->width > length)
        abort();
    for (int64_t i = 0; i < file->count; i++) {
        int32_t token;
        token_file_read(file, i, 1, &token);
        if (token < 0)
            abort();
    }
    for (int64_t i = 0; i < file->documents; i++)
        if (file->ends[i] > (uint64_t)file->count || (i && file->ends[i] < file->ends[i - 1]))
            abort();
}

static void read_line(const char *text, size_t length)
{
    struct muster_error err = {0};
    struct token_file out = {0};
    struct tokenizer *bytes = tokenizer_open("bytes", NULL);
    struct token_sink *sink =
        token_sink_create(&(struct token_sink_options){.vocabulary = 256, .masked = true}, NULL);
    if (!bytes || !sink)
        abort();
    const struct documents_options options = {.tokenizer = bytes, .text_key = "text", .end = TOKEN_NONE};
    const int result = documents_add_line(&options, text, length, sink, &err);
    if (result < 0 ? !err.text[0] : token_sink_finish(sink, &out, &err) < 0)
        abort();
    use(&out, SIZE_MAX);
    token_file_close(&out);
    token_sink_destroy(sink);
    tokenizer_destroy(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct muster_error err = {0};
    struct token_file file = {0};
    uint64_t *aligned = malloc(size + 8); /* as mmap gives it */
    if (!aligned)
        return 0;
    memcpy(aligned, data, size);
    const char *text = (const char *)aligned;
    if (!token_file_parse_shard(&file, "fuzz", text, size, &err))
        use(&file, size);
    else if (!err.text[0])
        abort();
    file = (struct token_file){0};
    if (!token_file_parse_cache(&file, text, size, 7))
        use(&file, size);
    read_line(text, size);
    free(aligned);
    return 0;
}

#ifndef MUSTER_LIBFUZZER
int main(int argc, char **argv)
{
    static unsigned char shard[1024 + 8], cache[sizeof(struct token_file_header) + 8 + 16];
    static const char line[] = "{\"prompt\": \"a\\u0000b\", \"completion\": \"c\"}";
    const int32_t header[] = {20240520, 1, 4};
    const struct token_file_header cache_header = {TOKEN_FILE_MAGIC, 7, 2, 1, 3, 2, {0}};
    const uint64_t ends[] = {1, 3};
    memcpy(shard, header, sizeof header);
    memcpy(cache, &cache_header, sizeof cache_header);
    memcpy(cache + sizeof cache - sizeof ends, ends, sizeof ends);
    const struct fuzz_seed seeds[] = {
        {(const char *)shard, sizeof shard}, {(const char *)cache, sizeof cache}, {line, sizeof line - 1}};
    return fuzz_main(argc, argv, seeds, 3);
}
#endif
