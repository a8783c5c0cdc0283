/* needed.c - instruction sets that the flags of this build let the compiler use everywhere: data alone, since
 * code that is compiled with these flags may not run before the processor was looked at. */
#include "proto/processor/processor.h"

#include "proto/processor/features.h"

/* "1" where the macro is defined as 1, else its name. */
#define NEEDED_TEXT2(macro)                 #macro
#define NEEDED_TEXT(macro)                  NEEDED_TEXT2(macro)
#define NEEDED_ROW(name, macro, where, bit) sizeof NEEDED_TEXT(macro) == sizeof "1",

const bool processor_needed[] = {PROCESSOR_FEATURES(NEEDED_ROW) false};
