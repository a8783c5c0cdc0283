/* content_test.c - the kind of a file by its content; the files of a folder that are left out, and reported.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/folder.h"
#include "trainer/data/corpus.h"
#include "trainer/data/token_file.h"
#include "trainer/tokens/tokenizer.h"

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

static int make_folder(void **state)
{
    (void)state;
    return folder_make(folder, "content");
}

static int remove_folder(void **state)
{
    (void)state;
    folder_remove(folder);
    return 0;
}

/* ---- the kind of a file, by its content ---- */

/* The tokens of a path as text, '|' after each document. */
static int read_all_of(const char *path, const char *text_key, char *out, size_t size, struct buffer *notes,
                       struct muster_error *err)
{
    GUARD(guard_tokenizer) struct tokenizer *bytes = tokenizer_open("bytes", err);
    scope_buffer identity = {0};
    const struct corpus_options options = {.path = path,
                                           .tokenizer = bytes,
                                           .text_key = text_key,
                                           .end = '|',
                                           .identity = &identity,
                                           .identity_name = "x",
                                           .notes = notes};
    GUARD(guard_corpus) struct corpus *corpus = corpus_open(&options, err);
    if (!corpus)
        return -1;
    const int64_t count = corpus_tokens(corpus);
    int32_t tokens[500];
    assert_true(count < 500 && (size_t)count < size);
    corpus_read(corpus, 0, count, tokens);
    for (int64_t i = 0; i < count; i++)
        out[i] = (char)(tokens[i] & ~TOKEN_MASK);
    out[count] = '\0';
    return 0;
}

