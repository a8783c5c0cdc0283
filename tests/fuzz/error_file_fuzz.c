/* error_file_fuzz.c - arbitrary bytes as a worker's error file: refused with a text, or texts that fit a
 * report and can be handed on. */
#include <stdlib.h>
#include <string.h>

#include "launcher/verdict/error_file.h"
#include "proto/base/mem.h"
#include "tests/fuzz/random_main.h"

static void check(bool holds)
{
    if (!holds)
        abort();
}

static bool is_clean(const char *text, size_t size, bool one_line)
{
    size_t length = strnlen(text, size);
    for (size_t i = 0; i < length; i++)
        if (((unsigned char)text[i] < ' ' && (one_line || text[i] != '\n')) || text[i] == 127)
            return false;
    return length < size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error_report report;
    struct muster_error err = {0};
    scope_buffer out = {0};
    int parsed = error_file_parse((const char *)data, size, &report, &err);
    check((parsed == 0) == (*err.text == 0));
    check(is_clean(report.message, sizeof report.message, true));
    check(is_clean(report.traceback, sizeof report.traceback, false));
    check(!report.timed || (report.wall_ns >= 0 && report.grain_ns >= 0));
    int handed = error_file_with_code((const char *)data, size, 7, &out, NULL);
    check(handed == 0 || parsed < 0); /* a readable file can be handed on */
    if (handed == 0 && parsed == 0) {
        struct error_report again;
        check(error_file_parse(out.data, out.length, &again, NULL) == 0);
        check(!strcmp(again.message, report.message) && !strcmp(again.traceback, report.traceback));
    }
    return 0;
}

#ifndef MUSTER_LIBFUZZER
int main(int argc, char **argv)
{
    static const char dict[] =
        "{\"message\": {\"message\": \"ValueError: \\ud83d\\ude00 \\udc80\", \"extraInfo\": "
        "{\"py_callstack\": \"Traceback\\n  File\\n\", \"timestamp\": \"1700000000\"}}}";
    static const char plain[] = "{\"message\": \"out of luck\", \"timestamp\": 1700000000.25}";
    const struct fuzz_seed seeds[] = {{dict, sizeof dict - 1}, {plain, sizeof plain - 1}};
    return fuzz_main(argc, argv, seeds, 2);
}
#endif
