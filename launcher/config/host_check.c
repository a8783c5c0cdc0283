/* host_check.c - see host_check.h. */
#include "launcher/config/host_check.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/address.h"

enum { NAME_LIMIT = 253, SHOWN = 100 };

static bool say(char why[HOST_CHECK_TEXT], const char *text)
{
    (void)snprintf(why, HOST_CHECK_TEXT, "%s", text);
    return true;
}

bool host_check_is_template(const char *text, char why[HOST_CHECK_TEXT])
{
    const char *dollar = strchr(text, '$');
    if (dollar && dollar[1] == '(') {
        (void)snprintf(
            why, HOST_CHECK_TEXT,
            "%.*s was not replaced: Kubernetes does so where the container's env has that variable, "
            "and a shell where it is a command",
            (int)(strcspn(dollar, ")") + 1 < SHOWN ? strcspn(dollar, ")") + 1 : SHOWN), dollar);
        return true;
    }
    if (dollar)
        return say(why,
                   "a shell replaces variables, and none has read this: run the command by sh -c, or write "
                   "$(NAME) in a pod's command");
    if (strpbrk(text, "{}"))
        return say(why, "a template was not rendered: the braces hold the place of a value");
    if (strpbrk(text, "<>"))
        return say(why, "the angle brackets hold the place of a value: put the host there");
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

bool host_check_is_impossible(const char *host, char why[HOST_CHECK_TEXT])
{
    static const char never[] = "\"'`!#%&()*+;=?@\\^|~";
    const char *odd = strpbrk(host, never);
    if (address_is_numeric(host))
        return false;
    if (!*host)
        return say(why, "it is empty");
    if (host_check_is_template(host, why))
        return true;
    if (*host == '[')
        return say(why, "brackets hold an IPv6 address, as in [fd00::2]");
    if (strpbrk(host, "[]"))
        return say(why, "it is a list of hosts: give one of them, as scontrol show hostnames prints them");
    if (strpbrk(host, ", \t\r\n"))
        return say(why, "it is a list of hosts, or has a blank: give one host");
    if (strstr(host, "://") || strchr(host, '/'))
        return say(why, "it is a URL or a path: give the host alone");
    if (strchr(host, ':'))
        return say(why,
                   "a colon is in IPv6 addresses alone, and this is none: the port has a flag of its own");
    if (odd) {
        (void)snprintf(why, HOST_CHECK_TEXT, "no host name has a %c", *odd);
        return true;
    }
    for (const char *at = host; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            return say(why, "it has a control character");
    if (strlen(host) > NAME_LIMIT)
        return say(why, "it is longer than 253 bytes");
    if (*host == '.' || strstr(host, ".."))
        return say(why, "a part between its dots is empty");
    return is_broken_number(host) && say(why, "it is not an IPv4 address: four numbers of 0 to 255");
}
