/* gnutls_calls.c - see gnutls_calls.h. */
#include "launcher/trainjob/gnutls_calls.h"

#include "proto/base/library.h"

#define GNUTLS_ROW(name, result, parameters)                                                                 \
    {"gnutls_" #name, offsetof(struct gnutls_calls, name), false, NULL},
static const struct library_function functions[] = {GNUTLS_CALLS(GNUTLS_ROW)};
#undef GNUTLS_ROW

int gnutls_calls_load(struct gnutls_calls *tls, struct muster_error *err)
{
    static const struct library library = {
        .file = "libgnutls.so.30",
        .needs = "an https URL needs GnuTLS (package libgnutls30)",
        .functions = functions,
        .count = sizeof functions / sizeof *functions,
    };
    return library_load(&library, tls, NULL, err);
}
