/* What data is read from: token shards, JSON lines, several sources; masks, documents, caches. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/text.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/faults.h"
#include "tests/support/folder.h"
#include "trainer/data/corpus.h"
#include "trainer/data/data.h"
#include "trainer/data/token_cache.h"
#include "trainer/data/token_file.h"
#include "trainer/tokens/tokenizer.h"

enum { END = 255 };

static char folder[FOLDER_PATH];

static const char *path_of(const char *name)
{
    static char paths[8][200];
    static int next;
    char *path = paths[next++ % 8];
    (void)snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static const char *put(const char *name, const void *text, size_t length)
{
    FILE *file = fopen(path_of(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
    return path_of(name);
}

static const char *put_text(const char *name, const char *text)
{
    return put(name, text, strlen(text));
}

/* A shard of llm.c of count tokens first, first + 1, ... */
static const char *put_shard(const char *name, int magic, int version, int count, uint32_t first)
{
    static char bytes[1024 + 4 * 4096];
    const int32_t header[] = {magic, version, count};
    const size_t width = magic == 20240520 ? 2 : 4;
    memset(bytes, 0, sizeof bytes);
    memcpy(bytes, header, sizeof header);
    for (int i = 0; i < count; i++) {
        const uint32_t value = first + (uint32_t)i;
        memcpy(bytes + 1024 + (size_t)i * width, &value, width);
    }
    return put(name, bytes, 1024 + (size_t)count * width);
}

static int make_folder(void **state)
{
    (void)state;
    return folder_make(folder, "sources");
}

static int remove_folder(void **state)
{
    (void)state;
    folder_remove(folder);
    return 0;
}

static struct data *open_one(const char *path, int T, struct data_options options, struct muster_error *err)
{
    options.path = path;
    options.positions = T;
    return data_open(&options, err);
}

/* Which documents are held out, by their letters; '-' where the other side has it. */
static void held_out(const char *lines, enum data_packing packing, char held[27], char rest[27])
{
    struct muster_error err = {0};
    const char *path = put_text("split.jsonl", lines);
    struct data *data =
        open_one(path, 4,
                 (struct data_options){
                     .validation_share = 0.3, .validation_split = DATA_SPLIT_DOCUMENTS, .packing = packing},
                 &err);
    if (!data)
        fail_msg("%s", err.text);
    for (int side = 0; side < 2; side++) {
        const struct data *of = side ? data_validation(data) : data;
        char *seen = side ? held : rest;
        memset(seen, '-', 26);
        seen[26] = '\0';
        for (int64_t g = 0; g < data_samples(of); g++) {
            int32_t tokens[4], targets[4];
            assert_true(data_sample(of, (uint64_t)g, tokens, targets, &err) >= 0);
            for (int t = 0; t < 4; t++)
                if (tokens[t] >= 'a' && tokens[t] <= 'z')
                    seen[tokens[t] - 'a'] = (char)tokens[t];
        }
    }
    data_destroy(data);
}

/* Documents of one letter each: a letter is on one side, and stays there when others come or go. */
static void documents_stay_on_their_side(void **state)
{
    (void)state;
    static char all[4000], some[4000];
    for (int packing = DATA_STREAM; packing <= DATA_DOCUMENTS; packing++) {
        char held[27], rest[27], held_now[27], rest_now[27];
        size_t length = 0, part = 0;
        for (int i = 0; i < 26; i++) {
            char line[64];
            (void)snprintf(line, sizeof line, "{\"text\": \"%.*s\"}\n", 9 + i % 3, "???????????");
            for (char *at = line; *at; at++)
                *at = *at == '?' ? (char)('a' + i) : *at;
            length += (size_t)snprintf(all + length, sizeof all - length, "%s", line);
            if (i % 2)
                part += (size_t)snprintf(some + part, sizeof some - part, "%s", line);
        }
        held_out(all, (enum data_packing)packing, held, rest);
        held_out(some, (enum data_packing)packing, held_now, rest_now);
        int count = 0;
        for (int i = 0; i < 26; i++) {
            assert_false(held[i] != '-' && rest[i] != '-'); /* no letter is on both */
            count += held[i] != '-';
            if (i % 2) {
                assert_false(held[i] != '-' && rest_now[i] != '-');
                assert_false(rest[i] != '-' && held_now[i] != '-');
            }
        }
        assert_in_range(count, 3, 14);
    }
}

