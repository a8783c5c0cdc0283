/* address.h - numeric addresses of hosts: IPv4, IPv6, and IPv6 with a zone ("fe80::1%eth0"). No name is
 * resolved.
 *
 * An address has several spellings ("::1" and "0:0:0:0:0:0:0:1", "10.0.0.1" and "::ffff:10.0.0.1"): compare
 * addresses with address_same, never as text. */
#ifndef MUSTER_PROTO_BASE_ADDRESS_H
#define MUSTER_PROTO_BASE_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { ADDRESS_TEXT = 64 }; /* bytes that hold every address with its zone, and the end */

struct address {
    union {
        struct sockaddr any;
        struct sockaddr_in four;
        struct sockaddr_in6 six;
    } of;
    socklen_t length; /* length of the member in use */
};

/* Whether text is an address; *out gets it with this port: of IPv4 also where it is written in IPv6. A zone
 * is an interface's name or number; a name that no interface of this machine has leaves scope id 0, with
 * which nothing can be reached (address_zone_is_known). */
bool address_parse(const char *text, uint16_t port, struct address *out);
bool address_is_numeric(const char *text);
/* Whether it is an IPv6 address that is no spelling of an IPv4 address. */
bool address_is_six(const char *text);
/* False only where text has a zone that is no interface of this machine. */
bool address_zone_is_known(const char *text);
/* 127.0.0.0/8, ::1, and the former written in IPv6. */
bool address_is_loopback(const char *text);
/* 0.0.0.0 and :: */
bool address_is_any(const char *text);
/* Whether both are the same address, however they are spelt. A zone counts where both have one. */
bool address_same(const char *a, const char *b);
/* An order of addresses that is the same on every machine: below 0, 0 or above 0. Texts that are none come
 * first. */
int address_compare(const char *a, const char *b);
/* The shortest spelling; an IPv4 address in an IPv6 socket is written as IPv4. Returns out: "" for another
 * family. */
const char *address_text(const struct sockaddr *address, char out[ADDRESS_TEXT]);
uint16_t address_port(const struct sockaddr *address);

#ifdef __cplusplus
}
#endif
#endif
