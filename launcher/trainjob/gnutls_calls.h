/* gnutls_calls.h - GnuTLS's functions, loaded where the job's progress goes to an https URL.
 *
 * Its types are pointers here, and its numbers those of gnutls.h, which have not changed since 3.4: no header
 * of it is needed to build. Debian's and Ubuntu's images have the library, since apt is linked with it. */
#ifndef MUSTER_LAUNCHER_TRAINJOB_GNUTLS_CALLS_H
#define MUSTER_LAUNCHER_TRAINJOB_GNUTLS_CALLS_H

#include <stddef.h>

#include "proto/include/muster_error.h"

enum {
    TLS_CLIENT = 2,           /* GNUTLS_CLIENT */
    TLS_CRD_CERTIFICATE = 1,  /* GNUTLS_CRD_CERTIFICATE */
    TLS_CRT_X509 = 1,         /* GNUTLS_CRT_X509 */
    TLS_NAME_DNS = 1,         /* GNUTLS_NAME_DNS */
    TLS_X509_FMT_PEM = 1,     /* GNUTLS_X509_FMT_PEM */
    TLS_E_AGAIN = -28,        /* GNUTLS_E_AGAIN */
    TLS_E_INTERRUPTED = -52,  /* GNUTLS_E_INTERRUPTED */
    TLS_E_CERTIFICATE = -348, /* GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR */
};

/* gnutls_datum_t */
struct tls_datum {
    char *data;
    unsigned size;
};

/* member and name behind "gnutls_", result, parameters */
#define GNUTLS_CALLS(X)                                                                                      \
    X(init, int, (void **session, unsigned flags))                                                           \
    X(deinit, void, (void *session))                                                                         \
    X(certificate_allocate_credentials, int, (void **credentials))                                           \
    X(certificate_free_credentials, void, (void *credentials))                                               \
    X(certificate_set_x509_trust_file, int, (void *credentials, const char *file, int format))               \
    X(certificate_set_x509_system_trust, int, (void *credentials))                                           \
    X(credentials_set, int, (void *session, int kind, void *credentials))                                    \
    X(set_default_priority, int, (void *session))                                                            \
    X(server_name_set, int, (void *session, int kind, const void *name, size_t length))                      \
    X(session_set_verify_cert, void, (void *session, const char *host, unsigned flags))                      \
    X(session_get_verify_cert_status, unsigned, (void *session))                                             \
    X(certificate_verification_status_print, int,                                                            \
      (unsigned status, int kind, struct tls_datum *out, unsigned flags))                                    \
    X(transport_set_int2, void, (void *session, int receive, int send))                                      \
    X(handshake, int, (void *session))                                                                       \
    X(record_send, long, (void *session, const void *data, size_t length))                                   \
    X(record_recv, long, (void *session, void *data, size_t length))                                         \
    X(error_is_fatal, int, (int code))                                                                       \
    X(strerror, const char *, (int code))

struct gnutls_calls {
#define GNUTLS_MEMBER(name, result, parameters) result(*name) parameters;
    GNUTLS_CALLS(GNUTLS_MEMBER)
#undef GNUTLS_MEMBER
};

/* Fills the zeroed struct; the library stays until the process ends. -1 (MUSTER_E_NOT_FOUND) names the
 * package that has it. */
int gnutls_calls_load(struct gnutls_calls *tls, struct muster_error *err);

#endif