static void splits_that_leave_nothing(void **state)
{
    (void)state;
    struct muster_error err = {0};
    const struct data_options options = {.validation_share = 0.5, .validation_split = DATA_SPLIT_DOCUMENTS};
    assert_null(open_one(put_text("one.txt", "a text that is one document"), 4, options, &err));
    assert_non_null(strstr(err.text, "hold"));
    assert_null(open_one(put_shard("a.bin", 20240520, 1, 100, 1), 4, options, &err));
    assert_non_null(strstr(err.text, "token shards do not say where documents end"));
    assert_int_equal(unlink(path_of("one.txt")), 0);
    assert_int_equal(unlink(path_of("a.bin")), 0);
    assert_int_equal(unlink(path_of("split.jsonl")), 0);
}

struct progress_seen {
    int calls;
    int64_t bytes, of;
};

static void see_progress(void *context, const char *path, int64_t bytes, int64_t of)
{
    struct progress_seen *seen = context;
    assert_non_null(strstr(path, folder));
    assert_true(bytes >= seen->bytes); /* never back */
    *seen = (struct progress_seen){seen->calls + 1, bytes, of};
}

/* Every part of a long text and of long lines, up to all bytes. */
static void tokenizing_tells_how_far_it_is(void **state)
{
    (void)state;
    enum { PART = 4 << 20, LINE = 1000 };
    static char text[2 * PART + 10], lines[2 * PART];
    memset(text, 'a', sizeof text);
    for (size_t i = 0; i + LINE <= sizeof lines; i += LINE) {
        memset(lines + i, 'b', LINE);
        memcpy(lines + i, "{\"text\": \"", 10);
        memcpy(lines + i + LINE - 3, "\"}\n", 3);
    }
    const size_t lines_length = sizeof lines / LINE * LINE;
    (void)put("a.txt", text, sizeof text);
    (void)put("b.jsonl", lines, lines_length);
    struct progress_seen seen = {0};
    const struct data_progress progress = {see_progress, &seen};
    struct muster_error err = {0};
    struct data *data = open_one(folder, 8, (struct data_options){.progress = &progress}, &err);
    if (!data)
        fail_msg("%s", err.text);
    assert_true(seen.calls >= 4);
    assert_int_equal(seen.of, (int64_t)(sizeof text + lines_length));
    assert_int_equal(seen.bytes, seen.of);
    data_destroy(data);
    assert_int_equal(unlink(path_of("a.txt")), 0);
    assert_int_equal(unlink(path_of("b.jsonl")), 0);
}

/* Windows of two shards, across their border, in the order of the shards; both kinds. */
static void shards_of_llmc(void **state)
{
    (void)state;
    static const int magics[] = {20240520, 20240801}, versions[] = {1, 7};
    for (int kind = 0; kind < 2; kind++) {
        struct muster_error err = {0};
        (void)put_shard("s_000001.bin", magics[kind], versions[kind], 10, 60000);
        (void)put_shard("s_000002.bin", magics[kind], versions[kind], 11, 100);
        struct data *data = open_one(folder, 4, (struct data_options){.validation_share = 0.75}, &err);
        if (!data)
            fail_msg("%s", err.text);
        assert_int_equal(data_tokens(data), 21);
        assert_int_equal(data_files(data), 2);
        assert_false(data_has_text(data));
        assert_int_equal(data_targets_each(data), 4);
        assert_int_equal(data_samples(data), 1);
        int32_t tokens[4], targets[4];
        const struct data *held = data_validation(data);
        assert_int_equal(data_sample(held, 1, tokens, targets, &err), 4); /* window 2: tokens 8 to 12 */
        assert_true(tokens[0] == 60008 && tokens[1] == 60009 && tokens[2] == 100 && tokens[3] == 101);
        assert_true(targets[0] == 60009 && targets[1] == 100 && targets[2] == 101 && targets[3] == 102);
        data_destroy(data);
        assert_null(open_one(folder, 4, (struct data_options){.packing = DATA_DOCUMENTS}, &err));
        assert_non_null(strstr(err.text, "do not say where documents end"));
        data = open_one(folder, 4, (struct data_options){.vocabulary = 60005}, &err);
        assert_int_equal(data_sample(data, 0, tokens, targets, &err) < 0 ||
                             data_sample(data, 1, tokens, targets, &err) < 0 ||
                             data_sample(data, 2, tokens, targets, &err) < 0,
                         true);
        assert_non_null(strstr(err.text, "and model.vocabulary is 60005"));
        data_destroy(data);
    }
    struct muster_error err = {0};
    (void)put_text("text", "some text");
    assert_null(open_one(folder, 4, (struct data_options){0}, &err));
    assert_non_null(strstr(err.text, "has token shards and texts"));
    (void)unlink(path_of("text"));
    (void)unlink(path_of("s_000001.bin"));
    (void)unlink(path_of("s_000002.bin"));
}

