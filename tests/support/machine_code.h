/* machine_code.h - machine code that a library made in this process. */
#ifndef MUSTER_TESTS_SUPPORT_MACHINE_CODE_H
#define MUSTER_TESTS_SUPPORT_MACHINE_CODE_H

#include <stdio.h>
#include <string.h>

/* Pieces of executable memory that belong to no file; -1: /proc cannot be read. */
static inline int machine_code_pieces(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512], rights[8], path[8];
    int pieces = 0;
    while (maps && fgets(line, sizeof line, maps))
        pieces += sscanf(line, "%*s %7s %*s %*s %*s %7s", rights, path) == 1 && strchr(rights, 'x');
    if (!maps)
        return -1;
    (void)fclose(maps); /* it was only read */
    return pieces;
}

#endif
