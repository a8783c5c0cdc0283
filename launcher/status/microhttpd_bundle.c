/* microhttpd_bundle.c - microhttpd.h in a bundle: the library is inside the program. */
#include "launcher/status/microhttpd.h"

struct microhttpd http_calls;

int microhttpd_load(struct muster_error *err)
{
    (void)err;
#define HTTP_CALL_TAKE(name) http_calls.name = MHD_##name;
    MICROHTTPD_CALLS(HTTP_CALL_TAKE)
#undef HTTP_CALL_TAKE
    return 0;
}