static void wrong_shards(void **state)
{
    (void)state;
    struct muster_error err = {0};
    const char *path = put_shard("w.bin", 20240520, 2, 10, 0);
    assert_null(open_one(path, 4, (struct data_options){0}, &err));
    assert_non_null(strstr(err.text, "version 2 of a token shard; 1 is supported"));
    path = put_shard("w.bin", 20240520, 1, 10, 0);
    assert_int_equal(truncate(path, 1040), 0);
    assert_null(open_one(path, 4, (struct data_options){0}, &err));
    assert_non_null(strstr(err.text, "its header has 10 tokens, but it has 1040 bytes"));
    assert_int_equal(truncate(path, 100), 0);
    assert_null(open_one(path, 4, (struct data_options){0}, &err));
    assert_non_null(strstr(err.text, "100 bytes are no token shard"));
    path = put_shard("w.bin", 7, 1, 10, 0);
    assert_null(open_one(path, 4, (struct data_options){0}, &err));
    assert_non_null(strstr(err.text, "it begins with 7, not with"));
    (void)unlink(path);
}

#define LINES                                                                                                \
    "{\"text\": \"abcd\", \"n\": 1}\n\n"                                                                     \
    "{\"prompt\": \"ask\", \"completion\": \"yes\"}\n"                                                       \
    "{\"text\": \"\"}\r\n"                                                                                   \
    "{\"text\": \"a line that is long\"}"

/* Documents of JSON lines, one a sample: prompts do not count, nor do the positions after a short document.
 */
static void lines_one_a_sample(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct tokenizer *bytes = tokenizer_open("bytes", &err);
    const char *path = put_text("lines.jsonl", LINES);
    struct data *data = open_one(
        path, 8, (struct data_options){.packing = DATA_DOCUMENTS, .tokenizer = bytes, .document_end = END},
        &err);
    if (!data)
        fail_msg("%s", err.text);
    assert_int_equal(data_samples(data), 3); /* the empty text has its end alone, and no target */
    assert_int_equal(data_targets_each(data), -1);
    assert_int_equal(data_documents_cut(data), 1);
    assert_true(data_has_text(data));
    static const struct {
        const char *tokens;
        int32_t targets[8];
        int counted;
    } wanted[] = {
        {"abcd\xFF", {'b', 'c', 'd', END, -1, -1, -1, -1}, 4},
        {"askyes\xFF", {-1, -1, 'y', 'e', 's', END, -1, -1}, 4},
        {"a line t", {' ', 'l', 'i', 'n', 'e', ' ', 't', 'h'}, 8},
    };
    int seen[3] = {0};
    for (uint64_t g = 0; g < 3; g++) {
        int32_t tokens[8], targets[8];
        const int counted = data_sample(data, g, tokens, targets, &err);
        for (int w = 0; w < 3; w++) {
            const int length = (int)strlen(wanted[w].tokens);
            bool same = counted == wanted[w].counted && !memcmp(targets, wanted[w].targets, sizeof targets);
            for (int t = 0; t + 1 < length; t++)
                same = same && tokens[t] == (unsigned char)wanted[w].tokens[t];
            seen[w] += same;
        }
    }
    for (int w = 0; w < 3; w++)
        assert_int_equal(seen[w], 1);
    data_destroy(data);
    tokenizer_destroy(bytes);
}

