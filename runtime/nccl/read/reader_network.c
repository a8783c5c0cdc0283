/* reader_network.c - interfaces and their addresses, the default route, the route to the master.
 *
 * Kinds and flags come from rtnetlink (RTM_GETLINK), since /sys does not distinguish a veth from a tunnel;
 * the route to the master is the source address that the kernel gives to a UDP socket connected there, for
 * which no packet is sent. */
#include <net/if.h> /* before linux/, which then leaves its own out */

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/if_arp.h>
#include <linux/rtnetlink.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/base/address.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/nccl/describe/description_table.h"
#include "runtime/nccl/describe/pci.h"
#include "runtime/nccl/read/reader_internal.h"

static struct description_interface *find_interface(struct reader *r, const char *name)
{
    for (int i = 0; i < r->out->interface_count; i++)
        if (!strcmp(r->out->interfaces[i].name, name))
            return &r->out->interfaces[i];
    return NULL;
}

/* --- links --- */

/* The PCI card that it is a part of; virtio puts a device of its own between. */
static void read_address(struct reader *r, struct description_interface *interface)
{
    char path[READER_PATH], target[READER_PATH];
    struct pci_path way;
    if (!reader_path(r, path, "/sys/class/net/%s", interface->name))
        return;
    ssize_t length = readlink(path, target, sizeof target - 1);
    target[length > 0 ? length : 0] = 0;
    pci_path_parse(target, &way);
    if (way.depth > 0)
        READER_SET(interface->pci, way.hops[way.depth - 1]);
}

static void fill_from_sys(struct reader *r, struct description_interface *interface)
{
    const char *name = interface->name;
    interface->virtual_ = !reader_exists(r, "/sys/class/net/%s/device", name);
    interface->speed_mbit = reader_number(r, -1, "/sys/class/net/%s/speed", name);
    if (interface->speed_mbit <= 0 ||
        interface->speed_mbit > 4000000) /* -1 and 2^32-1: unknown to the driver */
        interface->speed_mbit = -1;
    interface->numa_node = (int)reader_number(r, -1, "/sys/class/net/%s/device/numa_node", name);
    (void)reader_line(r, interface->vendor, sizeof interface->vendor, "/sys/class/net/%s/device/vendor",
                      name);
    read_address(r, interface);
}

/* The kind inside IFLA_LINKINFO: "veth", "bridge", "ipip"... */
static void read_kind(const struct rtattr *info, char kind[DESCRIPTION_NAME])
{
    int length = (int)RTA_PAYLOAD(info);
    for (const struct rtattr *a = RTA_DATA(info); RTA_OK(a, length); a = RTA_NEXT(a, length))
        if (a->rta_type == IFLA_INFO_KIND)
            (void)snprintf(kind, DESCRIPTION_NAME, "%.*s", (int)RTA_PAYLOAD(a), (const char *)RTA_DATA(a));
}

static void add_link(struct reader *r, struct nlmsghdr *message)
{
    struct ifinfomsg *link = NLMSG_DATA(message);
    int length = (int)(message->nlmsg_len - NLMSG_LENGTH(sizeof *link));
    struct description_interface *interface =
        reader_grow(r, &r->out->interfaces, &r->out->interface_count, sizeof *interface);
    if (!interface)
        return;
    interface->up = link->ifi_flags & IFF_UP;
    interface->running = link->ifi_flags & IFF_RUNNING;
    interface->loopback = link->ifi_flags & IFF_LOOPBACK;
    for (struct rtattr *a = IFLA_RTA(link); RTA_OK(a, length); a = RTA_NEXT(a, length)) {
        if (a->rta_type == IFLA_IFNAME)
            READER_SET(interface->name, RTA_DATA(a));
        else if (a->rta_type == IFLA_MTU)
            memcpy(&interface->mtu, RTA_DATA(a), sizeof interface->mtu);
        else if (a->rta_type == IFLA_LINKINFO)
            read_kind(a, interface->kind);
    }
    if (link->ifi_type == ARPHRD_TUNNEL && !*interface->kind)
        READER_SET(interface->kind, "ipip");
    fill_from_sys(r, interface);
}

static bool ask_links(int fd)
{
    struct {
        struct nlmsghdr head;
        struct ifinfomsg body;
    } request = {{.nlmsg_len = NLMSG_LENGTH(sizeof(struct ifinfomsg)),
                  .nlmsg_type = RTM_GETLINK,
                  .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP,
                  .nlmsg_seq = 1},
                 {.ifi_family = AF_UNSPEC}};
    return send(fd, &request, request.head.nlmsg_len, 0) == (ssize_t)request.head.nlmsg_len;
}

static void read_links(struct reader *r)
{
    enum { ANSWER = 65536 }; /* the kernel fills at most 32 KiB of a dump at once */
    scope_close int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    scope_free char *answer = mem_calloc(1, ANSWER);
    if (fd < 0 || !answer || !ask_links(fd))
        return;
    for (;;) {
        ssize_t got = recv(fd, answer, ANSWER, 0);
        if (got <= 0)
            return;
        int left = (int)got;
        for (struct nlmsghdr *message = (struct nlmsghdr *)answer; NLMSG_OK(message, (unsigned)left);
             message = NLMSG_NEXT(message, left)) {
            if (message->nlmsg_type == NLMSG_DONE || message->nlmsg_type == NLMSG_ERROR)
                return;
            if (message->nlmsg_type == RTM_NEWLINK)
                add_link(r, message);
        }
    }
}

/* --- addresses --- */

