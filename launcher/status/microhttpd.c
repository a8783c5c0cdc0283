/* http_calls.c - see http_calls.h. */
#include "launcher/http_calls.h"

#include "proto/base/library.h"

struct http_calls http_calls;

#define HTTP_CALL_ROW(name) {"MHD_" #name, offsetof(struct http_calls, name), false},
static const struct library_function functions[] = {HTTP_CALLS(HTTP_CALL_ROW)};
#undef HTTP_CALL_ROW

int http_calls_load(struct muster_error *err)
{
    static const struct library library = {
        .file = "libmicrohttpd.so.12", /* microhttpd.h of 0.9.x and 1.x */
        .needs = "a metrics port needs libmicrohttpd (package libmicrohttpd12)",
        .functions = functions,
        .count = sizeof functions / sizeof *functions,
    };
    return library_load(&library, &http_calls, NULL, err);
}
