/* clock.c - the only file that reads a clock. */
#include "proto/base/clock.h"

#include <errno.h>
#include <stddef.h>

static struct instant system_now(void *context)
{
    (void)context;
    struct timespec at;
    (void)clock_gettime(CLOCK_MONOTONIC, &at); /* cannot fail for this clock and a valid pointer */
    return (struct instant){(int64_t)at.tv_sec * NS_PER_S + at.tv_nsec};
}

struct instant clock_now(const struct clock *clock)
{
    return clock ? clock->now(clock->context) : system_now(NULL);
}

int64_t clock_wall_ns(void)
{
    struct timespec at;
    (void)clock_gettime(CLOCK_REALTIME, &at);
    return (int64_t)at.tv_sec * NS_PER_S + at.tv_nsec;
}

void clock_sleep_until(struct instant at)
{
    struct timespec until = instant_timespec(at);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
}
