/* golden.c - see golden.h. */
#include "tests/support/golden.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/cmocka_all.h"

static void write_file(const char *path, const struct buffer *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text->data, 1, text->length, file), text->length);
    assert_int_equal(fclose(file), 0);
}

static void compare(const char *path, const struct buffer *text)
{
    char golden[1024];
    FILE *file = fopen(path, "r");
    if (!file)
        fail_msg("%s is not there: run with MUSTER_GOLDEN_UPDATE=1 and look at what it wrote", path);
    const char *line = text->data;
    for (int number = 1;; number++) {
        bool more = fgets(golden, sizeof golden, file) != NULL;
        size_t length = strcspn(line, "\n") + (strchr(line, '\n') != NULL);
        if (!more && length == 0)
            break;
        if (!more || strlen(golden) != length || memcmp(golden, line, length) != 0) {
            (void)fclose(file);
            fail_msg("%s:%d: first difference\n  golden: %s\n  now:    %.*s", path, number,
                     more ? golden : "(end)\n", (int)length, line);
        }
        line += length;
    }
    (void)fclose(file);
}

void golden_check(const char *path, const struct buffer *text)
{
    const char *update = getenv("MUSTER_GOLDEN_UPDATE");
    assert_false(text->failed);
    if (update && update[0] == '1')
        write_file(path, text);
    else
        compare(path, text);
}
