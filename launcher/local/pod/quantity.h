/* quantity.h - Kubernetes quantities: 2, 500m, 1.5, 4Gi, 1e3 (pure). */
#ifndef MUSTER_LAUNCHER_LOCAL_POD_QUANTITY_H
#define MUSTER_LAUNCHER_LOCAL_POD_QUANTITY_H

#include <stdbool.h>
#include <stdint.h>

/* Exact to a thousandth; wide enough for exabytes in thousandths. */
typedef __int128 quantity_thousandths;

/* False if text is not a quantity or too large. Finer than a thousandth is rounded away from zero, as
 * Kubernetes does. */
bool quantity_parse(const char *text, quantity_thousandths *out);
/* value / divisor, rounded up: a container's view of its limits. divisor > 0. */
int64_t quantity_in(quantity_thousandths value, quantity_thousandths divisor);

#endif
