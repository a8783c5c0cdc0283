/* Tokenizers by name, file and folder; which token ends a document. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/cmocka_all.h"
#include "tests/support/folder.h"
#include "trainer/tokens/tokenizer.h"

#define JSON                                                                                                 \
    "{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"model\":{\"vocab\":{\"a\":0,\"</s>\":1,\"<x>\":2},"       \
    "\"merges\":[]}}"
#define ADDED     "added_tokens.json"
#define MAP       "special_tokens_map.json"
#define NOT_BUILT "{\"normalizer\":{\"type\":\"Precompiled\"},\"model\":{}}"

static char folder[FOLDER_PATH];

static const char *path_of(const char *name)
{
    static char path[200];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void put(const char *name, const char *text)
{
    FILE *file = fopen(path_of(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

static int make_folder(void **state)
{
    (void)state;
    return folder_make(folder, "tokenizer");
}

static int remove_folder(void **state)
{
    (void)state;
    static const char *const names[] = {"tokenizer.json",
                                        "tokenizer_config.json",
                                        "merges.txt",
                                        "vocab.json",
                                        "tokenizer.model",
                                        "words.txt",
                                        "cl100k.tiktoken",
                                        "mine.tiktoken",
                                        "tekken.json",
                                        "vocab.txt",
                                        ADDED,
                                        MAP};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        (void)unlink(path_of(names[i]));
    return rmdir(folder);
}

static void bytes_are_their_own_tokens(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct tokenizer *t = tokenizer_open("bytes", &err);
    assert_non_null(t);
    scope_token_list ids = {0};
    scope_buffer text = {0};
    assert_int_equal(tokenizer_encode(t, "a\0\xFF", 3, &ids, &err), 0);
    assert_int_equal(tokenizer_encode(t, "", 0, &ids, &err), 0);
    assert_int_equal(ids.count, 3);
    assert_true(ids.tokens[0] == 'a' && ids.tokens[1] == 0 && ids.tokens[2] == 255);
    assert_int_equal(tokenizer_decode(t, ids.tokens, 3, &text, &err), 0);
    assert_memory_equal(text.data, "a\0\xFF", 3);
    assert_int_equal(tokenizer_decode(t, (const int32_t[]){256}, 1, &text, &err), -1);
    assert_string_equal(err.text, "token 256 is not from 0 to 255");
    assert_int_equal(tokenizer_vocabulary(t), 256);
    assert_int_equal(tokenizer_special(t).eos, TOKEN_NONE);
    assert_null(tokenizer_path(t));
    assert_int_equal(tokenizer_find(t, "A"), 'A');
    tokenizer_destroy(t);
    tokenizer_destroy(NULL);
}

static void a_folder_has_its_tokenizer(void **state)
{
    (void)state;
    struct muster_error err = {0};
    assert_null(tokenizer_open(folder, &err));
    assert_non_null(strstr(err.text, "has no tokenizer"));
    assert_null(tokenizer_open("/nowhere", &err));
    assert_int_equal(err.code, MUSTER_E_NOT_FOUND);
    put("words.txt", "x");
    assert_null(tokenizer_open(path_of("words.txt"), &err));
    assert_int_equal(err.code, MUSTER_E_UNSUPPORTED);

    put("tokenizer.json", JSON);
    struct tokenizer *t = tokenizer_open(folder, &err);
    assert_non_null(t);
    assert_int_equal(tokenizer_special(t).eos, 1); /* by the name that is in use */
    const uint64_t fingerprint = tokenizer_fingerprint(t);
    tokenizer_destroy(t);

    put("tokenizer_config.json", "{\"model_max_length\":1000000000000000019884624838656,"
                                 "\"eos_token\":{\"content\":\"<x>\"},\"bos_token\":\"a\"}");
    t = tokenizer_open(folder, &err);
    assert_non_null(t);
    assert_int_equal(tokenizer_special(t).eos, 2);
    assert_int_equal(tokenizer_special(t).bos, 0);
    assert_int_equal(tokenizer_special(t).pad, TOKEN_NONE);
    assert_int_not_equal(tokenizer_fingerprint(t), fingerprint); /* <x> in a text is a token now */
    tokenizer_destroy(t);
    assert_int_equal(unlink(path_of("tokenizer_config.json")), 0);

    /* an unsupported file is not passed over: the readable file is named */
    put("tokenizer.json", NOT_BUILT);
    assert_null(tokenizer_open(folder, &err));
    assert_int_equal(err.code, MUSTER_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "normalizer {\"type\":\"Precompiled\"} is not supported"));
    assert_null(strstr(err.text, "in its place"));
    put("merges.txt", "#version: 0.2\na b\n");
    put("vocab.json", "{\"a\":0,\"b\":1,\"ab\":2}");
    assert_null(tokenizer_open(folder, &err));
    assert_non_null(strstr(err.text, "normalizer {\"type\":\"Precompiled\"} is not supported"));
    assert_non_null(strstr(err.text, "merges.txt can be read and named in its place"));
    t = tokenizer_open(path_of("merges.txt"), &err);
    assert_non_null(t);
    assert_int_equal(tokenizer_vocabulary(t), 3);
    assert_non_null(strstr(tokenizer_path(t), "merges.txt"));
    tokenizer_destroy(t);

    /* a broken file is not passed over */
    put("tokenizer.json", "{");
    assert_null(tokenizer_open(folder, &err));
    assert_non_null(strstr(err.text, "not valid JSON"));
}

