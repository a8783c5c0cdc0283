/* bundle_absent.c - what Debian's libzmq.a and libmicrohttpd.a refer to and a bundle leaves out: the
 * multicast transports pgm and norm, Kerberos (GSSAPI) and TLS.
 *
 * muster speaks tcp and inproc with CURVE, and HTTP without TLS, so that none of it is ever called, with a
 * few exceptions that every context or daemon runs through, which do nothing here. The rest ends the program
 * at once, since a stub of an authentication must never be taken for a success. Types are left out: only the
 * addresses matter to the linker. A library that needs another name does not link, and so is noticed. */
#include <stddef.h>

#define ABSENT_FUNCTIONS(X)                                                                                   \
    X(NormCreateInstance)                                                                                     \
    X(NormCreateSession)                                                                                      \
    X(NormDestroyInstance)                                                                                    \
    X(NormDestroySession)                                                                                     \
    X(NormGetDescriptor) X(NormGetNextEvent) X(NormGetRandomSessionId) X(NormIsUnicastAddress) X(             \
        NormNodeDelete) X(NormObjectGetType) X(NormObjectGetUserData) X(NormObjectSetUserData)                \
        X(NormSetCongestionControl) X(NormSetDefaultSyncPolicy) X(NormSetDefaultUnicastNack) X(               \
            NormSetLoopback) X(NormSetMulticastInterface) X(NormSetRxPortReuse) X(NormSetTTL)                 \
            X(NormStartReceiver) X(NormStartSender) X(NormStopInstance) X(NormStopReceiver) X(                \
                NormStopSender) X(NormStreamFlush) X(NormStreamOpen) X(NormStreamRead)                        \
                X(NormStreamSeekMsgStart) X(NormStreamWrite) X(gss_accept_sec_context) X(                     \
                    gss_acquire_cred) X(gss_delete_sec_context) X(gss_display_name) X(gss_import_name)        \
                    X(gss_init_sec_context) X(gss_release_buffer) X(gss_release_cred) X(gss_release_name) X(  \
                        gss_unwrap) X(gss_wrap) X(pgm_bind3) X(pgm_close) X(pgm_connect) X(pgm_error_free)    \
                        X(pgm_free) X(pgm_freeaddrinfo) X(pgm_getaddrinfo) X(pgm_getsockopt) X(               \
                            pgm_gsi_create_from_data) X(pgm_recvmsgv) X(pgm_send) X(pgm_setsockopt)           \
                            X(pgm_socket) X(gnutls_alpn_set_protocols) X(gnutls_bye) X(                       \
                                gnutls_certificate_allocate_credentials)                                      \
                                X(gnutls_certificate_free_credentials) X(                                     \
                                    gnutls_certificate_server_set_request)                                    \
                                    X(gnutls_certificate_set_dh_params) X(                                    \
                                        gnutls_certificate_set_retrieve_function2)                            \
                                        X(gnutls_certificate_set_retrieve_function3) X(                       \
                                            gnutls_certificate_set_x509_key_mem)                              \
                                            X(gnutls_certificate_set_x509_key_mem2) X(                        \
                                                gnutls_certificate_set_x509_trust_mem) X(gnutls_cipher_get)   \
                                                X(gnutls_credentials_set) X(gnutls_deinit) X(                 \
                                                    gnutls_dh_params_deinit) X(gnutls_dh_params_import_pkcs3) \
                                                    X(gnutls_dh_params_init) X(gnutls_handshake) X(           \
                                                        gnutls_init) X(gnutls_priority_deinit)                \
                                                        X(gnutls_priority_init) X(gnutls_priority_set) X(     \
                                                            gnutls_protocol_get_version)                      \
                                                            X(gnutls_psk_allocate_server_credentials) X(      \
                                                                gnutls_psk_free_server_credentials)           \
                                                                X(gnutls_psk_set_server_credentials_function) \
                                                                    X(gnutls_record_check_pending) X(         \
                                                                        gnutls_record_get_direction)          \
                                                                        X(gnutls_record_recv) X(              \
                                                                            gnutls_record_send)               \
                                                                            X(gnutls_session_get_ptr) X(      \
                                                                                gnutls_session_set_ptr)       \
                                                                                X(gnutls_strerror) X(         \
                                                                                    gnutls_transport_set_int2)

#define ABSENT_FUNCTION(name)                                                                                \
    void name(void);                                                                                         \
    void name(void)                                                                                          \
    {                                                                                                        \
        __builtin_trap();                                                                                    \
    }
ABSENT_FUNCTIONS(ABSENT_FUNCTION)

/* Handles that are compared with, and a function that TLS sessions would allocate by. */
#define ABSENT_DATA(X)                                                                                       \
    X(NORM_INSTANCE_INVALID)                                                                                 \
    X(NORM_NODE_ANY)                                                                                         \
    X(NORM_OBJECT_INVALID)                                                                                   \
    X(NORM_SESSION_INVALID) X(GSS_C_NT_HOSTBASED_SERVICE) X(GSS_C_NT_USER_NAME) X(gnutls_malloc)

#define ABSENT_DATUM(name)                                                                                   \
    extern void *const name;                                                                                 \
    void *const name = NULL;
ABSENT_DATA(ABSENT_DATUM)

/* Run through by every ZeroMQ context: true, done. */
int pgm_init(void *error);
int pgm_init(void *error)
{
    (void)error;
    return 1;
}

int pgm_shutdown(void);
int pgm_shutdown(void)
{
    return 1;
}

/* Run through when libmicrohttpd's own initialiser runs: 0, done. */
int gnutls_global_init(void);
int gnutls_global_init(void)
{
    return 0;
}

void gnutls_global_deinit(void);
void gnutls_global_deinit(void) {}
