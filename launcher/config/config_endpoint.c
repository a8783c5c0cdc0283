/* config_endpoint.c - checks of the settings that are addresses (pure): the endpoint, the address of node 0,
 * this node's own, and listening addresses; see config_internal.h. */
#include "launcher/config/config_internal.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "launcher/config/node_identity.h"
#include "launcher/host/machine.h"
#include "proto/base/address.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"

/* --- hosts that no look-up can ever find --- */

enum { NAME_LIMIT = 253, SHOWN = 100 };

static bool say_why(char why[CONFIG_HOST_TEXT], const char *text)
{
    (void)snprintf(why, CONFIG_HOST_TEXT, "%s", text);
    return true;
}

/* Whether text has something that was to be replaced by a value ("$(MASTER)", "<ip>", "{{ host }}"); why gets
 * what and by whom. */
static bool config_host_is_template(const char *text, char why[CONFIG_HOST_TEXT])
{
    const char *dollar = strchr(text, '$');
    if (dollar && dollar[1] == '(') {
        (void)snprintf(
            why, CONFIG_HOST_TEXT,
            "%.*s was not replaced: Kubernetes does so where the container's env has that variable, "
            "and a shell where it is a command",
            (int)(strcspn(dollar, ")") + 1 < SHOWN ? strcspn(dollar, ")") + 1 : SHOWN), dollar);
        return true;
    }
    if (dollar)
        return say_why(
            why, "a shell replaces variables, and none has read this: run the command by sh -c, or write "
                 "$(NAME) in a pod's command");
    if (strpbrk(text, "{}"))
        return say_why(why, "a template was not rendered: the braces hold the place of a value");
    if (strpbrk(text, "<>"))
        return say_why(why, "the angle brackets hold the place of a value: put the host there");
    return false;
}

/* "10.0.0.256": no last part of a name is a number. "10.1" is an address, in an old spelling. */
static bool is_broken_number(const char *host)
{
    const char *last = strrchr(host, '.');
    struct in_addr address;
    return last && last[1] && strspn(last + 1, "0123456789") == strlen(last + 1) &&
           !inet_aton(host, &address);
}

