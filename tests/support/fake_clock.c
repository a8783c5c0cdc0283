/* fake_clock.c - see fake_clock.h. */
#include "tests/support/fake_clock.h"

static struct instant fake_now(void *context)
{
    return ((struct fake_clock *)context)->now;
}

void fake_clock_init(struct fake_clock *fake, int64_t start_ns)
{
    *fake = (struct fake_clock){.clock = {.now = fake_now, .context = fake}, .now = {start_ns}};
}

void fake_clock_advance(struct fake_clock *fake, int64_t ns)
{
    fake->now = instant_add(fake->now, ns);
}