static void assert_encoded(const char *name, const char *text, const int32_t *ids, size_t count)
{
    struct muster_error err = {0};
    scope_token_list found = {0};
    struct tokenizer *t = tokenizer_open(name, &err);
    if (!t)
        fail_msg("%s", err.text);
    assert_int_equal(tokenizer_encode(t, text, strlen(text), &found, &err), 0);
    assert_int_equal(found.count, count);
    assert_memory_equal(found.tokens, ids, count * sizeof *ids);
    tokenizer_destroy(t);
}
#define ENCODED(name, text, ...)                                                                             \
    assert_encoded(name, text, (const int32_t[]){__VA_ARGS__},                                               \
                   sizeof(const int32_t[]){__VA_ARGS__} / sizeof(int32_t))

/* Next to a pair, next to a tokenizer.json: no added token is lost. */
static void files_beside_add_tokens(void **state)
{
    (void)state;
    static const char json[] = "{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"added_tokens\":[{\"id\":3,"
                               "\"content\":\"<e>\"}],\"model\":{\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},"
                               "\"merges\":[\"a b\"]}}";
    static const char pair[] = "\xEF\xBB\xBF{\"a\":0,\"b\":1,\"ab\":2,\"<e>\":3}";
    struct muster_error err = {0};
    put("merges.txt", "\xEF\xBB\xBF#version: 0.2\na b\n");
    put("vocab.json", pair);
    put("tokenizer.json", json);
    const char *both[] = {strdup(path_of("merges.txt")), strdup(path_of("tokenizer.json"))};
    for (int i = 0; i < 2; i++) {
        put(ADDED, "\xEF\xBB\xBF{\"<u>\": 5, \"<s>\": 4}");
        ENCODED(both[i], "ab<u>a<s>", 2, 5, 0, 4);
        put(MAP, "{\"eos_token\": \"<e>\", \"pad_token\": {\"content\": \"<pad>\"}, "
                 "\"additional_special_tokens\": [\"<s>\", \"<more>\"]}");
        ENCODED(both[i], "<pad><e>a<s><more>", 6, 3, 0, 4, 7); /* a token without an id gets the next id */
        struct tokenizer *t = tokenizer_open(both[i], &err);
        assert_non_null(t);
        assert_int_equal(tokenizer_special(t).eos, 3);
        assert_int_equal(tokenizer_vocabulary(t), 8);
        tokenizer_destroy(t);
        put("tokenizer_config.json", "{\"added_tokens_decoder\": {\"4\": {\"content\": \"<v>\", \"lstrip\": "
                                     "true, \"normalized\": false}}}");
        assert_int_equal(unlink(path_of(MAP)), 0);
        ENCODED(both[i], "a  <v>a", 0, 4, 0); /* instead of added_tokens.json */
        put("tokenizer_config.json", "{\"added_tokens_decoder\": {\"4\": {\"content\": \"ab\"}}}");
        assert_null(tokenizer_open(both[i], &err));
        assert_non_null(strstr(err.text, "tokenizer_config.json next to"));
        assert_non_null(strstr(err.text, "'ab' has the id 4 there, and 2 in the vocabulary"));
        put("tokenizer_config.json", "{\"added_tokens_decoder\": {\"2\": {\"content\": \"new\"}}}");
        assert_null(tokenizer_open(both[i], &err));
        assert_non_null(strstr(err.text, "two tokens have the id 2"));
        put("tokenizer_config.json", "{\"added_tokens_decoder\": {\"4\": {\"content\": \"x\", "
                                     "\"single_word\": true}}}");
        ENCODED(both[i], "a x", 0, 4);
        ENCODED(both[i], "ax", 0); /* inside of a word it is none */
        assert_int_equal(unlink(path_of("tokenizer_config.json")), 0);
    }
    put(ADDED, "[]");
    assert_null(tokenizer_open(both[0], &err));
    assert_non_null(strstr(err.text, "added_tokens.json: the JSON is no object"));
    put(ADDED, "{\"x\": \"4\"}");
    assert_null(tokenizer_open(both[0], &err));
    assert_non_null(strstr(err.text, "'x' is no token with an id"));
    assert_int_equal(unlink(path_of(ADDED)), 0);
    free((char *)both[0]);
    free((char *)both[1]);
}

