/* exports.c - libmuster.so consists of archives; a library needs a source. */
#include "runtime/include/muster.h"

_Static_assert(sizeof(struct muster_error) == sizeof(int) + MUSTER_ERROR_TEXT,
               "as bindings of other languages have it");