/* The same as a stream: one after the other, the prompt's tokens no targets there either. */
/* A prompt that fills its sample leaves nothing to learn: such samples are left out, and that is told. */
static void samples_without_targets(void **state)
{
    (void)state;
    struct muster_error err = {0};
    scope_buffer notes = {0};
    struct tokenizer *bytes = tokenizer_open("bytes", &err);
    static const char mixed[] = "{\"prompt\": \"a prompt that is long\", \"completion\": \"x\"}\n"
                                "{\"prompt\": \"q\", \"completion\": \"yes\"}\n{\"text\": \"\"}\n"
                                "{\"prompt\": \"another one that is long\", \"completion\": \"x\"}\n"
                                "{\"prompt\": \"r\", \"completion\": \"no\"}\n",
                      full[] = "{\"prompt\": \"a prompt that is long\", \"completion\": \"x\"}\n";
    const char *path = put_text("mixed.jsonl", mixed);
    for (int packing = DATA_STREAM; packing <= DATA_DOCUMENTS; packing++) {
        struct data *data = open_one(path, 8,
                                     (struct data_options){.packing = (enum data_packing)packing,
                                                           .tokenizer = bytes,
                                                           .document_end = TOKEN_NONE,
                                                           .notes = &notes},
                                     &err);
        if (!data)
            fail_msg("%s", err.text);
        int32_t targets[8];
        assert_int_equal(data_samples(data), 2);
        for (uint64_t g = 0; g < 8; g++) /* more than an epoch */
            assert_true(data_sample(data, g, NULL, targets, &err) > 0);
        assert_non_null(strstr(data_identity(data), "samples without targets="));
        data_destroy(data);
    }
    static const char told[] = "data: 2 of 4 samples are left out, since none of their";
    if (!memmem(notes.data, notes.length, told, sizeof told - 1))
        fail_msg("'%.*s'", (int)notes.length, notes.data);
    /* held out: the last ones are without targets */
    path = put_text("mixed.jsonl", "{\"text\": \"abc\"}\n{\"text\": \"def\"}\n{\"text\": \"\"}\n");
    const struct data_options half = {
        .packing = DATA_DOCUMENTS, .tokenizer = bytes, .document_end = END, .validation_share = 0.34};
    assert_null(open_one(path, 8, half, &err));
    assert_non_null(strstr(err.text, "validation: none of the samples has a target that counts"));
    path = put_text("mixed.jsonl", full);
    assert_null(open_one(
        path, 8, (struct data_options){.packing = DATA_DOCUMENTS, .tokenizer = bytes, .document_end = END},
        &err));
    assert_int_equal(err.code, MUSTER_E_INVALID);
    assert_non_null(
        strstr(err.text, "none of the samples has a target that counts within training.sequence_length 8"));
    (void)unlink(path);
    tokenizer_destroy(bytes);
}

static void lines_as_a_stream(void **state)
{
    (void)state;
    struct muster_error err = {0};
    const char *path = put_text("lines.jsonl", LINES);
    struct data *data =
        open_one(path, 27, (struct data_options){0}, &err); /* no ends: 4 + 6 + 0 + 19 bytes */
    assert_non_null(data);
    int32_t tokens[27], targets[27];
    assert_int_equal(data_tokens(data), 29);
    assert_int_equal(data_sample(data, 0, tokens, targets, &err), 24);
    for (int t = 0; t < 27; t++) {
        const char *all = "abcdaskyesa line that is long";
        assert_int_equal(tokens[t], all[t]);
        assert_int_equal(targets[t], t >= 3 && t < 6 ? DATA_NO_TARGET : all[t + 1]);
    }
    data_destroy(data);
    path = put_text("bad.jsonl", "{\"text\": \"a\"}\n{\"body\": \"b\"}\n");
    assert_null(open_one(path, 2, (struct data_options){0}, &err));
    assert_non_null(strstr(err.text, "bad.jsonl:2: no text under the key 'text' (data.text_key)"));
    data = open_one(put_text("key.jsonl", "{\"body\": \"bcdef\"}\n"), 2,
                    (struct data_options){.text_key = "body"}, &err);
    assert_non_null(data);
    data_destroy(data);
    path = put_text("bad.jsonl", "{\"text\": \"a\"\n");
    assert_null(open_one(path, 2, (struct data_options){0}, &err));
    assert_non_null(strstr(err.text, "bad.jsonl:1: column"));
    (void)unlink(path);
    (void)unlink(path_of("key.jsonl"));
    (void)unlink(path_of("lines.jsonl"));
}

