/* order.c - see order.h. */
#include "runtime/data/order.h"

/* splitmix64's finaliser: mixes all bits of its input. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

uint64_t order_permute(uint64_t seed, uint64_t epoch, uint64_t index, uint64_t n)
{
    if (n < 2)
        return 0;
    int half = 1; /* bits of one half; 2*half bits cover n, and at most 4n values are visited */
    while (half < 32 && (UINT64_C(1) << (2 * half)) < n)
        half++;
    uint64_t mask = (UINT64_C(1) << half) - 1, key = mix(seed + UINT64_C(0x9E3779B97F4A7C15) * (epoch + 1));
    do {
        uint64_t left = index >> half, right = index & mask;
        for (uint64_t round = 0; round < 4; round++) {
            uint64_t swapped = left ^ (mix(key + round * UINT64_C(0xD1B54A32D192ED03) + right) & mask);
            left = right;
            right = swapped;
        }
        index = (left << half) | right;
    } while (index >= n);
    return index;
}