#define MARK      "\xEF\xBB\xBF"
#define TWO_LINES "{\"text\": \"one\"}\n{\"text\": \"two\", \"n\": 1}\n"
static const struct {
    const char *name, *text;
    size_t length;    /* 0: up to the first NUL */
    const char *says; /* its documents; "!...": an error that says so */
} contents[] = {
    {"a.txt", "plain\n", 0, "plain\n|"},
    {"a.txt", MARK "plain", 0, "plain|"},
    {"a.jsonl", MARK TWO_LINES, 0, "one|two|"},
    {"a.json", TWO_LINES, 0, "one|two|"},
    {"a.ndjson", TWO_LINES, 0, "one|two|"},
    {"a.jsonlines", TWO_LINES, 0, "one|two|"},
    {"a.txt", TWO_LINES, 0, "one|two|"},
    {"noending", "{\"prompt\": \"q\", \"completion\": \"a\"}", 0, "qa|"},
    {"a.txt", "{\"body\": \"x\"}\n", 0, "{\"body\": \"x\"}\n|"}, /* it may be meant */
    {"a.txt", "{ if (x) }\n", 0, "{ if (x) }\n|"},
    {"a.txt", "[1] a note\n", 0, "[1] a note\n|"},
    {"a.txt", "[\"quoted\n", 0, "[\"quoted\n|"},
    {"a.json", "[\n {\"text\": \"a\\u0041\"},\n {\"text\":\"b\"}\n]\n", 0, "aA|b|"},
    {"a.jsonl", MARK " [{\"text\": \"a\"}, {\"prompt\": \"q\", \"completion\": \"c\"}]", 0, "a|qc|"},
    {"a.txt", "[{\"text\": \"a\"}]", 0, "a|"},
    {"a.json", "[\"one\", \"two\"]", 0, "one|two|"},
    {"a.json", "[{\"text\": \"a\"} {\"text\": \"b\"}]", 0, "!a.json:1: not valid JSON: a comma"},
    {"a.json", "[{\"text\": \"a\"},\n{\"text\": \"b\"}", 0, "!the array does not end"},
    {"a.json", "[{\"text\": \"a\"},\n\n{\"text\": b}]", 0, "!a.json:3: not valid JSON"},
    {"a.json", "[{\"text\": \"a\"}] x", 0, "!text after the array"},
    {"a.json", "[{\"text\": \"a\"}, 7]", 0, "!a record is a number, where an object or a text is expected"},
    {"a.json", "[{\"instruction\": \"i\", \"input\": \"\", \"output\": \"o\"}]", 0,
     "!the keys are: instruction, input, output"},
    {"a.json", "[{\"id\": 1, \"conversations\": []}]", 0,
     "!the value of 'conversations' is an empty list, where the turns of a chat are expected"},
    {"a.json", "[]", 0, "!a.json:1: an empty list: there is no record"},
    {"a.jsonl", "{\"text\": null}\n", 0,
     "!a.jsonl:1: the value of 'text' is null, where a text is expected (data.text_key)"},
    {"a.json", "{\n \"data\": [\n {\"text\": \"a\"}]}\n", 0, "!is one JSON object, not a text: records are"},
    {"a.json", "no json", 0, "!a.json:1: column"},
    {"a.csv", MARK "id,text\n1,\"a, \"\"b\"\"\nc\"\n2,d\n", 0, "a, \"b\"\nc|d|"},
    {"a.tsv", "text\tid\r\na \"b\t1\r\n", 0, "a \"b|"},
    {"a.csv", "prompt,completion\nq,c\n", 0, "qc|"},
    {"a.csv", "body,n\nx,1\n", 0,
     "!no column 'text' (data.text_key), and none 'prompt' and 'completion' or 'instruction' and 'output'; "
     "the first row has: body, n"},
    {"a.csv", "text,n\nx\n", 0, "!line 2: 1 columns, and the first row has 2"},
    {"a.txt", "PAR1\x15\x00", 6, "!a.txt: the file is damaged or cut off: it does not begin as Parquet"},
    {"a.jsonl", "ARROW1\x00\x00", 8, "!a.jsonl: the file is damaged or cut off"},
    {"a.arrow", "\xFF\xFF\xFF\xFF\x10\x00", 6, "!a.arrow: the file is damaged or cut off"},
    {"a.jsonl.gz",
     "\x1F\x8B\x08\x00\x00\x00\x00\x00\x02\x03\xAB\x56\x2A\x49\xAD\x28\x51\xB2\x52\x50\x4A\x54\xAA\xE5\xAA"
     "\x86\xF3\x92\x80\x3C\x00\x3D\xBD\xE6\x10\x1C\x00\x00\x00",
     39, "a|b|"},
    {"any",
     "\x1F\x8B\x08\x00\x00\x00\x00\x00\x02\x03\xAB\x56\x2A\x49\xAD\x28\x51\xB2\x52\x50\x4A\x54\xAA\xE5\xAA"
     "\x86\xF3\x92\x80\x3C\x00\x3D\xBD\xE6\x10\x1C\x00\x00\x00",
     39, "a|b|"},
    {"a.json.gz",
     "\x1F\x8B\x08\x00\x00\x00\x00\x00\x02\x03\x8B\xAE\x56\x2A\x49\xAD\x28\x51\xB2\x52\x50\x4A\x54\xAA\x8D"
     "\x05\x00\x06\x2E\x20\x83\x0F\x00\x00\x00",
     35, "a|"},
    {"a.csv.gz",
     "\x1F\x8B\x08\x00\x00\x00\x00\x00\x02\x03\x2B\x49\xAD\x28\xD1\xC9\xE3\xAA\xD0\x31\xE4\x02\x00\x36\x5D"
     "\xD4\xB8\x0B\x00\x00\x00",
     31, "x|"},
    {"a.txt.gz",
     "\x1F\x8B\x08\x00\x00\x00\x00\x00\x02\x03\x2B\xC8\x49\xCC\xCC\x03\x00\xCF\x62\x20\x19\x05\x00\x00\x00",
     25, "plain|"},
    {"a.jsonl.zst",
     "\x28\xB5\x2F\xFD\x20\x0E\x71\x00\x00\x7B\x22\x74\x65\x78\x74\x22\x3A\x20\x22\x7A\x22\x7D\x0A", 23,
     "z|"},
    {"a.gz",
     "\x1F\x8B\x08\x00\x00\x00\x00\x00\x02\x03\x0B\x70\x0C\x32\x14\x65\x00\x00\x37\x76\xC7\xAB\x06\x00\x00"
     "\x00",
     26, "!a.gz: the file is damaged or cut off: it does not begin as Parquet"},
    {"a.jsonl.gz",
     "\x1F\x8B\x08\x00\x00\x00\x00\x00\x02\x03\xAB\x56\x2A\x49\xAD\x28\x51\xB2\x52\x50\x4A\x54\xAA\xE5\xAA"
     "\x86\xF3\x92\x80\x3C",
     30, "!a.jsonl.gz is damaged or cut off: gzip"},
    {"a.jsonl.zst", "\x28\xB5\x2F\xFD\x20\x0E\x71\x00\x00\x7B\x22\x74\x65\x78\x74\x22\x3A\x20\x22\x7A", 20,
     "!a.jsonl.zst is cut off: zstd"},
    {"a.zip", "PK\x03\x04\x00", 5, "!is a ZIP archive"},
    {"a.csv", "\xFF\xFEh\0i\0", 6, "!is UTF-16, not a text: convert it, such as by `iconv"},
    {"a.txt", "h\0i\0 \0y\0o\0u\0", 12, "!is UTF-16"},
    {"a.txt", "\0h\0i\0 \0y\0o\0u", 12, "!is UTF-16"},
    {"a.txt", "\x80\x04\x95\x10\x00", 5, "!is a pickle of Python"},
    {"a.txt", "ab\0cd", 5, "!is binary"},
    {"raw.bin", "\x01\x00\x02\x00", 4, "!no token shard"},
};

