/* visible_devices.h - pure: CUDA_VISIBLE_DEVICES, read as CUDA reads it. */
#ifndef MUSTER_PROTO_VISIBLE_DEVICES_H
#define MUSTER_PROTO_VISIBLE_DEVICES_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A GPU, or a MIG instance of one, in the driver's order: by PCI address, instances after their GPU. */
struct visible_device {
    int gpu;          /* the GPU's number */
    bool mig;         /* an instance of that GPU, not the whole */
    bool divided;     /* a GPU that has instances, which are used in its place */
    const char *uuid; /* "GPU-..." or "MIG-..."; NULL: not known, so that it may be any of its kind */
};

/* The entries of a list: how many there are between its commas, and the index-th without blanks around it
 * (may be empty; NULL after the last). */
int visible_devices_count(const char *list);
const char *visible_devices_entry(const char *list, int index, size_t *length);

/* The devices that a list names, in its order, as indices into devices; returns how many. chosen has room for
 * count. list NULL: all, a divided GPU by its instances. Entries are numbers of GPUs, "GPU-" UUIDs (a
 * beginning that is unique is enough) and "MIG-" UUIDs; the first that names nothing ends the list, and a
 * device that comes twice makes it empty. */
int visible_devices_choose(const struct visible_device *devices, int count, const char *list, int *chosen);

#ifdef __cplusplus
}
#endif
#endif
