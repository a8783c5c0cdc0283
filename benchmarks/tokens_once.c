/* tokens_once.c - for tokenizer.py: a text encoded over and over.
 *
 * usage: tokens_once TOKENIZER TEXTS ROUNDS. TEXTS: for each document its length (uint32) and its bytes.
 * Before each round a line is read from standard input, after it one JSON line is printed: nanoseconds of
 * processor time and tokens. With the tokenizer "cut" the words of GPT-2's pattern are counted alone, with
 * "read" the bytes are added up: the limits. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/text.h"
#include "trainer/tokens/bpe.h"
#include "trainer/tokens/tokenizer.h"

struct texts {
    struct buffer data;
    struct token_list ids;
    struct tokenizer *tokenizer; /* NULL: a limit */
    bool cuts;
};

static int64_t processor_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now); /* cannot fail with this clock */
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t limit_of(const struct texts *t, const char *text, uint32_t length)
{
    int64_t count = 0;
    uint64_t sum = 0;
    if (!t->cuts) {
        for (uint32_t at = 0; at + 8 <= length; at += 8) {
            uint64_t eight;
            memcpy(&eight, text + at, 8);
            sum += eight;
        }
        return (int64_t)(sum & 1);
    }
    for (uint32_t at = 0; at < length; count++)
        at += (uint32_t)split_gpt2(text + at, length - at);
    return count;
}

static int64_t encode_all(struct texts *t, struct muster_error *err)
{
    int64_t tokens = 0;
    for (size_t at = 0; at + sizeof(uint32_t) <= t->data.length;) {
        uint32_t length;
        memcpy(&length, t->data.data + at, sizeof length);
        at += sizeof length;
        t->ids.count = 0;
        if (!t->tokenizer)
            tokens += limit_of(t, t->data.data + at, length);
        else if (tokenizer_encode(t->tokenizer, t->data.data + at, length, &t->ids, err) < 0)
            return -1;
        tokens += (int64_t)t->ids.count;
        at += length;
    }
    return tokens;
}

static int run(char **argv, struct texts *t, struct muster_error *err)
{
    int64_t rounds;
    char line[16];
    t->cuts = !strcmp(argv[1], "cut");
    t->tokenizer = t->cuts || !strcmp(argv[1], "read") ? NULL : tokenizer_open(argv[1], err);
    if (err->code || !text_int64(argv[3], &rounds) ||
        io_read_file(argv[2], (size_t)1 << 30, &t->data, err) < 0)
        return -1;
    for (int64_t i = 0; i < rounds && fgets(line, sizeof line, stdin); i++) {
        const int64_t begun = processor_ns(), tokens = encode_all(t, err);
        if (tokens < 0)
            return -1;
        printf("{\"ns\": %" PRId64 ", \"tokens\": %" PRId64 "}\n", processor_ns() - begun, tokens);
        (void)fflush(stdout); /* an error ends the other side */
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct muster_error err = {0};
    struct texts texts = {0};
    const int result = argc == 4 ? run(argv, &texts, &err) : -1;
    if (result < 0)
        fprintf(stderr, "tokens_once: %s\n",
                err.text[0] ? err.text : "usage: tokens_once TOKENIZER TEXTS ROUNDS");
    tokenizer_destroy(texts.tokenizer);
    token_list_free(&texts.ids);
    buffer_free(&texts.data);
    return result < 0;
}
