/* backoff.c - see backoff.h. */
#include "rendezvous/roster/backoff.h"

/* One round of splitmix64: neighbouring streaks get unrelated numbers. */
static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

int64_t backoff_wait_ns(int64_t base_ns, int64_t cap_ns, int64_t streak, uint64_t jitter)
{
    enum { STEPS = 1024 };
    int64_t wait = base_ns < cap_ns ? base_ns : cap_ns;
    if (wait <= 0 || streak < 1)
        return 0;
    for (int64_t i = 1; i < streak && wait < cap_ns; i++)
        wait = wait > cap_ns / 2 ? cap_ns : wait * 2;
    int64_t part = (int64_t)(mix(jitter + (uint64_t)streak) % (STEPS + 1)); /* 0 to STEPS: -25 % to +25 % */
    return wait - wait / 4 + wait / 2 / STEPS * part;
}