/* Bytes of this process that are pages of files. */
static int64_t resident_file_bytes(void)
{
    char text[4096] = "";
    FILE *file = fopen("/proc/self/status", "r");
    assert_non_null(file);
    (void)fread(text, 1, sizeof text - 1, file);
    (void)fclose(file);
    return text_row(text, "RssFile");
}

/* A shard of 200 MB: memory holds a sample's pages, not all pages that were read. */
static void a_large_shard_stays_on_disk(void **state)
{
    (void)state;
    enum { COUNT = 100000000, T = 1024, SAMPLES = 3000 };
    static int32_t tokens[T], targets[T];
    struct muster_error err = {0};
    const char *path = put_shard("large.bin", 20240520, 1, 0, 0);
    const int32_t header[] = {20240520, 1, COUNT};
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fwrite(header, sizeof header, 1, file), 1);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(truncate(path, 1024 + 2L * COUNT), 0); /* zeros that take no room */
    struct data *data = open_one(path, T, (struct data_options){.seed = 1}, &err);
    assert_non_null(data);
    const int64_t before = resident_file_bytes();
    int64_t most = before;
    for (uint64_t g = 0; g < SAMPLES; g++) {
        assert_int_equal(data_sample(data, g, tokens, targets, &err), T);
        if (g % 100 == 0 && resident_file_bytes() > most)
            most = resident_file_bytes();
    }
    assert_in_range(most - before, 0, 1 << 20);
    data_destroy(data);
    (void)unlink(path);
}

/* Letters of one source are small, of the other one capital. */
static void weights_of_sources(void **state)
{
    (void)state;
    struct muster_error err = {0};
    const char *small = put_text("small", "abcdefghijklmnopqrstuvwxyz"),
               *capital = put_text("capital", "ABCDEFG");
    const struct data_source sources[] = {{small, 1}, {capital, 3}};
    struct data_options options = {.sources = sources, .source_count = 2, .positions = 1, .seed = 3};
    struct data *data = data_open(&options, &err);
    assert_non_null(data);
    assert_int_equal(data_samples(data), 25 + 6);
    int counts[128] = {0};
    for (uint64_t g = 0; g < 4096; g++) {
        int32_t token, target;
        assert_int_equal(data_sample(data, g, &token, &target, &err), 1);
        assert_int_equal(target, token + 1);
        counts[token]++;
    }
    for (char c = 'a'; c < 'z'; c++)
        assert_in_range(counts[(int)c], 40, 41); /* 1024 of 25 */
    for (char c = 'A'; c < 'G'; c++)
        assert_in_range(counts[(int)c], 512, 512);
    data_destroy(data);

    /* without weights each sample once an epoch; validation from the end of each */
    const struct data_source plain[] = {{small, 0}, {capital, 0}};
    options.sources = plain;
    options.validation_share = 0.5;
    data = data_open(&options, &err);
    assert_non_null(data);
    const struct data *held = data_validation(data);
    assert_true(data_samples(data) == 12 + 3 && data_samples(held) == 13 + 3);
    memset(counts, 0, sizeof counts);
    for (uint64_t g = 0; g < 15 + 16; g++) {
        int32_t token;
        assert_int_equal(data_sample(g < 15 ? data : held, g < 15 ? g : g - 15, &token, NULL, &err), 1);
        assert_int_equal(counts[token]++, 0);
        const bool first = token < 'a' ? token < 'D' : token < 'm';
        assert_int_equal(first, g < 15);
    }
    data_destroy(data);

    options.validation_share = 0;
    options.validation_path = capital;
    options.source_count = 1;
    data = data_open(&options, &err);
    assert_non_null(data);
    assert_int_equal(data_samples(data_validation(data)), 6);
    assert_int_equal(data_tokens(data), 26 + 7);
    data_destroy(data);
    const struct data_source mixed[] = {{small, 1}, {capital, 0}};
    options.sources = mixed;
    options.source_count = 2;
    assert_null(data_open(&options, &err));
    assert_non_null(strstr(err.text, "either all have a weight above 0 or none has one"));
    (void)unlink(small);
    (void)unlink(capital);
}

