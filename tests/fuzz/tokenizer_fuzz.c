/* tokenizer_fuzz.c - arbitrary bytes as a tokenizer.json, as GPT-2's pair of files (cut at a byte 0xFF), and
 * after a first letter as a file of tiktoken (T), a tekken.json (K), a vocab.txt (W), a model of
 * sentencepiece (S) or a regular expression (P): a tokenizer that encodes and decodes any text, all ids
 * inside of its vocabulary, or an error with a text. */
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
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

static void use_pattern(const char *text, size_t length, enum pattern_flavour flavour)
{
    struct muster_error err = {0};
    scope_free char *pattern = strndup(text, length);
    struct finder *finder = finder_of_pattern(pattern, flavour, &err);
    if (!finder) {
        if (!err.text[0])
            abort();
        return;
    }
    struct search search;
    size_t begin = 0, end = 0, last = 0;
    int found = finder_begin(finder, text, length, &search, &err) < 0 ? -1 : 1;
    while (found > 0 && (found = finder_next(&search, &begin, &end, &err)) > 0) {
        if (begin < last || end < begin || end > length)
            abort();
        last = end;
    }
    finder_end(&search);
    finder_destroy(finder);
}

static struct bpe *parse(const char *text, size_t size, struct muster_error *err)
{
    static const struct wordpiece_settings settings = {true, true, true};
    const char *cut = size ? memchr(text, 0xFF, size) : NULL;
    struct bpe *bpe = NULL;
    bool prefix;
    switch (size ? text[0] : 0) {
    case 'T':
        return bpe_parse_tiktoken("cl100k", text + 1, size - 1, err);
    case 'K':
        return bpe_parse_tekken("fuzz", text + 1, size - 1, err);
    case 'W':
        return bpe_parse_wordpiece("fuzz", text + 1, size - 1, &settings, err);
    case 'S':
        if (bpe_of_sentencepiece(text + 1, size - 1, &bpe, &prefix, err) == 0 && !bpe)
            (void)error_set(err, MUSTER_E_UNSUPPORTED, "the library encodes");
        return bpe;
    default:
        break;
    }
    const size_t words = cut ? (size_t)(cut - text) : size;
    return cut ? bpe_parse_pair("fuzz", text, words, cut + 1, size - words - 1, NULL, err)
               : bpe_parse_json("fuzz", text, size, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    struct muster_error err = {0};
    if (size && text[0] == 'P') {
        use_pattern(text + 1, size - 1, size % 2 ? PATTERN_RUST : PATTERN_ONIGURUMA);
        return 0;
    }
    struct bpe *bpe = parse(text, size, &err);
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
    static const char
        parts[] =
            "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKC\"},{\"type\":"
            "\"Replace\",\"pattern\":{"
            "\"Regex\":\" +\"},\"content\":\" \"},{\"type\":\"BertNormalizer\",\"clean_text\":true,"
            "\"handle_chinese_chars\":true,\"lowercase\":true}]},\"pre_tokenizer\":{\"type\":\"Sequence\","
            "\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a-c]+|.\"},\"behavior\":"
            "\"MergedWithNext\","
            "\"invert\":false},{\"type\":\"Metaspace\",\"replacement\":\"\u2581\"}]},\"decoder\":{\"type\":"
            "\"Sequence\","
            "\"decoders\":[{\"type\":\"ByteFallback\"},{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":"
            "true},{\"type\":"
            "\"Strip\",\"content\":\" "
            "\",\"start\":1,\"stop\":1}]},\"added_tokens\":[{\"id\":5,\"content\":\"<e>\","
            "\"normalized\":true,\"single_word\":true}],\"model\":{\"type\":\"BPE\",\"unk_token\":\"a\","
            "\"byte_fallback\":"
            "true,\"fuse_unk\":true,\"end_of_word_suffix\":\"</w>\",\"vocab\":{\"a\":0,\"b</"
            "w>\":1,\"\u2581\":2,\"ab</"
            "w>\":3,\"<0x41>\":4},\"merges\":[\"a b</w>\"]}}",
        words[] = "W[PAD]\n[UNK]\na\n##b\nab\n",
        tekken[] =
            "K{\"config\":{\"pattern\":\"a|b\",\"default_vocab_size\":3,\"default_num_special_tokens\""
            ":1},\"vocab\":[{\"rank\":0,\"token_bytes\":\"YQ==\"},{\"rank\":1,\"token_bytes\":\"Yg==\"}]}",
        tiktoken[] = "TYQ== 0\nYg== 1\nYWI= 2\n", piece[] = "S\x0A\x08\x0A\x01\x61\x15\x00\x00\x80\xBF",
        pattern[] = "P(?i:'s|[^\\r\\p{L}&&x]?\\w{1,3}+)|\\s+(?!\\S)|[a-f\xC3\xA9]*";
    const struct fuzz_seed seeds[] = {{json, sizeof json - 1},     {pair, sizeof pair - 1},
                                      {parts, sizeof parts - 1},   {words, sizeof words - 1},
                                      {tekken, sizeof tekken - 1}, {tiktoken, sizeof tiktoken - 1},
                                      {piece, sizeof piece - 1},   {pattern, sizeof pattern - 1}};
    return fuzz_main(argc, argv, seeds, sizeof seeds / sizeof *seeds);
}
#endif
