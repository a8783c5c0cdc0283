/* exit_code.c - see exit_code.h. */
#include "proto/exit_code.h"

#include "proto/include/muster_error.h"

int exit_code_of_error(int code)
{
    switch (code) {
    case MUSTER_OK:
        return EXIT_CODE_OK;
    case MUSTER_E_INVALID:
    case MUSTER_E_NOT_FOUND:
    case MUSTER_E_UNSUPPORTED:
    case MUSTER_E_LIMIT:
    case MUSTER_E_REFUSED:
        return EXIT_CODE_USAGE;
    case MUSTER_E_NOMEM:
    case MUSTER_E_IO:
    case MUSTER_E_FULL:
    case MUSTER_E_TIMEOUT:
    case MUSTER_E_PEER:
    case MUSTER_E_BUSY:
        return EXIT_CODE_ENVIRONMENT;
    default:
        return EXIT_CODE_FAILURE;
    }
}