#define JSON                                                                                                 \
    "{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"model\":{\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"</"        \
    "s>\":3},"                                                                                               \
    "\"merges\":[\"a b\"]}}"

static int64_t tokens_through_cache(const char *path, const char *cache, struct muster_error *err)
{
    struct tokenizer *tokenizer = tokenizer_open(path_of("tokenizer.json"), err);
    assert_non_null(tokenizer);
    struct data *data = open_one(
        path, 1, (struct data_options){.tokenizer = tokenizer, .document_end = 3, .cache_dir = cache}, err);
    const int64_t tokens = data ? data_tokens(data) : -1;
    data_destroy(data);
    tokenizer_destroy(tokenizer);
    return tokens;
}

static int files_in(const char *path, char *name)
{
    int count = 0;
    DIR *open = opendir(path);
    for (const struct dirent *entry; open && (entry = readdir(open));) {
        if (!strstr(entry->d_name, ".tokens") || strstr(entry->d_name, ".lock"))
            continue;
        count++;
        (void)snprintf(name, 300, "%s/%s", path, entry->d_name);
    }
    (void)closedir(open);
    return count;
}

/* Made once, used again, made anew for another text, and where it is damaged. */
static void texts_are_tokenized_once(void **state)
{
    (void)state;
    struct muster_error err = {0};
    char name[300], again[300];
    struct stat first, second;
    (void)put_text("tokenizer.json", JSON);
    const char *path = put_text("words.txt", "abab");
    char cache[200];
    (void)snprintf(cache, sizeof cache, "%s/cache/of/tokens", folder);
    assert_int_equal(tokens_through_cache(path, cache, &err), 3);
    assert_int_equal(files_in(cache, name), 1);
    assert_int_equal(stat(name, &first), 0);
    assert_int_equal(tokens_through_cache(path, cache, &err), 3);
    assert_int_equal(stat(name, &second), 0);
    assert_int_equal(first.st_ino, second.st_ino);

    path = put_text("words.txt", "ababab");
    assert_int_equal(tokens_through_cache(path, cache, &err), 4);
    assert_int_equal(files_in(cache, again), 1);
    assert_string_equal(name, again); /* in the place of the old one */

    assert_int_equal(truncate(name, 70), 0);
    assert_int_equal(tokens_through_cache(path, cache, &err), 4);
    assert_int_equal(tokens_through_cache(path, cache, &err), 4);

    /* a folder that was named and cannot be one */
    assert_int_equal(tokens_through_cache(path, path_of("words.txt"), &err), -1);
    assert_non_null(strstr(err.text, "words.txt"));
    /* the user's own, which cannot be written: memory */
    assert_int_equal(setenv("XDG_CACHE_HOME", "/proc/nowhere", 1), 0);
    assert_int_equal(tokens_through_cache(path, NULL, &err), 4);
    assert_int_equal(setenv("XDG_CACHE_HOME", folder, 1), 0);
    assert_int_equal(tokens_through_cache(path, NULL, &err), 4);
    char own[200];
    (void)snprintf(own, sizeof own, "%s/muster/tokens", folder);
    assert_int_equal(files_in(own, name), 1);
}

