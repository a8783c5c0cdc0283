/* figures.c - one line a figure, fields between tabs. See figures.h. */
#include "benchmarks/support/figures.h"

#include <stdio.h>
#include <stdlib.h>

void figure_add(const char *figure, const char *unit, double muster, const char *limit, double limit_value,
                bool rates)
{
    const char *path = getenv("MUSTER_BENCH_FIGURES");
    FILE *file = path && *path ? fopen(path, "ae") : NULL;
    if (!file)
        return;
    fprintf(file, "%s\t%s\t%.9g\t%s\t%.9g\t%d\n", figure, unit, muster, limit ? limit : "", limit_value,
            rates);
    if (fclose(file))
        perror(path);
}
