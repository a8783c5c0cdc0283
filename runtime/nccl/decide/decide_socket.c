/* decide_socket.c - rules about interfaces: NCCL and gloo cannot know which one reaches the other nodes.
 *
 * NCCL's own choice (net_socket.cc of 2.18 to 2.30): names beginning with ib; else every interface that is
 * up and has an address but lo* and docker*; else docker*; else lo. So bridges, tunnels and VPNs of a host
 * carry data unless NCCL_SOCKET_IFNAME is set. */
#include <stdio.h>
#include <string.h>

#include "proto/base/address.h"
#include "proto/base/text.h"
#include "runtime/nccl/decide/decide_internal.h"

static bool begins(const char *text, const char *prefix)
{
    return !strncmp(text, prefix, strlen(prefix));
}

/* The names that NCCL would use by default, for a reason's text. */
static int automatic(const struct decider *d, char *names, size_t size)
{
    int count = 0;
    *names = 0;
    for (int i = 0; i < d->machine->interface_count; i++) {
        const struct description_interface *interface = &d->machine->interfaces[i];
        if (!decide_is_candidate(interface))
            continue;
        if (!text_append(names, size, "%s%s", count++ ? ", " : "", interface->name))
            break;
    }
    return count;
}

enum { WHY = 2 * DESCRIPTION_NAME + 32 };

/* Reason for this interface. */
static void explain_interface(const struct decider *d, const struct description_interface *route, char *out,
                              size_t size)
{
    if (route->to_master && *d->machine->master_address)
        (void)snprintf(out, size, "%s is on the route to %s", route->name, d->machine->master_address);
    else
        (void)snprintf(out, size, "%s has the default route", route->name);
}

static bool has_ib_interface(const struct decider *d)
{
    for (int i = 0; i < d->machine->interface_count; i++)
        if (begins(d->machine->interfaces[i].name, "ib") && decide_is_candidate(&d->machine->interfaces[i]))
            return true;
    return false;
}

static void socket_interface(struct decider *d)
{
    char names[96], value[DESCRIPTION_NAME + 1], why[WHY];
    int count = automatic(d, names, sizeof names);
    const struct description_interface *route =
        decide_many_nodes(d) ? decide_route(d) : decide_default_route(d);
    if (!decide_has_gpus(d) || decide_has_profile(d) || has_ib_interface(d) || !route ||
        !decide_is_candidate(route) || count < 2)
        return; /* nothing to choose, or the default is right */
    (void)snprintf(value, sizeof value, "=%s", route->name);
    explain_interface(d, route, why, sizeof why);
    if (decide_many_nodes(d))
        decide_set(d, "NCCL_SOCKET_IFNAME", value, "%s; by default NCCL would use %s", why, names);
    else
        decide_set(d, "NCCL_SOCKET_IFNAME", value,
                   "the default route; one node needs one interface, by default NCCL would use %s", names);
}

/* Gloo uses the address of the host's own name, which /etc/hosts often maps to a loopback address. If the
 * master is reached through the loopback, all nodes are on this machine and nothing has to be chosen. */
static void gloo_interface(struct decider *d)
{
    const struct description_interface *route = decide_route(d);
    char why[WHY];
    if (!decide_many_nodes(d) || !route || route->loopback)
        return;
    explain_interface(d, route, why, sizeof why);
    decide_set(d, "GLOO_SOCKET_IFNAME", route->name,
               "%s; by default gloo would use the address of this host's name", why);
    decide_set(d, "TP_SOCKET_IFNAME", route->name, "%s", why);
}

static void socket_family(struct decider *d)
{
    const struct description_interface *route = decide_route(d);
    bool four = false, six = false, to_six = address_is_six(d->machine->master_address);
    if (!decide_has_gpus(d) || !decide_many_nodes(d) || !route || !*d->machine->master_address)
        return;
    for (int i = 0; i < route->address_count; i++) {
        four |= route->addresses[i].family == 4;
        six |= route->addresses[i].family == 6 && route->addresses[i].scope == DESCRIPTION_GLOBAL;
    }
    if (four && six)
        decide_set(d, "NCCL_SOCKET_FAMILY", to_six ? "AF_INET6" : "AF_INET",
                   "%s has IPv4 and IPv6, the master is %s: all nodes must use the same family", route->name,
                   d->machine->master_address);
}

/* --- the user's settings --- */

/* One item of an IFNAME list against a name, as NCCL matches. */
static bool item_matches(const char *item, size_t length, bool exact, const char *name)
{
    return exact ? strlen(name) == length && !strncmp(name, item, length) : !strncmp(name, item, length);
}

/* nccl: its grammar with ^ and =; gloo uses whole names. */
static bool list_matches(const char *value, const char *name, bool nccl)
{
    bool exclude = nccl && *value == '^', exact = !nccl, found = false;
    value += exclude;
    if (nccl && *value == '=') {
        exact = true;
        value++;
    }
    while (*value && !found) {
        size_t length = strcspn(value, ",");
        found = length > 0 && item_matches(value, length, exact, name);
        value += length + (value[length] == ',');
    }
    return exclude ? !found : found;
}

static void check_interface_of(struct decider *d, const char *variable, bool nccl)
{
    const char *value = decide_user(d, variable);
    const struct description_interface *route = decide_route(d);
    int matches = 0;
    if (!value || d->machine->interface_count == 0)
        return;
    if (nccl && strlen(value) <= 1) {
        decide_warn(d, variable, value,
                    "NCCL ignores a value of one letter; give the interface's whole name");
        return;
    }
    for (int i = 0; i < d->machine->interface_count; i++)
        matches += list_matches(value, d->machine->interfaces[i].name, nccl);
    if (matches == 0) {
        decide_warn(d, variable, value,
                    "no interface of this machine matches (found: %s), so NCCL's start fails",
                    route ? route->name : d->machine->interfaces[0].name);
        return;
    }
    if (!decide_many_nodes(d) || !route || route->loopback || list_matches(value, route->name, nccl))
        return;
    char why[WHY];
    explain_interface(d, route, why, sizeof why);
    decide_warn(d, variable, value, "%s but is excluded, so nodes may not reach each other", why);
}

/* "eth1" also matches eth10: NCCL compares prefixes unless there is an = in front. */
static void check_prefix(struct decider *d)
{
    const char *value = decide_user(d, "NCCL_SOCKET_IFNAME");
    const struct description_interface *meant = NULL, *also = NULL;
    if (!value || strlen(value) < 2 || *value == '^' || *value == '=' || strchr(value, ','))
        return;
    for (int i = 0; i < d->machine->interface_count; i++) {
        const struct description_interface *interface = &d->machine->interfaces[i];
        if (!strcmp(interface->name, value))
            meant = interface;
        else if (begins(interface->name, value))
            also = interface;
    }
    if (meant && also)
        decide_warn(d, "NCCL_SOCKET_IFNAME", value,
                    "it is a prefix and matches %s too; '=%s' matches one interface", also->name, value);
}

static void socket_interface_of_user(struct decider *d)
{
    check_interface_of(d, "NCCL_SOCKET_IFNAME", true);
    check_interface_of(d, "GLOO_SOCKET_IFNAME", false);
    check_prefix(d);
}

const struct decide_rule decide_rules_socket[] = {
    {"socket-interface", socket_interface},
    {"gloo-interface", gloo_interface},
    {"socket-family", socket_family},
    {"interface-of-user", socket_interface_of_user},
    {0},
};
