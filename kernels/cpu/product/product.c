/* product.c - see product.h. The cut is the same for values of float (of_float.c) and of bf16 (of_bf16.c),
 * but for the side. Each part packs the whole of one factor anew.
 *
 * Results of bf16 are cut along their rows where there are enough: oneDNN writes whole rows as it multiplies,
 * and adds up a part of each row in an array of float first, of the part's size. */
#include "kernels/cpu/product/product.h"

#include "kernels/cpu/product/part.h"
#include "kernels/cpu/team.h"

/* Below this many multiplications one thread does a product. */
#define PRODUCT_PARALLEL_MIN 262144.0

static bool is_cut_by_columns(const struct product *p)
{
    const bool whole_rows = CPU_NARROW && !p->gradient && p->rows >= PRODUCT_UNIT * team_size();
    return !whole_rows && p->columns >= p->rows;
}

void CPU(product)(const struct product *p, enum kernels_products by)
{
    const bool by_columns = is_cut_by_columns(p);
    int side = by_columns ? p->columns : p->rows, units = (side + PRODUCT_UNIT - 1) / PRODUCT_UNIT;
    bool parallel = (double)p->rows * p->columns * p->depth >= PRODUCT_PARALLEL_MIN;
    int parts = !parallel ? 1 : smaller(team_size(), units);
    CPU_PARALLEL_FOR(parts > 1)
    for (int part = 0; part < parts; part++) {
        int first = units * part / parts * PRODUCT_UNIT, end = units * (part + 1) / parts * PRODUCT_UNIT;
        int length = smaller(end, side) - first;
        const struct rectangle r = by_columns ? (struct rectangle){0, p->rows, first, length}
                                              : (struct rectangle){first, length, 0, p->columns};
        CPU(product_part)(p, &r, by);
    }
}

void CPU(product_alone)(const struct product *p, enum kernels_products by)
{
    CPU(product_part)(p, &(struct rectangle){0, p->rows, 0, p->columns}, by);
}