static void files_are_what_they_contain(void **state)
{
    (void)state;
    char found[600];
    for (size_t i = 0; i < sizeof contents / sizeof *contents; i++) {
        struct muster_error err = {0};
        const char *path = put(contents[i].name, contents[i].text,
                               contents[i].length ? contents[i].length : strlen(contents[i].text)),
                   *says = contents[i].says;
        const int result = read_all_of(path, "text", found, sizeof found, NULL, &err);
        (void)unlink(path);
        if (*says == '!' ? !result || !strstr(err.text, says + 1) : result || strcmp(found, says) != 0)
            fail_msg("row %zu, %s: %d, '%s', error '%s'", i, contents[i].name, result, result ? "" : found,
                     err.text);
    }
}

/* A folder as nanoGPT prepares it: the text is read, and a line has the other files. */
static void what_is_left_out_is_told(void **state)
{
    (void)state;
    struct muster_error err = {0};
    scope_buffer notes = {0};
    char found[600], inside[300];
    (void)snprintf(inside, sizeof inside, "%s", path_of("nano"));
    assert_int_equal(mkdir(inside, 0700), 0);
    put_text("nano/input.txt", "to be");
    put_text("nano/prepare.py", "import numpy\n");
    put_text("nano/readme.md", "# shakespeare\n");
    put("nano/meta.pkl", "\x80\x04\x95\x10\x00", 5);
    put("nano/train.bin", "\x01\x00\x02\x00\x03\x00", 6);
    put("nano/val.bin", "\x01\x00\x02\x00\x03\x00", 6);
    put_text("nano/dataset_info.json", "{\n \"splits\": 1\n}");
    put_text("nano/none.txt", "");
    put("nano/val.idx", "\x01\x00\x02\x00", 4); /* the index of val.bin: not in the list */
    assert_int_equal(read_all_of(inside, "text", found, sizeof found, &notes, &err), 0);
    assert_string_equal(found, "to be|");
    static const char *const told[] = {
        "nano: 1 file taken; left out: dataset_info.json (one JSON object: records are",
        "meta.pkl (a pickle of Python)", "none.txt (empty)",
        "train.bin, val.bin (binary, and no token shard of llm.c: raw tokens without a header",
        "prepare.py, readme.md (programs and notes next to data: name one itself to train on it)\n"};
    for (size_t i = 0; i < sizeof told / sizeof *told; i++)
        if (!memmem(notes.data, notes.length, told[i], strlen(told[i])))
            fail_msg("'%.*s' does not have '%s'", (int)notes.length, notes.data, told[i]);
    assert_null(memmem(notes.data, notes.length, "val.idx", 7));
    /* a folder of programs alone is trained on, and a named file is taken */
    assert_int_equal(read_all_of(path_of("nano/prepare.py"), "text", found, sizeof found, NULL, &err), 0);
    assert_string_equal(found, "import numpy\n|");
    (void)unlink(path_of("nano/input.txt"));
    assert_int_equal(read_all_of(inside, "text", found, sizeof found, NULL, &err), 0);
    assert_string_equal(found, "import numpy\n|# shakespeare\n|");
    (void)unlink(path_of("nano/prepare.py"));
    (void)unlink(path_of("nano/readme.md"));
    assert_int_equal(read_all_of(inside, "text", found, sizeof found, NULL, &err), -1);
    assert_non_null(strstr(err.text, "holds no text; "));
    assert_non_null(strstr(err.text, "meta.pkl (a pickle of Python)"));
    folder_remove(inside);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_what_they_contain),
        cmocka_unit_test(what_is_left_out_is_told),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
