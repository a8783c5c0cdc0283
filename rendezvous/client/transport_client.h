/* transport_client.h - a client's transport, for the moving one. */
#ifndef MUSTER_RENDEZVOUS_CLIENT_TRANSPORT_CLIENT_H
#define MUSTER_RENDEZVOUS_CLIENT_TRANSPORT_CLIENT_H

#include "rendezvous/client/client.h"
#include "rendezvous/transport/transport.h"

/* The protocol of a membership that transport_client_open has opened; it is owned by that. */
struct client *transport_client_protocol(const struct membership *m);

#endif
