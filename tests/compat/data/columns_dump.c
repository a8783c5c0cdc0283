/* columns_dump.c - the rows of a Parquet or Arrow file as lines of JSON, for columns_test.py:
 * columns_dump FILE NAME ... */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/columns/columns.h"
#include "trainer/data/mapping.h"

int main(int argc, char **argv)
{
    struct muster_error err = {0};
    struct mapping file;
    json_t *row;
    int found = -1;
    if (argc < 3 || mapping_open(&file, argv[1], &err) < 0)
        return 2;
    const struct columns_options options = {file.data, file.length, (const char *const *)argv + 2};
    struct columns *columns = file.length > 4 && !memcmp(file.data, "PAR1", 4)
                                  ? columns_open_parquet(&options, &err)
                                  : columns_open_arrow(&options, &err);
    while (columns && (found = columns_next(columns, &row, &err)) > 0) {
        char *text = json_dumps(row, JSON_COMPACT);
        (void)printf("%s\n", text ? text : "null");
        free(text);
        json_decref(row);
    }
    if (found < 0)
        (void)fprintf(stderr, "%s\n", err.text);
    columns_close(columns);
    mapping_close(&file);
    return found < 0;
}
