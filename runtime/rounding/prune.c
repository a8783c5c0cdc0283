/* prune.c - see coded.h. */
#include "runtime/rounding/coded.h"

#include <math.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"

static void swap(float *a, float *b)
{
    const float kept = *a;
    *a = *b;
    *b = kept;
}

/* The k-th smallest, k from 0; reorders the values. Hoare's selection with the median of three as pivot.
 */
static float select_smallest(float *v, int64_t count, int64_t k)
{
    int64_t left = 0, right = count - 1;
    while (left < right) {
        const int64_t middle = left + (right - left) / 2;
        if (v[middle] < v[left])
            swap(&v[middle], &v[left]);
        if (v[right] < v[left])
            swap(&v[right], &v[left]);
        if (v[right] < v[middle])
            swap(&v[right], &v[middle]);
        const float pivot = v[middle];
        int64_t i = left, j = right;
        while (i <= j) {
            while (v[i] < pivot)
                i++;
            while (v[j] > pivot)
                j--;
            if (i <= j)
                swap(&v[i++], &v[j--]);
        }
        if (k <= j)
            right = j;
        else if (k >= i)
            left = i;
        else
            break;
    }
    return v[k];
}

int64_t prune_smallest(float *values, int64_t count, double share, struct muster_error *err)
{
    if (!(share >= 0 && share <= 1))
        return error_set(err, MUSTER_E_INVALID, "a share of %g is to be pruned; it must be from 0 to 1",
                         share);
    const int64_t pruned = llrint(share * (double)count);
    if (!pruned)
        return 0;
    scope_free float *sizes = mem_calloc((size_t)count, sizeof *sizes);
    if (!sizes)
        return error_set(err, MUSTER_E_NOMEM, "no memory to order %lld values", (long long)count);
    for (int64_t i = 0; i < count; i++) {
        sizes[i] = fabsf(values[i]);
        if (isnan(values[i]))
            return error_set(err, MUSTER_E_INVALID, "element %lld is not a number", (long long)i);
    }
    const float limit = select_smallest(sizes, count, pruned - 1);
    int64_t below = 0;
    for (int64_t i = 0; i < count; i++)
        below += fabsf(values[i]) < limit;
    for (int64_t i = 0, equal = pruned - below; i < count; i++) {
        const float size = fabsf(values[i]);
        if (size < limit || (size == limit && equal-- > 0))
            values[i] = 0;
    }
    return pruned;
}
