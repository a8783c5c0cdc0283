/* Documents of a file, whatever pieces it is read in: whole texts, separators, long texts, lines of JSON. */
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "tests/support/cmocka_all.h"
#include "trainer/corpus/input.h"

struct source {
    const char *text;
    size_t left, piece;
};

static ssize_t read_source(void *context, char *out, size_t size, struct muster_error *err)
{
    struct source *s = context;
    (void)err;
    size_t bytes = s->left < s->piece ? s->left : s->piece;
    bytes = bytes < size ? bytes : size;
    memcpy(out, s->text, bytes);
    s->text += bytes;
    s->left -= bytes;
    return (ssize_t)bytes;
}

/* All documents, "|" after each, "?" for a broken line; "!": an error. */
static void split_all(const char *text, struct split_options options, size_t piece, char *out, size_t size)
{
    struct source source = {text, strlen(text), piece};
    struct split split;
    struct split_document document;
    struct muster_error err = {0};
    int found;
    size_t bytes = 0;
    options.read = read_source;
    options.context = &source;
    options.name = "file";
    split_open(&split, &options);
    *out = '\0';
    while ((found = split_next(&split, &document, &err)) > 0) {
        const size_t at = strlen(out);
        snprintf(out + at, size - at, "%.*s%s", (int)document.length, document.text,
                 document.broken ? "?|" : "|");
        bytes += document.bytes;
    }
    if (found < 0)
        strncat(out, "!", size - strlen(out) - 1);
    else if (!options.lines && *text != (char)0xEF)
        assert_int_equal(bytes, strlen(text)); /* each byte is a document's */
    split_close(&split);
}

static void check(const char *text, const struct split_options *options, const char *wanted)
{
    char out[512];
    for (size_t piece = 1; piece < 40; piece++) {
        split_all(text, *options, piece, out, sizeof out);
        assert_string_equal(out, wanted);
    }
}

static void test_texts(void **state)
{
    (void)state;
    const struct split_options whole = {.separator = "", .limit = 100},
                               percent = {.separator = "%", .limit = 100},
                               shorter = {.separator = "", .limit = 8}, both = {.separator = "%", .limit = 8};
    check("", &whole, "");
    check("one\ntwo\n", &whole, "one\ntwo\n|");
    check("one\n%\ntwo\n%%\n%x\n%\r\nthree\n%", &percent, "one\n|two\n%%\n%x\n|three\n|");
    check("%\n%\na", &percent, "||a|");
    check("\xEF\xBB\xBFone\ntwo\n", &whole, "one\ntwo\n|"); /* a byte order mark */
    check("\xEF\xBB\xBF%\nb\xEF\xBB\xBF", &percent, "|b\xEF\xBB\xBF|");
    check("a line\nb line\nc", &shorter, "a line\n|b line\nc|");
    check("abcdefghijkl", &shorter, "abcdefgh|ijkl|");
    check("abcdefg\xC3\xA9"
          "hi",
          &shorter, "abcdefg|\xC3\xA9hi|"); /* not inside of a character */
    check("aaaaaaa\n%\nc\n%\n", &both, "aaaaaaa\n|c\n|");
    check("aaaa\nbbbb\n%\nc", &both, "aaaa\n|bbbb\n|c|");
}

static void test_lines(void **state)
{
    (void)state;
    const struct split_options lines = {.separator = "", .limit = 16, .lines = true, .key = "text"};
    check("{\"text\": \"a\\nb\"}\n\n  \n{\"text\": \"\"}\n{\"text\": 3}\nrubbish\n[\"text\"]\n{\"text\": "
          "\"z\"}",
          &lines, "a\nb||?|?|?|z|");
    char line[400];
    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = '\0';
    check(line, &lines, "!"); /* longer than 8 times the limit */
}

/* A chat is a text by a template, and an error without one. */
static void chats_are_texts_by_a_template(void **state)
{
    static const char lines[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}]}\n{\"text\": \"t\"}\n"
        "{\"instruction\": \"i\", \"output\": \"o\"}\n";
    struct muster_error err = {0};
    (void)state;
    struct chat *chat = chat_open(&(struct chat_options){.template_name = CHAT_CHATML}, &err);
    assert_non_null(chat);
    check(lines, &(struct split_options){.lines = true, .key = "text", .limit = 1000, .chat = chat},
          "<|im_start|>user\nq<|im_end|>\n|t|<|im_start|>user\ni<|im_end|>\n<|im_start|>assistant\no<|im_end|"
          ">\n|");
    check(lines, &(struct split_options){.lines = true, .key = "text", .limit = 1000}, "!");
    chat_destroy(chat);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(chats_are_texts_by_a_template),
                                       cmocka_unit_test(test_texts), cmocka_unit_test(test_lines)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
