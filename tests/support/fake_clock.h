/* fake_clock.h - a clock that moves only when the test says so. */
#ifndef MUSTER_TESTS_FAKE_CLOCK_H
#define MUSTER_TESTS_FAKE_CLOCK_H

#include "proto/base/clock.h"

struct fake_clock {
    struct clock clock; /* give &fake.clock to the code under test */
    struct instant now;
};

void fake_clock_init(struct fake_clock *fake, int64_t start_ns);
void fake_clock_advance(struct fake_clock *fake, int64_t ns);

#endif
