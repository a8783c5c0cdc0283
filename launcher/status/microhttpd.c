/* microhttpd.c - see microhttpd.h. */
#include "launcher/status/microhttpd.h"

#include "proto/base/library.h"

struct microhttpd http_calls;

#define HTTP_CALL_ROW(name) LIBRARY_ROW(struct microhttpd, name, MHD_##name),
static const struct library_function functions[] = {MICROHTTPD_CALLS(HTTP_CALL_ROW)};
#undef HTTP_CALL_ROW

int microhttpd_load(struct muster_error *err)
{
    static const struct library library = {
        .file = "libmicrohttpd.so.12", /* microhttpd.h of 0.9.x and 1.x */
        .needs = "a metrics port needs libmicrohttpd (package libmicrohttpd12)",
        .functions = functions,
        .count = sizeof functions / sizeof *functions,
    };
    return library_load(&library, &http_calls, NULL, err);
}
