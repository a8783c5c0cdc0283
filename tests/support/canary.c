/* canary.c - see canary.h. */
#include "tests/support/canary.h"

/* About 0.3 ms on a processor of 2024: shorter than a scheduler's slice, so that the fastest probe of even a
 * short test on a full machine is not interrupted, and small compared with the tests: with 1.6 ms
 * canaries took 49 of the 1,354 s of a processor that ./dev test had. It counts as the 1.6 ms that factors
 * were tried with. */
enum { ROUNDS = 200000, COUNTS_AS = 5 };

void canary_note(struct canary *canary, int64_t late_ns, int64_t work_ns)
{
    int64_t *slot = &canary->window_ns[canary->probes++ % CANARY_WINDOW];
    int64_t took_ns = late_ns + work_ns;
    canary->total_ns += took_ns;
    canary->window_total_ns += took_ns - *slot;
    *slot = took_ns;
    if (late_ns > canary->largest_ns)
        canary->largest_ns = late_ns;
    if (!canary->fastest_ns || work_ns < canary->fastest_ns)
        canary->fastest_ns = work_ns;
    if (canary->probes >= CANARY_WINDOW && canary->window_total_ns > canary->slowest_window_ns)
        canary->slowest_window_ns = canary->window_total_ns;
}

static double in_units(const struct canary *canary, int64_t total_ns, int64_t probes)
{
    if (!probes || !canary->fastest_ns)
        return 1;
    return (double)total_ns / (double)probes / (double)canary->fastest_ns;
}

double canary_factor(const struct canary *canary)
{
    return in_units(canary, canary->total_ns, canary->probes);
}

double canary_slowest(const struct canary *canary)
{
    if (canary->probes < CANARY_WINDOW)
        return canary_factor(canary);
    return in_units(canary, canary->slowest_window_ns, CANARY_WINDOW);
}

static void work(void)
{
    uint64_t z = 1;
    for (int i = 0; i < ROUNDS; i++) {
        z ^= z << 13;
        z ^= z >> 7;
        z ^= z << 17;
    }
    __asm__ volatile("" : : "r"(z)); /* somebody could want it: the rounds are made */
}

void canary_probe(struct canary *canary, struct instant deadline)
{
    struct instant woken = clock_now(NULL);
    work();
    canary_note(canary, instant_diff_ns(woken, deadline),
                COUNTS_AS * instant_diff_ns(clock_now(NULL), woken));
}
