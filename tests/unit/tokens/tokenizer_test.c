/* Tokenizers by name, file and folder; which token ends a document. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/tokens/tokenizer.h"
#include "tests/support/cmocka_all.h"

#define JSON                                                                                                 \
    "{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"model\":{\"vocab\":{\"a\":0,\"</s>\":1,\"<x>\":2},"       \
    "\"merges\":[]}}"
#define NOT_BUILT "{\"normalizer\":{\"type\":\"NFKC\"}}"

static char folder[] = "/tmp/muster_tokenizer_XXXXXX";

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
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json", "merges.txt",
                                        "vocab.json",     "tokenizer.model",       "words.txt"};
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
    assert_int_equal(tokenizer_fingerprint(t), fingerprint);
    tokenizer_destroy(t);

    /* a file that is not supported: the next one; the error is that of the first */
    put("tokenizer.json", NOT_BUILT);
    assert_null(tokenizer_open(folder, &err));
    assert_non_null(strstr(err.text, "normalizer {\"type\":\"NFKC\"} is not supported"));
    put("merges.txt", "#version: 0.2\na b\n");
    put("vocab.json", "{\"a\":0,\"b\":1,\"ab\":2}");
    t = tokenizer_open(folder, &err);
    assert_non_null(t);
    assert_int_equal(tokenizer_vocabulary(t), 3);
    assert_non_null(strstr(tokenizer_path(t), "merges.txt"));
    tokenizer_destroy(t);

    /* one that is broken is not passed over */
    put("tokenizer.json", "{");
    assert_null(tokenizer_open(folder, &err));
    assert_non_null(strstr(err.text, "not valid JSON"));
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
        cmocka_unit_test(bytes_are_their_own_tokens),
        cmocka_unit_test(a_folder_has_its_tokenizer),
        cmocka_unit_test(a_broken_model_of_sentencepiece),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
