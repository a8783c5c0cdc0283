/* clock.h - monotonic time with a type of its own, so that a wall-clock second or a bare integer cannot slip
 * in.
 *
 * Pure code takes `struct instant now` as an argument. Shells read it from a `struct clock`, which tests
 * replace by a fake. Durations are int64_t with the unit in the name (_ns). clock_gettime is called in
 * clock.c and nowhere else but in substitutes for libc (proto/glibc). */
#ifndef MUSTER_PROTO_BASE_CLOCK_H
#define MUSTER_PROTO_BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NS_PER_US INT64_C(1000)
#define NS_PER_MS INT64_C(1000000)
#define NS_PER_S  INT64_C(1000000000)

struct instant {
    int64_t ns; /* CLOCK_MONOTONIC; only differences mean anything */
};

/* A time that is never reached. */
#define INSTANT_NEVER ((struct instant){INT64_MAX})

struct clock {
    struct instant (*now)(void *context);
    void *context;
};

struct instant clock_now(const struct clock *clock); /* clock NULL: the system's */
/* Nanoseconds since 1970, for display and log lines only; never compared with another host's. */
int64_t clock_wall_ns(void);

static inline struct instant instant_add(struct instant from, int64_t ns)
{
    if (from.ns == INT64_MAX || (ns > 0 && from.ns > INT64_MAX - ns))
        return INSTANT_NEVER;
    return (struct instant){from.ns + ns};
}
/* later - earlier */
static inline int64_t instant_diff_ns(struct instant later, struct instant earlier)
{
    return later.ns - earlier.ns;
}
static inline bool instant_reached(struct instant now, struct instant deadline)
{
    return now.ns >= deadline.ns;
}
static inline struct instant instant_min(struct instant a, struct instant b)
{
    return a.ns < b.ns ? a : b;
}
/* For clock_nanosleep, timerfd_settime and futex with absolute monotonic time. */
static inline struct timespec instant_timespec(struct instant at)
{
    return (struct timespec){.tv_sec = (time_t)(at.ns / NS_PER_S), .tv_nsec = (long)(at.ns % NS_PER_S)};
}
/* Sleeps until the instant on the system's clock; resumes after signals. */
void clock_sleep_until(struct instant at);

#ifdef __cplusplus
}
#endif
#endif
