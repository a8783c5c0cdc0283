/* device.c - names of memory classes, apart from every device. */
#include "runtime/device/device.h"

const char *memory_class_name(enum memory_class memory)
{
    static const char *const names[MEMORY_CLASS_COUNT] = {
#define DEVICE_MEMORY_NAME(symbol, name) [symbol] = name,
        DEVICE_MEMORY_CLASSES(DEVICE_MEMORY_NAME)
#undef DEVICE_MEMORY_NAME
    };
    return (unsigned)memory < MEMORY_CLASS_COUNT ? names[memory] : "unknown";
}