bool config_host_is_impossible(const char *host, char why[CONFIG_HOST_TEXT])
{
    static const char never[] = "\"'`!#%&()*+;=?@\\^|~";
    const char *odd = strpbrk(host, never);
    if (address_is_numeric(host))
        return false;
    if (!*host)
        return say_why(why, "it is empty");
    if (config_host_is_template(host, why))
        return true;
    if (*host == '[')
        return say_why(why, "brackets hold an IPv6 address, as in [fd00::2]");
    if (strpbrk(host, "[]"))
        return say_why(why,
                       "it is a list of hosts: give a single host, as scontrol show hostnames prints them");
    if (strpbrk(host, ", \t\r\n"))
        return say_why(why, "it is a list of hosts, or has a blank: give one host");
    if (strstr(host, "://") || strchr(host, '/'))
        return say_why(why, "it is a URL or a path: give the host alone");
    if (strchr(host, ':'))
        return say_why(
            why, "a colon is in IPv6 addresses alone, and this is none: the port has a flag of its own");
    if (odd) {
        (void)snprintf(why, CONFIG_HOST_TEXT, "no host name has a %c", *odd);
        return true;
    }
    for (const char *at = host; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            return say_why(why, "it has a control character");
    if (strlen(host) > NAME_LIMIT)
        return say_why(why, "it is longer than 253 bytes");
    if (*host == '.' || strstr(host, ".."))
        return say_why(why, "a part between its dots is empty");
    return is_broken_number(host) && say_why(why, "it is not an IPv4 address: four numbers of 0 to 255");
}

/* --- the settings --- */

enum { DEFAULT_PORT = 29500 };

const char *config_said_by(const struct run_config *config, const char *name, const char *flag)
{
    return config_source(config, name) == KNOB_FROM_ENVIRONMENT ? config_row(name)->env : flag;
}

bool config_is_loopback(const char *host)
{
    return !strcmp(host, "localhost") || address_is_loopback(host) ||
           (!strncmp(host, "127.", 4) && strspn(host, "0123456789.") == strlen(host)); /* 127.9 */
}

/* Blanks around it are nobody's; an IPv6 address may be written as in URLs. */
static void strip_brackets(char *text)
{
    text_trim(text);
    size_t length = strlen(text);
    if (length < 2 || text[0] != '[' || text[length - 1] != ']')
        return;
    memmove(text, text + 1, length - 2);
    text[length - 2] = 0;
}

/* An IPv4 address may be written in IPv6: not every program of the workers reads that. The row's text has
 * room. */
static void fold_address(char *text)
{
    struct address address;
    char shorter[ADDRESS_TEXT];
    if (!strchr(text, ':') || !address_parse(text, 0, &address) || address.of.any.sa_family != AF_INET)
        return;
    (void)address_text(&address.of.any, shorter);
    memcpy(text, shorter, strlen(shorter) + 1);
}

static int not_a_host(const char *where, const char *text, const char *why, struct muster_error *err)
{
    return error_set(err, MUSTER_E_INVALID, "%s: '%.200s' is not a host name or an address: %s", where, text,
                     why);
}

/* One host:port; the host is the caller's. where: the name of the setting, for messages. */
static char *split_endpoint(const struct run_config *config, const char *where, const char *text,
                            const char *port, int64_t *number, struct muster_error *err)
{
    const char *colon = strrchr(text, ':'), *bracket = strrchr(text, ']');
    const int64_t least = config_meets(config); /* a single node may take any port */
    char why[CONFIG_HOST_TEXT];
    if (config_host_is_template(text, why)) {
        not_a_host(where, text, why, err);
        return NULL;
    }
    if (colon && bracket > colon) /* "[::1]" */
        colon = NULL;
    const char *given = colon ? colon + 1 : port;
    const char *unfit = colon && strpbrk(text, "; \t") ? "the entries of a list are separated by commas"
                        : *text == '[' && !bracket     ? "its bracket is not closed: [fd00::2]:29400"
                        : bracket && bracket[1] && bracket[1] != ':'
                            ? "a colon and the port follow the bracket: [fd00::2]:29400"
                            : NULL;
    if (unfit) {
        not_a_host(where, text, unfit, err);
        return NULL;
    }
    if (*text != '[' && colon && strchr(text, ':') != colon && !strstr(text, "://")) {
        not_a_host(where, text, "an IPv6 address is written in brackets, as in [fd00::2]:29400", err);
        return NULL;
    }
    if (!given || colon == text || !text_int64(given, number) || *number < least || *number > 65535) {
        error_set(err, MUSTER_E_INVALID, "%s: '%s' is not host:port with a port of %lld to 65535", where,
                  text, (long long)least);
        return NULL;
    }
    char *host = mem_strndup(text, colon ? (size_t)(colon - text) : strlen(text));
    if (!host)
        error_set(err, MUSTER_E_NOMEM, "no memory");
    return host;
}

/* Names have no case. */
static int find_endpoint(const struct run_config *config, const char *host, int64_t port)
{
    for (int i = 0; i < config->endpoint_count; i++)
        if (config->endpoints[i].port == port && !strcasecmp(config->endpoints[i].host, host))
            return i;
    return -1;
}

static int add_endpoint(struct run_config *config, const char *where, char *text, const char *port,
                        struct muster_error *err)
{
    char why[CONFIG_HOST_TEXT];
    int64_t number;
    text_trim(text);
    if (!*text)
        return error_set(err, MUSTER_E_INVALID, "%s is empty: leave the comma out, or put host[:port] there",
                         where);
    scope_free char *host = split_endpoint(config, where, text, port, &number, err);
    if (!host)
        return -1;
    strip_brackets(host);
    fold_address(host);
    if (config_host_is_impossible(host, why))
        return not_a_host(where, host, why, err);
    const int same = find_endpoint(config, host, number);
    if (same >= 0)
        return error_set(err, MUSTER_E_INVALID, "%s: '%s' is entry %d already: each entry is another agent's",
                         where, text, same + 1);
    struct config_endpoint *entry = &config->endpoints[config->endpoint_count++];
    (void)snprintf(entry->host, sizeof entry->host, "%s", host);
    entry->port = (uint16_t)number;
    return 0;
}

static int take_endpoints(struct run_config *config, const char *setting, const char *port,
                          struct muster_error *err)
{
    char where[96], first[16];
    int count = 1, place = 0;
    for (const char *at = config->rdzv_endpoint; (at = strchr(at, ',')); at++)
        count++;
    if (count > CONFIG_ENDPOINTS)
        return error_set(
            err, MUSTER_E_INVALID,
            "%s: the list has %d entries, more than %d: leave %d out; any entry that lives leads to "
            "the job",
            setting, count, CONFIG_ENDPOINTS, count - CONFIG_ENDPOINTS);
    config->endpoint_count = 0;
    for (const char *at = config->rdzv_endpoint; place++ < count; at += strcspn(at, ",") + 1) {
        scope_free char *text = mem_strndup(at, strcspn(at, ","));
        if (!text)
            return error_set(err, MUSTER_E_NOMEM, "no memory");
        (void)snprintf(where, sizeof where, "%s: entry %d of %d", setting, place, count);
        if (add_endpoint(config, where, text, port, err) < 0)
            return -1;
        (void)snprintf(first, sizeof first, "%u", (unsigned)config->endpoints[0].port);
        port = first;
    }
    return 0;
}

/* The first host and port; the host is the caller's. */
static char *read_endpoint(struct run_config *config, const char *port, int64_t *number,
                           struct muster_error *err)
{
    text_trim(config->rdzv_endpoint);
    const char *where = CONFIG_SETTING(config, "rdzv-endpoint"), *text = config->rdzv_endpoint;
    if (!strchr(text, ','))
        return split_endpoint(config, where, text, port, number, err);
    if (take_endpoints(config, where, port, err) < 0)
        return NULL;
    *number = config->endpoints[0].port;
    char *host = mem_strdup(config->endpoints[0].host);
    if (!host)
        error_set(err, MUSTER_E_NOMEM, "no memory");
    return host;
}

int config_take_endpoint(struct run_config *config, const char *port, struct muster_error *err)
{
    const char *reason = config_said_by(config, "rdzv-endpoint", "--rdzv-endpoint");
    int64_t given = 0;
    scope_free char *host = read_endpoint(config, port, &given, err);
    char number[32];
    (void)snprintf(number, sizeof number, "%lld", (long long)given);
    return !host || config_set(config, "master-addr", host, reason, err) < 0 ||
                   config_set(config, "master-port", number, reason, err) < 0
               ? -1
               : 0;
}

int config_check_endpoint(struct run_config *config, const char *port, struct muster_error *err)
{
    int64_t given = 0;
    char why[CONFIG_HOST_TEXT];
    scope_free char *host = read_endpoint(config, port, &given, err);
    config->endpoint_count = 0;
    if (!host)
        return -1;
    strip_brackets(host);
    return config_host_is_impossible(host, why)
               ? not_a_host(CONFIG_SETTING(config, "rdzv-endpoint"), host, why, err)
               : 0;
}

void config_take_siblings(struct run_config *config, const struct machine *machine)
{
    char names[CONFIG_ENDPOINTS - 1][NODE_IDENTITY_HOST_SIZE];
    int own, count = 0;
    if (config->endpoint_count || config->standalone || !config_meets(config) || !config->master_port)
        return;
    if (strlen(config->master_addr) < CONFIG_ENDPOINT_HOST)
        count = node_identity_siblings(config->master_addr, machine->host_name, config->max_nodes, names,
                                       CONFIG_ENDPOINTS - 1, &own);
    for (int i = -1; count && i < count; i++) {
        const char *host = i < 0 ? config->master_addr : names[i];
        struct config_endpoint *entry = &config->endpoints[i + 1];
        if (strlen(host) >= sizeof entry->host)
            return; /* no list at all */
        memcpy(entry->host, host, strlen(host) + 1);
        entry->port = (uint16_t)config->master_port;
    }
    config->endpoints_derived = count > 0;
    config->endpoint_count = count ? count + 1 : 0;
    config->own_endpoint = count && own >= 0 ? own + 1 : -1;
}

static int check_zone(const struct run_config *config, const char *name, const char *text,
                      struct muster_error *err)
{
    return address_zone_is_known(text)
               ? 0
               : error_set(err, MUSTER_E_INVALID, "%s: '%.100s': this machine has no interface '%s'",
                           CONFIG_SETTING(config, name), text, strchr(text, '%') + 1);
}

static int resolve_master(struct run_config *config, struct muster_error *err)
{
    char *host = config->master_addr, why[CONFIG_HOST_TEXT];
    const char *where = CONFIG_SETTING(config, "master-addr");
    strip_brackets(host);
    fold_address(host);
    if (config_host_is_impossible(host, why))
        return not_a_host(where, host, why, err);
    if (config_meets(config) && config->master_port == 0)
        config->master_port = DEFAULT_PORT;
    return check_zone(config, "master-addr", host, err);
}

static int resolve_own(struct run_config *config, struct muster_error *err)
{
    char *host = config->local_addr, why[CONFIG_HOST_TEXT];
    if (!host || !*host)
        return 0;
    strip_brackets(host);
    fold_address(host);
    if (config_host_is_impossible(host, why))
        return not_a_host(CONFIG_SETTING(config, "local-addr"), host, why, err);
    return check_zone(config, "local-addr", host, err);
}

/* An address to listen on: only a number says which, before any name is known. */
static int resolve_numeric(struct run_config *config, const char *name, char *text, struct muster_error *err)
{
    if (!text || !*text)
        return 0;
    strip_brackets(text);
    if (!address_is_numeric(text))
        return error_set(err, MUSTER_E_INVALID, "%s: '%.100s' is not a numeric address, like 10.0.0.1 or ::1",
                         CONFIG_SETTING(config, name), text);
    return check_zone(config, name, text, err);
}

int config_resolve_addresses(struct run_config *config, struct muster_error *err)
{
    return resolve_master(config, err) < 0 || resolve_own(config, err) < 0 ||
                   resolve_numeric(config, "bind-addr", config->bind_addr, err) < 0 ||
                   resolve_numeric(config, "metrics-addr", config->metrics_addr, err) < 0
               ? -1
               : 0;
}
