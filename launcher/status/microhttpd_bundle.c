/* http_calls_bundle.c - http_calls.h in a bundle: the library is inside the program. */
#include "launcher/http_calls.h"

struct http_calls http_calls;

int http_calls_load(struct muster_error *err)
{
    (void)err;
#define HTTP_CALL_TAKE(name) http_calls.name = MHD_##name;
    HTTP_CALLS(HTTP_CALL_TAKE)
#undef HTTP_CALL_TAKE
    return 0;
}
