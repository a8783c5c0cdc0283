/* order.c - see order.h. */
#include "trainer/data/order.h"

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

void order_shares(const double *weights, int count, int *shares)
{
    double sum = 0;
    int left = ORDER_BLOCK;
    for (int i = 0; i < count; i++)
        sum += weights[i];
    for (int i = 0; i < count; i++) {
        const int share = (int)(weights[i] / sum * ORDER_BLOCK);
        shares[i] = share < 1 ? 1 : share;
        left -= shares[i];
    }
    /* Gives each remaining sample to the source that lacks most; takes surplus samples from the source with
     * most.
     */
    for (; left != 0; left += left > 0 ? -1 : 1) {
        int best = 0;
        double most = 0;
        for (int i = 0; i < count; i++) {
            const double missing = weights[i] / sum * ORDER_BLOCK - shares[i], gain = left > 0 ? missing
                                                                                      : shares[i] > 1
                                                                                          ? -missing
                                                                                          : -ORDER_BLOCK;
            if (i == 0 || gain > most) {
                most = gain;
                best = i;
            }
        }
        shares[best] += left > 0 ? 1 : -1;
    }
}

struct order_turn order_turn(uint64_t seed, const int *shares, int count, uint64_t g)
{
    const uint64_t block = g / ORDER_BLOCK;
    uint64_t place = order_permute(~seed, block, g % ORDER_BLOCK, ORDER_BLOCK);
    int source = 0;
    for (; source < count - 1 && place >= (uint64_t)shares[source]; source++)
        place -= (uint64_t)shares[source];
    return (struct order_turn){source, block * (uint64_t)shares[source] + place};
}
