/* refuse_six.c - preloaded into a program whose kernel is to refuse IPv6, as REFUSE_SIX says:
 *
 *   socket   there is none: no socket of that family (ipv6.disable=1)
 *   denied   the same, forbidden (seccomp)
 *   option   no socket for both families
 *   bind     no address of it can be bound */
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static bool refuses(const char *what)
{
    const char *given = getenv("REFUSE_SIX");
    return given && !strcmp(given, what);
}

__attribute__((visibility("default"))) int socket(int family, int type, int protocol)
{
    static int (*real)(int, int, int);
    if (!real)
        real = (__typeof__(real))dlsym(RTLD_NEXT, "socket");
    if (family == AF_INET6 && (refuses("socket") || refuses("denied"))) {
        errno = refuses("socket") ? EAFNOSUPPORT : EPERM;
        return -1;
    }
    return real(family, type, protocol);
}

__attribute__((visibility("default"))) int setsockopt(int fd, int level, int name, const void *value,
                                                      socklen_t size)
{
    static int (*real)(int, int, int, const void *, socklen_t);
    if (!real)
        real = (__typeof__(real))dlsym(RTLD_NEXT, "setsockopt");
    if (level == IPPROTO_IPV6 && name == IPV6_V6ONLY && refuses("option")) {
        errno = ENOPROTOOPT;
        return -1;
    }
    return real(fd, level, name, value, size);
}

__attribute__((visibility("default"))) int bind(int fd, const struct sockaddr *address, socklen_t size)
{
    static int (*real)(int, const struct sockaddr *, socklen_t);
    if (!real)
        real = (__typeof__(real))dlsym(RTLD_NEXT, "bind");
    if (address->sa_family == AF_INET6 && refuses("bind")) {
        errno = EADDRNOTAVAIL;
        return -1;
    }
    return real(fd, address, size);
}
