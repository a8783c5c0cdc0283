/* stored_dump - what values become as they are held and as they are opened, for qlora_test.py.
 *
 *     stored_dump KIND <VALUES >UNITS_AND_OPENED
 *
 * KIND: nf4 or int8. VALUES: floats, of whole units. The bytes of the units, then as many floats. */
#include <stdio.h>
#include <string.h>

#include "proto/base/guard.h"
#include "runtime/rounding/stored.h"

int main(int argc, char *argv[])
{
    enum { MOST = 1 << 20 };
    const enum stored stored =
        argc > 1 && !strcmp(argv[1], stored_name(STORED_NF4)) ? STORED_NF4 : STORED_INT8;
    scope_free float *values = mem_calloc(MOST, sizeof *values);
    scope_free uint8_t *units = mem_calloc(2 * MOST, 1);
    if (!values || !units)
        return 1;
    const size_t count = fread(values, sizeof *values, MOST, stdin), unit = (size_t)stored_unit(stored);
    if (!count || count % unit)
        return 2;
    const size_t bytes = (size_t)stored_bytes(stored, (int64_t)count);
    stored_round(stored, values, (int64_t)count, units);
    stored_open(stored, units, (int64_t)count, values, DTYPE_F32);
    return fwrite(units, 1, bytes, stdout) < bytes || fwrite(values, sizeof *values, count, stdout) < count ||
                   fflush(stdout)
               ? 1
               : 0;
}
