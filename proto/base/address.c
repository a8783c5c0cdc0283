/* address.c - see address.h. */
#include "proto/base/address.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/text.h"

static uint32_t zone_number(const char *zone)
{
    int64_t number;
    unsigned index = if_nametoindex(zone);
    if (index)
        return index;
    return text_int64(zone, &number) && number > 0 && number <= UINT32_MAX ? (uint32_t)number : 0;
}

/* An IPv4 address that is written in IPv6 (::ffff:10.0.0.1) becomes an IPv4 address. */
static void fold_mapped(struct address *address)
{
    const struct sockaddr_in6 *six = &address->of.six;
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = six->sin6_port};
    if (six->sin6_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&six->sin6_addr))
        return;
    memcpy(&four.sin_addr, six->sin6_addr.s6_addr + 12, sizeof four.sin_addr);
    *address = (struct address){.of.four = four, .length = sizeof four};
}

bool address_parse(const char *text, uint16_t port, struct address *out)
{
    char head[INET6_ADDRSTRLEN];
    *out = (struct address){.of.four = {.sin_family = AF_INET, .sin_port = htons(port)},
                            .length = sizeof out->of.four};
    if (inet_pton(AF_INET, text, &out->of.four.sin_addr) == 1)
        return true;
    *out = (struct address){.of.six = {.sin6_family = AF_INET6, .sin6_port = htons(port)},
                            .length = sizeof out->of.six};
    const char *zone = strchr(text, '%');
    size_t length = zone ? (size_t)(zone - text) : strlen(text);
    if (length >= sizeof head || (zone && (!zone[1] || strlen(zone + 1) >= IF_NAMESIZE)))
        return false;
    memcpy(head, text, length);
    head[length] = 0;
    if (inet_pton(AF_INET6, head, &out->of.six.sin6_addr) != 1)
        return false;
    if (zone)
        out->of.six.sin6_scope_id = zone_number(zone + 1);
    fold_mapped(out);
    return true;
}

bool address_is_numeric(const char *text)
{
    struct address address;
    return address_parse(text, 0, &address);
}

bool address_is_six(const char *text)
{
    struct address address;
    return address_parse(text, 0, &address) && address.of.any.sa_family == AF_INET6;
}

bool address_zone_is_known(const char *text)
{
    struct address address;
    return !strchr(text, '%') || !address_parse(text, 0, &address) || address.of.any.sa_family == AF_INET ||
           address.of.six.sin6_scope_id;
}

bool address_is_loopback(const char *text)
{
    struct address address;
    if (!address_parse(text, 0, &address))
        return false;
    return address.of.any.sa_family == AF_INET
               ? ntohl(address.of.four.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET
               : IN6_IS_ADDR_LOOPBACK(&address.of.six.sin6_addr);
}

bool address_is_any(const char *text)
{
    struct address address;
    if (!address_parse(text, 0, &address))
        return false;
    return address.of.any.sa_family == AF_INET ? address.of.four.sin_addr.s_addr == htonl(INADDR_ANY)
                                               : IN6_IS_ADDR_UNSPECIFIED(&address.of.six.sin6_addr);
}

bool address_same(const char *a, const char *b)
{
    struct address one, other;
    if (!address_parse(a, 0, &one) || !address_parse(b, 0, &other) ||
        one.of.any.sa_family != other.of.any.sa_family)
        return false;
    if (one.of.any.sa_family == AF_INET)
        return one.of.four.sin_addr.s_addr == other.of.four.sin_addr.s_addr;
    const struct sockaddr_in6 *first = &one.of.six, *second = &other.of.six;
    return IN6_ARE_ADDR_EQUAL(&first->sin6_addr, &second->sin6_addr) &&
           (!first->sin6_scope_id || !second->sin6_scope_id || first->sin6_scope_id == second->sin6_scope_id);
}

int address_compare(const char *a, const char *b)
{
    struct address one = {0}, other = {0};
    bool is_one = address_parse(a, 0, &one), is_other = address_parse(b, 0, &other);
    if (!is_one || !is_other)
        return is_one - is_other;
    bool six = one.of.any.sa_family == AF_INET6, six_too = other.of.any.sa_family == AF_INET6;
    if (six != six_too)
        return six - six_too; /* IPv4 first */
    return six ? memcmp(&one.of.six.sin6_addr, &other.of.six.sin6_addr, sizeof one.of.six.sin6_addr)
               : memcmp(&one.of.four.sin_addr, &other.of.four.sin_addr, sizeof one.of.four.sin_addr);
}

const char *address_text(const struct sockaddr *address, char out[ADDRESS_TEXT])
{
    struct address whole = {.length = sizeof whole.of.four};
    char name[IF_NAMESIZE];
    out[0] = 0;
    if (address->sa_family != AF_INET && address->sa_family != AF_INET6)
        return out;
    if (address->sa_family == AF_INET6)
        whole.length = sizeof whole.of.six;
    memcpy(&whole.of, address, whole.length);
    fold_mapped(&whole);
    const struct sockaddr_in6 *six = &whole.of.six;
    bool is_six = six->sin6_family == AF_INET6;
    (void)inet_ntop(six->sin6_family,
                    is_six ? (const void *)&six->sin6_addr : (const void *)&whole.of.four.sin_addr, out,
                    ADDRESS_TEXT); /* there is room */
    if (is_six && six->sin6_scope_id && if_indextoname(six->sin6_scope_id, name))
        (void)text_append(out, ADDRESS_TEXT, "%%%s", name);
    else if (is_six && six->sin6_scope_id)
        (void)text_append(out, ADDRESS_TEXT, "%%%u", six->sin6_scope_id);
    return out;
}

uint16_t address_port(const struct sockaddr *address)
{
    return ntohs(address->sa_family == AF_INET6 ? ((const struct sockaddr_in6 *)address)->sin6_port
                                                : ((const struct sockaddr_in *)address)->sin_port);
}
