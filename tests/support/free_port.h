/* free_port.h - ports for tests that must know a number before somebody listens there. */
#ifndef MUSTER_TESTS_FREE_PORT_H
#define MUSTER_TESTS_FREE_PORT_H

#include <stdint.h>

/* A port that is nobody else's while this process lives: outside the range from which the kernel gives ports
 * by itself, and claimed against other tests. 0, with the reason on stderr, where there is none. */
uint16_t test_free_port(void);

#endif
