/* microhttpd.h - libmicrohttpd's functions, loaded when a metrics port is configured.
 *
 * Loading the library with what it needs costs as much as the rest of the program's start, so nothing is
 * linked with it and every call goes through this table. */
#ifndef MUSTER_LAUNCHER_STATUS_MICROHTTPD_H
#define MUSTER_LAUNCHER_STATUS_MICROHTTPD_H

#include <microhttpd.h>

#include "proto/include/muster_error.h"

#define MICROHTTPD_CALLS(X)                                                                                  \
    X(start_daemon)                                                                                          \
    X(stop_daemon)                                                                                           \
    X(get_daemon_info)                                                                                       \
    X(get_timeout)                                                                                           \
    X(get_connection_info)                                                                                   \
    X(lookup_connection_value)                                                                               \
    X(run)                                                                                                   \
    X(create_response_from_buffer_with_free_callback)                                                        \
    X(add_response_header)                                                                                   \
    X(queue_response)                                                                                        \
    X(destroy_response)

/* http_calls.stop_daemon is MHD_stop_daemon, with the type that microhttpd.h gives it. */
struct microhttpd {
#define HTTP_CALL_MEMBER(name) __typeof__(MHD_##name) *name;
    MICROHTTPD_CALLS(HTTP_CALL_MEMBER)
#undef HTTP_CALL_MEMBER
};

/* Filled by microhttpd_load, and constant from then on. */
extern struct microhttpd http_calls;

/* Loads the library unless it is there already; it stays until the process ends. From one thread. -1
 * (MUSTER_E_NOT_FOUND) names the package that has it. */
int microhttpd_load(struct muster_error *err);

#endif
