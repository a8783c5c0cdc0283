/* corpus_fuzz.c - arbitrary bytes as a file of documents: every document is one run of its bytes, all of
 * which are in one but a byte order mark; cleaned text is UTF-8 and stays as it is when it is cleaned again,
 * measures are within their range, runs of words are a set. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/text.h"
#include "tests/fuzz/random_main.h"
#include "trainer/corpus/input.h"
#include "trainer/corpus/texts.h"
#include "trainer/tokens/unicode.h"

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

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void measure(const char *text, size_t length)
{
    static const struct measure_lists none = {NULL, NULL};
    struct measure_room room = {0};
    struct words words = {0};
    struct shingles shingles = {0};
    struct measures m;
    uint64_t keys[MINHASH_BANDS];
    require(!words_split(&words, text, length) && !measure_text(&room, &none, text, length, &words, &m));
    static const enum rule shares[] = {RULE_LETTERS, RULE_SYMBOLS, RULE_LINES, RULE_NGRAMS};
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++)
        require(m.value[shares[i]] >= 0 && m.value[shares[i]] <= 1);
    require(m.value[RULE_CHARS] <= (double)length && words.chars <= length);
    require(!shingles_make(&shingles, &words) && shingles.count <= words.count);
    for (size_t i = 1; i < shingles.count; i++)
        require(shingles.hash[i - 1] < shingles.hash[i]);
    require((shingles.count > 0) == (words.count > 0));
    if (shingles.count) {
        require(shingles_jaccard(&shingles, &shingles) >= 1);
        minhash_keys(&shingles, minhash_bands_for(0.8), keys);
    }
    shingles_free(&shingles);
    words_free(&words);
    measure_room_free(&room);
}

static void clean(const char *text, size_t length)
{
    struct clean_room room = {0};
    scope_buffer once = {0}, twice = {0};
    size_t invalid;
    require(!clean_text(&room, text, length, &once, &invalid, NULL) && invalid <= length);
    for (size_t at = 0; at < once.length;) {
        const struct unicode_char c = unicode_next(once.data + at, once.length - at);
        require(c.length > 1 || c.point < 0x80);
        at += c.length;
    }
    require(!clean_text(&room, once.data ? once.data : "", once.length, &twice, &invalid, NULL) && !invalid);
    require(once.length == twice.length && (!once.length || !memcmp(once.data, twice.data, once.length)));
    measure(once.data ? once.data : "", once.length);
    clean_room_free(&room);
}

static void split(const char *text, size_t length, size_t piece, bool lines, bool cleans)
{
    struct source source = {text, length, piece};
    struct split split;
    struct split_document document;
    struct muster_error err = {0};
    size_t bytes = 0;
    int found;
    split_open(&split, &(struct split_options){.read = read_source,
                                               .context = &source,
                                               .name = "fuzz",
                                               .lines = lines,
                                               .key = "text",
                                               .separator = lines ? "" : "%",
                                               .limit = 24});
    while ((found = split_next(&split, &document, &err)) > 0) {
        bytes += document.bytes;
        require(lines || (document.length <= 24 && document.length <= document.bytes));
        if (cleans)
            clean(document.text, document.length);
    }
    require(found < 0 ? err.text[0] != '\0' : lines || bytes == length - text_byte_order_mark(text, length));
    split_close(&split);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool opened, composes;
    composes = opened ? composes : !clean_open(NULL);
    opened = true;
    const char *text = (const char *)data;
    split(text, size, 1 + size % 7, false, composes);
    split(text, size, 1 + size % 5, true, composes);
    if (composes)
        clean(text, size);
    return 0;
}

#ifndef MUSTER_LIBFUZZER
int main(int argc, char **argv)
{
    static const char text[] = "One two,\nthree\r\n%\ne\xCC\x81t\xC3\xA9 \xE4\xBA\xBA\n%\n\xFF",
                      lines[] = "{\"text\": \"a\\u0000b\"}\n{}\n";
    const struct fuzz_seed seeds[] = {{text, sizeof text - 1}, {lines, sizeof lines - 1}};
    return fuzz_main(argc, argv, seeds, 2);
}
#endif