/* Every width, through memory and through a file, and damaged files are no caches. */
static void sinks(void **state)
{
    (void)state;
    static const struct {
        int64_t vocabulary;
        bool masked;
        int width;
    } cases[] = {{256, false, 1},  {256, true, 2},    {32768, true, 2},
                 {32769, true, 4}, {65536, false, 2}, {65537, false, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int file = 0; file < 2; file++) {
            struct muster_error err = {0};
            struct token_file out;
            const int32_t tokens[] = {0, 1, (int32_t)cases[i].vocabulary - 1};
            struct token_sink *sink =
                token_sink_create(&(struct token_sink_options){.path = file ? path_of("sink") : NULL,
                                                               .key = 7,
                                                               .vocabulary = cases[i].vocabulary,
                                                               .masked = cases[i].masked},
                                  &err);
            assert_non_null(sink);
            assert_int_equal(token_sink_add(sink, tokens, 3, false, &err), 0);
            assert_int_equal(token_sink_end_document(sink, &err), 0);
            assert_int_equal(token_sink_end_document(sink, &err), 0); /* no token: no document */
            assert_int_equal(token_sink_add(sink, tokens, 2, true, &err), 0);
            assert_int_equal(token_sink_end_document(sink, &err), 0);
            assert_int_equal(token_sink_finish(sink, &out, &err), 0);
            token_sink_destroy(sink);
            assert_int_equal(out.width, cases[i].width);
            assert_true(out.count == 5 && out.documents == 2 && out.ends[0] == 3 && out.ends[1] == 5);
            int32_t found[5];
            token_file_read(&out, 0, 5, found);
            const int32_t mask = cases[i].masked ? TOKEN_MASK : 0;
            assert_memory_equal(found, tokens, sizeof tokens);
            assert_true(found[3] == (0 | mask) && found[4] == (1 | mask));
            if (file) {
                for (size_t length = 0; length < out.mapping.length; length++) {
                    struct token_file cut;
                    assert_int_equal(token_file_parse_cache(&cut, out.mapping.data, length, 7), 1);
                }
                struct token_file other;
                assert_int_equal(token_file_parse_cache(&other, out.mapping.data, out.mapping.length, 8), 1);
            }
            token_file_close(&out);
        }
    }
    struct muster_error err = {0};
    assert_null(
        token_sink_create(&(struct token_sink_options){.path = "/proc/nowhere/x", .vocabulary = 9}, &err));
    assert_non_null(strstr(err.text, "cannot write token cache /proc/nowhere/x"));
    /* a sink that is given up leaves nothing */
    struct token_sink *sink =
        token_sink_create(&(struct token_sink_options){.path = path_of("given_up"), .vocabulary = 9}, &err);
    assert_non_null(sink);
    token_sink_destroy(sink);
    DIR *open = opendir(folder);
    for (const struct dirent *entry; (entry = readdir(open));)
        assert_null(strstr(entry->d_name, "given_up"));
    (void)closedir(open);
}

static int open_lines(void *context)
{
    struct data *data =
        open_one(context, 4, (struct data_options){.packing = DATA_DOCUMENTS, .validation_share = 0.5}, NULL);
    data_destroy(data);
    return data ? 0 : -1;
}

static void survives_no_memory(void **state)
{
    (void)state;
    char path[200];
    (void)snprintf(path, sizeof path, "%s", put_text("faults.jsonl", LINES));
    faults_sweep(open_lines, path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_stay_on_their_side),
        cmocka_unit_test(splits_that_leave_nothing),
        cmocka_unit_test(tokenizing_tells_how_far_it_is),
        cmocka_unit_test(shards_of_llmc),
        cmocka_unit_test(wrong_shards),
        cmocka_unit_test(lines_one_a_sample),
        cmocka_unit_test(samples_without_targets),
        cmocka_unit_test(lines_as_a_stream),
        cmocka_unit_test(a_large_shard_stays_on_disk),
        cmocka_unit_test(weights_of_sources),
        cmocka_unit_test(texts_are_tokenized_once),
        cmocka_unit_test(sinks),
        cmocka_unit_test(survives_no_memory),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
