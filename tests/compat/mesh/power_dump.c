/* power_dump.c - PowerSGD between replicas in one process, for power_torch_test.py.
 *
 *     power_dump RANK REPLICAS STEPS ROWS COLUMNS [ROWS COLUMNS ...]
 *
 * Reads f64 from stdin: for each matrix its first factor, column by column; then for each step and replica
 * all gradients. Writes the replicas' sum of each step, and then each replica's feedback. */
#include <stdio.h>
#include <stdlib.h>

#include "proto/base/mem.h"
#include "runtime/compress/compress.h"

enum { MATRICES = 8, REPLICAS = 8 };

static double *numbers(int64_t count)
{
    double *made = mem_calloc((size_t)count, sizeof *made);
    if (!made)
        exit(1);
    return made;
}

static void take(double *to, int64_t count)
{
    if (fread(to, sizeof *to, (size_t)count, stdin) != (size_t)count)
        exit(2);
}

static void put(const double *from, int64_t count)
{
    if (fwrite(from, sizeof *from, (size_t)count, stdout) != (size_t)count)
        exit(3);
}

/* Every replica gets the sum, in the order of the replicas. */
static void add_up(double **parts, int count, int64_t elements)
{
    for (int64_t i = 0; i < elements; i++) {
        double sum = 0;
        for (int r = 0; r < count; r++)
            sum += parts[r][i];
        for (int r = 0; r < count; r++)
            parts[r][i] = sum;
    }
}

int main(int argc, char **argv)
{
    struct compress_piece pieces[MATRICES] = {0};
    const int rank = argc > 5 ? atoi(argv[1]) : 0, replicas = argc > 5 ? atoi(argv[2]) : 0;
    int count = 0;
    int64_t elements = 0, lefts = 0, rights = 0;
    double figures[2] = {0};
    if (rank < 1 || replicas < 1 || replicas > REPLICAS || argc > 4 + 2 * MATRICES)
        return 4;
    for (int i = 4; i + 1 < argc; i += 2) {
        const int64_t rows = atoi(argv[i]), columns = atoi(argv[i + 1]);
        pieces[count++] = (struct compress_piece){.at = elements,
                                                  .count = rows * columns,
                                                  .rank = rank,
                                                  .rows = rows,
                                                  .columns = columns,
                                                  .left = lefts,
                                                  .right = rights};
        elements += rows * columns;
        lefts += rows * rank;
        rights += columns * rank;
    }
    double *gradient[REPLICAS], *feedback[REPLICAS], *left[REPLICAS], *right[REPLICAS], *factor[REPLICAS];
    struct compress_call calls[REPLICAS];
    double *first = numbers(rights);
    take(first, rights);
    for (int r = 0; r < replicas; r++) {
        gradient[r] = numbers(elements);
        feedback[r] = numbers(elements);
        left[r] = numbers(lefts);
        right[r] = numbers(rights);
        factor[r] = numbers(rights);
        for (int64_t i = 0; i < rights; i++)
            factor[r][i] = first[i];
        for (int m = 0; m < count; m++)
            compress_orthonormal(DTYPE_F64, factor[r] + pieces[m].right, pieces[m].columns, rank, NULL);
        calls[r] = (struct compress_call){DTYPE_F64, gradient[r], feedback[r], pieces,   count,
                                          1,         false,       figures,     DTYPE_F64};
    }
    for (int step = 0; step < atoi(argv[3]); step++) {
        for (int r = 0; r < replicas; r++) {
            take(gradient[r], elements);
            compress_left(&calls[r], factor[r], left[r], NULL);
        }
        add_up(left, replicas, lefts);
        for (int r = 0; r < replicas; r++)
            compress_right(&calls[r], left[r], right[r]);
        add_up(right, replicas, rights);
        for (int r = 0; r < replicas; r++)
            compress_power_decode(&calls[r], left[r], right[r], replicas, NULL, factor[r]);
        put(gradient[0], elements);
    }
    for (int r = 0; r < replicas; r++)
        put(feedback[r], elements);
    return 0; /* the end frees the memory */
}
