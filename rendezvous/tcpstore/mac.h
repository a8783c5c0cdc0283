/* mac.h - a short message authentication code: SipHash-2-4 with 128 bits (Aumasson and Bernstein, 2012).
 *
 * For the processes of one job, which libsodium need not be there for: their key is made for it, and the
 * job's secret itself never is one (rendezvous/security/secret.h). */
#ifndef MUSTER_RENDEZVOUS_TCPSTORE_MAC_H
#define MUSTER_RENDEZVOUS_TCPSTORE_MAC_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { MAC_KEY_SIZE = 16, MAC_SIZE = 16 };

void mac_make(const unsigned char key[MAC_KEY_SIZE], const void *data, size_t length,
              unsigned char out[MAC_SIZE]);
/* In a time that does not depend on the bytes. */
bool mac_equal(const unsigned char a[MAC_SIZE], const unsigned char b[MAC_SIZE]);

#ifdef __cplusplus
}
#endif
#endif
