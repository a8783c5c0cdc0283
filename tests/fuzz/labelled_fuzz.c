/* labelled_fuzz.c - arbitrary bytes as a table of labelled texts, by commas, by tabs, as lines of JSON and
 * as an array, the first byte says which: texts with labels that are there, or an error with a text. */
#include <stdlib.h>

#include "tests/fuzz/random_main.h"
#include "trainer/labelled/labelled_internal.h"

static void check_texts(const struct token_file *file, const struct label_names *names)
{
    for (int64_t i = 0; i < file->documents; i++) {
        int32_t label;
        token_file_read(file, i ? (int64_t)file->ends[i - 1] : 0, 1, &label);
        if (label < 0 || label >= names->count)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum walk_kind kinds[] = {WALK_COMMAS, WALK_TABS, WALK_LINES, WALK_ARRAY};
    struct muster_error err = {0};
    struct token_file file = {0};
    struct label_names names = {0};
    if (!size)
        return 0;
    GUARD(guard_tokenizer) struct tokenizer *tokenizer = tokenizer_open("bytes", &err);
    GUARD(guard_token_sink)
    struct token_sink *sink = token_sink_create(&(struct token_sink_options){.vocabulary = 256}, &err);
    if (!tokenizer || !sink)
        abort();
    const struct labelled_read read = {.tokenizer = tokenizer, .text_key = "text", .label_key = "label"};
    const struct walk_file source = {.path = (char *)"a", .kind = kinds[*data % 4]};
    const int result =
        labelled_read_table(&read, &source, (const char *)data + 1, size - 1, &names, sink, &err);
    if (result < 0 ? !err.text[0] : token_sink_finish(sink, &file, &err) < 0)
        abort();
    check_texts(&file, &names);
    token_file_close(&file);
    label_names_free(&names);
    return 0;
}

#ifndef MUSTER_LIBFUZZER
int main(int argc, char **argv)
{
    static const char commas[] = "\x00text,label\na,pos\n\"b \"\"c\"\",\nd\",neg\n";
    static const char tabs[] = "\x01label\ttext\r\n1\ta b\r\n0\t\"c\"\r\n";
    static const char lines[] = "\x02{\"text\": \"a\", \"label\": true}\n\n{\"label\": 3, \"text\": \"b\"}\n";
    static const char array[] = "\x03[{\"text\": \"a\", \"label\": 1},\n {\"label\": 3, \"text\": \"b\"}]\n";
    const struct fuzz_seed seeds[] = {{commas, sizeof commas - 1},
                                      {tabs, sizeof tabs - 1},
                                      {lines, sizeof lines - 1},
                                      {array, sizeof array - 1}};
    return fuzz_main(argc, argv, seeds, 4);
}
#endif
