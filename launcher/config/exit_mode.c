/* exit_mode.c - see exit_mode.h. */
#include "launcher/config/exit_mode.h"

#include "proto/exit_code.h"

int exit_mode_code(enum exit_mode mode, int code, bool ran)
{
    if (mode == EXIT_MODE_FIRST || code == EXIT_CODE_OK)
        return code;
    if (ran || code == EXIT_CODE_NODE)
        return EXIT_CODE_FAILURE;
    return code;
}