static int prefix_of(const struct sockaddr *mask)
{
    const unsigned char *bytes;
    int size, bits = 0;
    if (!mask)
        return 0;
    if (mask->sa_family == AF_INET) {
        bytes = (const unsigned char *)&((const struct sockaddr_in *)(const void *)mask)->sin_addr;
        size = 4;
    } else {
        bytes = (const unsigned char *)&((const struct sockaddr_in6 *)(const void *)mask)->sin6_addr;
        size = 16;
    }
    for (int i = 0; i < size; i++)
        bits += __builtin_popcount(bytes[i]);
    return bits;
}

static enum description_scope scope_of(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        uint32_t bits = ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr);
        return bits >> 24 == 127      ? DESCRIPTION_LOOPBACK
               : bits >> 16 == 0xa9fe ? DESCRIPTION_LINK_LOCAL
                                      : DESCRIPTION_GLOBAL;
    }
    const struct in6_addr *six = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(six)    ? DESCRIPTION_LOOPBACK
           : IN6_IS_ADDR_LINKLOCAL(six) ? DESCRIPTION_LINK_LOCAL
                                        : DESCRIPTION_GLOBAL;
}

static bool numeric(const struct sockaddr *address, char *out, size_t size)
{
    socklen_t length =
        address->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    if (getnameinfo(address, length, out, (socklen_t)size, NULL, 0, NI_NUMERICHOST) != 0)
        return false;
    out[strcspn(out, "%")] =
        0; /* the scope of a link-local address is its interface, which is known already */
    return true;
}

static void add_address(struct reader *r, const struct ifaddrs *entry)
{
    struct description_interface *interface = find_interface(r, entry->ifa_name);
    char text[DESCRIPTION_NAME];
    if (!interface || !numeric(entry->ifa_addr, text, sizeof text))
        return;
    struct description_address *address =
        reader_grow(r, &interface->addresses, &interface->address_count, sizeof *address);
    if (!address)
        return;
    READER_SET(address->text, text);
    address->family = entry->ifa_addr->sa_family == AF_INET ? 4 : 6;
    address->prefix = prefix_of(entry->ifa_netmask);
    address->scope = scope_of(entry->ifa_addr);
}

void reader_interfaces(struct reader *r)
{
    struct ifaddrs *list = NULL;
    r->out->sys_mounted = reader_exists(r, "/sys/class/net");
    read_links(r);
    if (getifaddrs(&list) < 0)
        return;
    for (struct ifaddrs *entry = list; entry; entry = entry->ifa_next)
        if (entry->ifa_addr &&
            (entry->ifa_addr->sa_family == AF_INET || entry->ifa_addr->sa_family == AF_INET6))
            add_address(r, entry);
    freeifaddrs(list);
}

/* --- routes --- */

static void read_default_route(struct reader *r)
{
    char path[READER_PATH], line[512], name[64];
    unsigned long destination, mask;
    if (!reader_path(r, path, "/proc/net/route"))
        return;
    scope_fclose FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "%63s %lx %*s %*s %*s %*s %*s %lx", name, &destination, &mask) == 3 &&
            destination == 0 && mask == 0) {
            struct description_interface *interface = find_interface(r, name);
            if (interface)
                interface->default_route = true;
        }
}

static void read_default_route_6(struct reader *r)
{
    char path[READER_PATH], line[512], destination[33], name[64];
    unsigned prefix;
    if (!reader_path(r, path, "/proc/net/ipv6_route"))
        return;
    scope_fclose FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "%32s %x %*s %*s %*s %*s %*s %*s %*s %63s", destination, &prefix, name) == 3 &&
            prefix == 0 && strspn(destination, "0") == 32) {
            struct description_interface *interface = find_interface(r, name);
            if (interface && !interface->loopback)
                interface->default_route = true;
        }
}

/* The source address of a packet to `to`; "" if there is no route. */
static void source_towards(const char *to, char out[ADDRESS_TEXT])
{
    struct address there;
    *out = 0;
    if (!address_parse(to, 9, &there)) /* port 9 is discard; nothing is sent */
        return;
    scope_close int fd = socket(there.of.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_storage own;
    socklen_t length = sizeof own;
    if (fd >= 0 && connect(fd, &there.of.any, there.length) == 0 &&
        getsockname(fd, (struct sockaddr *)&own, &length) == 0)
        (void)address_text((struct sockaddr *)&own, out);
}

/* Loopback addresses are a whole network, of which the interface holds one. */
static bool holds(const struct description_interface *interface, const char *address)
{
    const char *zone = strchr(address, '%');
    if (zone && strcmp(zone + 1, interface->name) != 0)
        return false; /* a link-local address may be that of several */
    for (int i = 0; i < interface->address_count; i++)
        if (address_same(interface->addresses[i].text, address))
            return true;
    return address_is_loopback(address) && interface->loopback;
}

/* On the master itself the kernel's route to it is the loopback: there the address that the others connect
 * to counts. */
void reader_route(struct description *description, const char *master_address, bool here)
{
    char own[DESCRIPTION_NAME] = "";
    if (here)
        (void)snprintf(own, sizeof own, "%s", master_address);
    else if (*master_address)
        source_towards(master_address, own);
    const struct description_interface *found = NULL;
    for (int i = 0; i < description->interface_count && *own && !found; i++)
        if (holds(&description->interfaces[i], own))
            found = &description->interfaces[i];
    for (int i = 0; i < description->interface_count && found; i++)
        description->interfaces[i].to_master = &description->interfaces[i] == found;
}

void reader_routes(struct reader *r)
{
    read_default_route(r);
    read_default_route_6(r);
    if (r->options->dialled_address)
        reader_route(r->out, r->options->dialled_address, true);
    else
        reader_route(r->out, r->out->master_address, false);
}
