/* Shards and their index: where one ends, that a reader finds each document, that another's index is refused;
 * a prepared folder whose shard is not as its index says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/io.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/folder.h"
#include "trainer/corpus/prepare_internal.h"
#include "trainer/data/corpus.h"
#include "trainer/data/prepared.h"

static void test_where_a_shard_ends(void **state)
{
    (void)state;
    static const struct {
        struct shard shard;
        uint64_t tokens;
        bool full;
    } rows[] = {{{0, 0}, 5, false},  {{0, 0}, 500, false}, {{60, 2}, 40, false},
                {{60, 2}, 41, true}, {{500, 1}, 1, true},  {{60, 2}, 500, true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(shard_is_full(&rows[i].shard, rows[i].tokens, 100), rows[i].full);
}

static void write_shards(const char *folder, int documents)
{
    const struct shard_writer_options options = {folder, 2, 10};
    GUARD(guard_shard_writer) struct shard_writer *w = shard_writer_create(&options, NULL);
    assert_non_null(w);
    uint16_t token = 0;
    for (int i = 0; i < documents; i++) {
        uint16_t tokens[16];
        const int count = 1 + i % 5;
        for (int k = 0; k < count; k++)
            tokens[k] = token++;
        const char masked[16] = {i % 2, 1, 0, 1, 1}; /* of a chat, which the last document is not */
        assert_int_equal(
            shard_writer_add(w, tokens, i < documents - 1 ? masked : NULL, (uint64_t)count, NULL), 0);
        assert_int_equal(shard_writer_add(w, tokens, NULL, 0, NULL), 0); /* none */
    }
    assert_int_equal(shard_writer_finish(w, NULL), 0);
}

static struct corpus *open_corpus(const char *folder, struct muster_error *err)
{
    struct tokenizer *bytes = tokenizer_open("bytes", NULL);
    scope_buffer identity = {0};
    const struct corpus_options options = {.path = folder,
                                           .tokenizer = bytes,
                                           .text_key = "text",
                                           .end = TOKEN_NONE,
                                           .identity = &identity,
                                           .identity_name = "data"};
    struct corpus *corpus = corpus_open(&options, err);
    tokenizer_destroy(bytes);
    return corpus;
}

static void test_documents_of_shards(void **state)
{
    (void)state;
    char folder[FOLDER_PATH], path[64];
    struct muster_error err = {0};
    assert_int_equal(folder_make(folder, "corpus-shards"), 0);
    write_shards(folder, 20);
    struct corpus *corpus = open_corpus(folder, &err);
    assert_non_null(corpus);
    assert_int_equal(corpus_documents(corpus), 20);
    assert_int_equal(corpus_tokens(corpus), 60);
    assert_true(corpus_files(corpus) > 5);
    int64_t begin, end, last = 0;
    for (int i = 0; i < 20; i++) {
        int32_t tokens[16];
        corpus_document(corpus, i, &begin, &end);
        assert_int_equal(begin, last);
        assert_int_equal(end - begin, 1 + i % 5);
        corpus_read(corpus, begin, end - begin, tokens);
        assert_int_equal(tokens[0] & ~TOKEN_MASK, begin);
        for (int64_t k = 0; k < end - begin; k++) {
            const bool masked = i < 19 && (k ? k != 2 : i % 2);
            assert_int_equal(tokens[k] & TOKEN_MASK, masked ? TOKEN_MASK : 0);
        }
        last = end;
    }
    assert_true(corpus_masked(corpus));
    assert_int_equal(corpus_chats(corpus).chats, 19);
    corpus_destroy(corpus);
    snprintf(path, sizeof path, "%s/shard-00001.mask", folder);
    assert_int_equal(truncate(path, 20), 0);
    assert_null(open_corpus(folder, &err));
    assert_non_null(strstr(err.text, "shard-00001.mask is not the mask of its shard"));
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof path, "%s/shard-00001.idx", folder);
    assert_int_equal(truncate(path, 32), 0);
    assert_null(open_corpus(folder, &err));
    assert_non_null(strstr(err.text, "shard-00001.idx is not the index of its shard"));
    assert_int_equal(unlink(path), 0);
    corpus = open_corpus(folder, &err);
    assert_non_null(corpus);
    assert_int_equal(corpus_documents(corpus), -1);
    corpus_destroy(corpus);
    assert_int_equal(shard_writer_clear(folder, NULL), 0);
    assert_int_equal(rmdir(folder), 0);
}

static void write_index(const char *folder, const char *text)
{
    char path[64];
    snprintf(path, sizeof path, "%s/index.json", folder);
    assert_int_equal(io_write_file_atomic(path, text, strlen(text), 0644, NULL), 0);
}

static void test_prepared(void **state)
{
    (void)state;
    char folder[FOLDER_PATH], train[64], path[128];
    struct prepared p;
    struct muster_error err = {0};
    bool is;
    assert_int_equal(folder_make(folder, "corpus-shards"), 0);
    assert_int_equal(prepared_open(&p, folder, &err), 1);
    write_index(folder, "{\"format\": \"another\"}");
    assert_int_equal(prepared_open(&p, folder, &err), 1);
    write_index(folder, "{\"format\": \"muster-corpus\", \"version\": 9}");
    assert_int_equal(prepared_open(&p, folder, &err), -1);
    assert_int_equal(err.code, MUSTER_E_UNSUPPORTED);
    write_index(
        folder,
        "{\"format\": \"muster-corpus\", \"version\": 1, \"key\": \"ff\", \"tokenizer\": \"bytes\", "
        "\"width\": 2, \"train\": {\"shards\": [{\"file\": \"train/shard-00000.bin\", \"tokens\": 10}]}}");
    assert_int_equal(prepared_open(&p, folder, &err), -1);
    assert_non_null(strstr(err.text, "train/shard-00000.bin is in index.json, but cannot be read"));
    snprintf(train, sizeof train, "%s/train", folder);
    assert_int_equal(mkdir(train, 0755), 0);
    write_shards(train, 4); /* 1 + 2 + 3 + 4 tokens */
    assert_int_equal(prepared_open(&p, folder, &err), 0);
    assert_string_equal(p.train, train);
    assert_null(p.validation);
    assert_string_equal(p.tokenizer, "bytes");
    prepared_free(&p);
    assert_int_equal(prepared_is(folder, 0xFF, &is, NULL), 0);
    assert_true(is);
    assert_int_equal(prepared_is(folder, 0xFE, &is, NULL), 0);
    assert_false(is);
    snprintf(path, sizeof path, "%s/shard-00000.bin", train);
    assert_int_equal(truncate(path, 1030), 0);
    assert_int_equal(prepared_open(&p, folder, &err), -1);
    assert_non_null(strstr(err.text, "has 1030 bytes, and 10 tokens by index.json"));
    assert_int_equal(prepared_is(folder, 0xFF, &is, NULL), 0);
    assert_false(is);
    assert_int_equal(shard_writer_clear(train, NULL), 0);
    snprintf(path, sizeof path, "%s/index.json", folder);
    assert_int_equal(unlink(path) | rmdir(train) | rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_where_a_shard_ends),
                                       cmocka_unit_test(test_documents_of_shards),
                                       cmocka_unit_test(test_prepared)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
