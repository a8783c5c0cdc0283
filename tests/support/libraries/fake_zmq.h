/* fake_zmq.h - a libzmq whose network is the test: the messages on the ROUTER or DEALER, their order, the
 * monitor's events, and the peers that cannot be sent to any more. One fake at a time, on any thread.
 *
 * Between fake_zmq_hold and fake_zmq_release nothing is received or sent: messages put down during this time
 * are found together. */
#ifndef MUSTER_TESTS_FAKE_ZMQ_H
#define MUSTER_TESTS_FAKE_ZMQ_H

#include <stddef.h>

/* Puts the fake's functions into zmq_calls, with nothing on any socket and all peers reachable. */
void fake_zmq_install(void);
void fake_zmq_hold(void);
void fake_zmq_release(void);
/* While held. A message from a peer, by its routing id (of a DEALER's: NULL), on the connection fd. */
void fake_zmq_arrives(const char *peer, int fd, const void *data, size_t size);
/* While held. An event of the monitor, ZMQ_EVENT_..., on the connection fd. */
void fake_zmq_tells(int event, int fd);
/* While held. From now on sending to the peer fails. */
void fake_zmq_cuts(const char *peer);
/* How many messages were sent to all peers. */
int fake_zmq_sent(void);

#endif