/* A model of many tokens is not trained on bytes for want of a tokenizer. */
static void the_tokenizer_of_a_model(void **state)
{
    (void)state;
    struct muster_error err = {0};
    static const char *const left[] = {"tokenizer.json", "merges.txt", "vocab.json", "tokenizer.model"};
    for (size_t i = 0; i < sizeof left / sizeof *left; i++)
        (void)unlink(path_of(left[i]));
    const char *const bytes[] = {NULL, "", path_of("words.txt")};
    for (size_t i = 0; i < 3; i++) {
        struct tokenizer *t = tokenizer_open_of_model(bytes[i], &err);
        assert_string_equal(tokenizer_kind(t), "bytes");
        tokenizer_destroy(t);
    }
    put("config.json", "{\"vocab_size\": 300}");
    struct tokenizer *t = tokenizer_open_of_model(folder, &err);
    assert_string_equal(tokenizer_kind(t), "bytes");
    tokenizer_destroy(t);
    put("config.json", "{\"vocab_size\": 50257}");
    assert_null(tokenizer_open_of_model(folder, &err));
    assert_non_null(
        strstr(err.text, "has no tokenizer, and a vocabulary of 50257 tokens: set data.tokenizer"));
    put("tokenizer.json", NOT_BUILT);
    assert_null(tokenizer_open_of_model(folder, &err));
    assert_non_null(strstr(err.text, "data.tokenizer names another one, or bytes"));
    assert_int_equal(unlink(path_of("config.json")), 0);
}

/* A .tiktoken, Llama 3's tokenizer.model, a tekken.json and a vocab.txt by their names. */
static void other_files_by_their_names(void **state)
{
    (void)state;
    struct muster_error err = {0};
    scope_buffer ranks = {0};
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (int byte = 0; byte < 256; byte++)
        (void)buffer_printf(&ranks, "%c%c== %d\n", digits[byte >> 2], digits[byte << 4 & 63], byte);
    (void)buffer_printf(&ranks, "YWI= 256\nYWJj 257\n"); /* ab, abc */
    assert_false(ranks.failed);
    put("cl100k.tiktoken", ranks.data);
    ENCODED(path_of("cl100k.tiktoken"), "abc ab<|endoftext|>", 257, ' ', 256, 258);
    struct tokenizer *t = tokenizer_open(path_of("cl100k.tiktoken"), &err);
    assert_int_equal(tokenizer_special(t).eos, 258);
    assert_int_equal(tokenizer_bytes(t, 257), 3);
    assert_int_equal(tokenizer_bytes(t, 258), 0);
    tokenizer_destroy(t);
    put("mine.tiktoken", ranks.data);
    assert_null(tokenizer_open(path_of("mine.tiktoken"), &err));
    assert_non_null(strstr(err.text, "it has 258 ranks, and no known expression for words"));
    put("tokenizer.model", "YQ== 0\nYg== 1\n");
    assert_null(tokenizer_open(path_of("tokenizer.model"), &err));
    assert_non_null(strstr(err.text, "it has 2 ranks"));
    put("cl100k.tiktoken", "YQ== 0\nnot 64 1\n");
    assert_null(tokenizer_open(path_of("cl100k.tiktoken"), &err));
    assert_non_null(strstr(err.text, "line 2: it is no token in base64"));
    put("cl100k.tiktoken", "YQ== 0\n");
    assert_null(tokenizer_open(path_of("cl100k.tiktoken"), &err));
    assert_non_null(strstr(err.text, "the byte 0x00 is no token"));
    put("tekken.json", "{\"config\":{\"pattern\":\".\"},\"vocab\":[]}");
    assert_null(tokenizer_open(path_of("tekken.json"), &err));
    assert_non_null(strstr(err.text, "its config has no pattern, or sizes"));
    put("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\nab\n##c\n,\n");
    ENCODED(path_of("vocab.txt"), "[CLS]ABC,xyz\xC3\xA9 ab[SEP]", 2, 4, 5, 6, 1, 4, 3);
    t = tokenizer_open(path_of("vocab.txt"), &err);
    scope_buffer text = {0};
    assert_int_equal(tokenizer_decode(t, (const int32_t[]){4, 5, 6, 4}, 4, &text, &err), 0);
    assert_true(text.length == 7 && !memcmp(text.data, "abc, ab", 7));
    const struct tokenizer_special special = tokenizer_special(t);
    assert_true(special.pad == 0 && special.unk == 1 && special.cls == 2 && special.sep == 3);
    assert_int_equal(special.mask, TOKEN_NONE);
    assert_string_equal(tokenizer_kind(t), "WordPiece");
    assert_int_equal(tokenizer_bytes(t, 4), -1);
    tokenizer_destroy(t);
    put("vocab.txt", "ab\n");
    assert_null(tokenizer_open(path_of("vocab.txt"), &err));
    assert_non_null(strstr(err.text, "it has no token [UNK]"));
}

static void a_broken_model_of_sentencepiece(void **state)
{
    (void)state;
    struct muster_error err = {0};
    put("tokenizer.model", "no protobuf");
    assert_null(tokenizer_open(path_of("tokenizer.model"), &err));
    assert_true(strstr(err.text, "is no model of sentencepiece") || strstr(err.text, "libsentencepiece0"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_their_own_tokens),      cmocka_unit_test(a_folder_has_its_tokenizer),
        cmocka_unit_test(files_beside_add_tokens),         cmocka_unit_test(the_tokenizer_of_a_model),
        cmocka_unit_test(a_broken_model_of_sentencepiece), cmocka_unit_test(other_files_by_their_names),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
