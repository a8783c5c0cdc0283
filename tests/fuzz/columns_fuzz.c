/* columns_fuzz.c - arbitrary bytes as a Parquet file and as a stream of Arrow: rows of JSON, or an error with
 * a text; never a byte beyond the file. The seeds are files of pyarrow in corpus/columns. */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/random_main.h"
#include "trainer/columns/columns.h"

enum { ROWS = 2000 };

static void read_rows(struct columns *columns, const struct muster_error *opened)
{
    struct muster_error err = {0};
    json_t *row;
    int found = columns ? 1 : 0;
    if (!columns && !opened->text[0])
        abort();
    for (int i = 0; found > 0 && i < ROWS; i++) {
        found = columns_next(columns, &row, &err);
        if (found > 0)
            json_decref(row);
        if (found < 0 && !err.text[0])
            abort();
    }
    columns_close(columns);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"text", "messages", "number", "label", NULL};
    char *copy = malloc(size + 1); /* of this size: a read beyond it is found */
    if (!copy)
        return 0;
    char *exact = realloc(copy, size ? size : 1);
    copy = exact ? exact : copy;
    memcpy(copy, data, size);
    const struct columns_options options = {copy, size, names};
    struct muster_error err = {0};
    read_rows(columns_open_parquet(&options, &err), &err);
    err = (struct muster_error){0};
    read_rows(columns_open_arrow(&options, &err), &err);
    free(copy);
    return 0;
}

#ifndef MUSTER_LIBFUZZER
int main(int argc, char **argv)
{
    static const char parquet[] = "PAR1\x15\x00PAR1", arrow[] = "\xFF\xFF\xFF\xFF\x10\x00\x00\x00";
    const struct fuzz_seed seeds[] = {{parquet, sizeof parquet - 1}, {arrow, sizeof arrow - 1}};
    return fuzz_main(argc, argv, seeds, 2);
}
#endif
