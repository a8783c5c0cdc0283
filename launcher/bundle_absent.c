/* bundle_absent.c - what Debian's libzmq.a and libmicrohttpd.a refer to and a bundle leaves out: the
 * multicast transports pgm and norm, Kerberos (GSSAPI) and TLS.
 *
 * muster speaks tcp and inproc with CURVE, and HTTP without TLS, so that none of it is ever called, with a
 * few exceptions that every context or daemon runs through, which do nothing here. The rest ends the program
 * at once, since a stub of an authentication must never be taken for a success. Types are left out: only the
 * addresses matter to the linker. A library that needs another name does not link, and so is noticed. */
#include <stddef.h>

#define ABSENT(name)                                                                                         \
    void name(void);                                                                                         \
    void name(void)                                                                                          \
    {                                                                                                        \
        __builtin_trap();                                                                                    \
    }

/* clang-format off */
/* norm */
ABSENT(NormCreateInstance)
ABSENT(NormCreateSession)
ABSENT(NormDestroyInstance)
ABSENT(NormDestroySession)
ABSENT(NormGetDescriptor)
ABSENT(NormGetNextEvent)
ABSENT(NormGetRandomSessionId)
ABSENT(NormIsUnicastAddress)
ABSENT(NormNodeDelete)
ABSENT(NormObjectGetType)
ABSENT(NormObjectGetUserData)
ABSENT(NormObjectSetUserData)
ABSENT(NormSetCongestionControl)
ABSENT(NormSetDefaultSyncPolicy)
ABSENT(NormSetDefaultUnicastNack)
ABSENT(NormSetLoopback)
ABSENT(NormSetMulticastInterface)
ABSENT(NormSetRxPortReuse)
ABSENT(NormSetTTL)
ABSENT(NormStartReceiver)
ABSENT(NormStartSender)
ABSENT(NormStopInstance)
ABSENT(NormStopReceiver)
ABSENT(NormStopSender)
ABSENT(NormStreamFlush)
ABSENT(NormStreamOpen)
ABSENT(NormStreamRead)
ABSENT(NormStreamSeekMsgStart)
ABSENT(NormStreamWrite)
/* GSSAPI */
ABSENT(gss_accept_sec_context)
ABSENT(gss_acquire_cred)
ABSENT(gss_delete_sec_context)
ABSENT(gss_display_name)
ABSENT(gss_import_name)
ABSENT(gss_init_sec_context)
ABSENT(gss_release_buffer)
ABSENT(gss_release_cred)
ABSENT(gss_release_name)
ABSENT(gss_unwrap)
ABSENT(gss_wrap)
/* pgm */
ABSENT(pgm_bind3)
ABSENT(pgm_close)
ABSENT(pgm_connect)
ABSENT(pgm_error_free)
ABSENT(pgm_free)
ABSENT(pgm_freeaddrinfo)
ABSENT(pgm_getaddrinfo)
ABSENT(pgm_getsockopt)
ABSENT(pgm_gsi_create_from_data)
ABSENT(pgm_recvmsgv)
ABSENT(pgm_send)
ABSENT(pgm_setsockopt)
ABSENT(pgm_socket)
/* TLS */
ABSENT(gnutls_alpn_set_protocols)
ABSENT(gnutls_bye)
ABSENT(gnutls_certificate_allocate_credentials)
ABSENT(gnutls_certificate_free_credentials)
ABSENT(gnutls_certificate_server_set_request)
ABSENT(gnutls_certificate_set_dh_params)
ABSENT(gnutls_certificate_set_retrieve_function2)
ABSENT(gnutls_certificate_set_retrieve_function3)
ABSENT(gnutls_certificate_set_x509_key_mem)
ABSENT(gnutls_certificate_set_x509_key_mem2)
ABSENT(gnutls_certificate_set_x509_trust_mem)
ABSENT(gnutls_cipher_get)
ABSENT(gnutls_credentials_set)
ABSENT(gnutls_deinit)
ABSENT(gnutls_dh_params_deinit)
ABSENT(gnutls_dh_params_import_pkcs3)
ABSENT(gnutls_dh_params_init)
ABSENT(gnutls_handshake)
ABSENT(gnutls_init)
ABSENT(gnutls_priority_deinit)
ABSENT(gnutls_priority_init)
ABSENT(gnutls_priority_set)
ABSENT(gnutls_protocol_get_version)
ABSENT(gnutls_psk_allocate_server_credentials)
ABSENT(gnutls_psk_free_server_credentials)
ABSENT(gnutls_psk_set_server_credentials_function)
ABSENT(gnutls_record_check_pending)
ABSENT(gnutls_record_get_direction)
ABSENT(gnutls_record_recv)
ABSENT(gnutls_record_send)
ABSENT(gnutls_session_get_ptr)
ABSENT(gnutls_session_set_ptr)
ABSENT(gnutls_strerror)
ABSENT(gnutls_transport_set_int2)
/* clang-format on */

/* Handles that are compared with, and a function that TLS sessions would allocate by. */
#define ABSENT_DATUM(name)                                                                                   \
    extern void *const name;                                                                                 \
    void *const name = NULL;

/* clang-format off */
ABSENT_DATUM(NORM_INSTANCE_INVALID)
ABSENT_DATUM(NORM_NODE_ANY)
ABSENT_DATUM(NORM_OBJECT_INVALID)
ABSENT_DATUM(NORM_SESSION_INVALID)
ABSENT_DATUM(GSS_C_NT_HOSTBASED_SERVICE)
ABSENT_DATUM(GSS_C_NT_USER_NAME)
ABSENT_DATUM(gnutls_malloc)
/* clang-format on */

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
