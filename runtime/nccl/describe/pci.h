/* pci.h - pure: positions of devices in the PCI tree, from their paths in /sys, and the relation of two
 * devices: NCCL's distance words, and the bridges between them. */
#ifndef MUSTER_RUNTIME_NCCL_DESCRIBE_PCI_H
#define MUSTER_RUNTIME_NCCL_DESCRIBE_PCI_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/nccl/describe/description.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PCI_DEPTH = 24, PCI_NAME = 24 };

/* The path from a host bridge to a device. */
struct pci_path {
    int depth;                      /* number of hops; 0: unknown */
    char root[PCI_NAME];            /* the host bridge: "pci0000:00" */
    char hops[PCI_DEPTH][PCI_NAME]; /* bridges from the root on, the device last: "0000:00:01.0", ... */
};

/* Reads the target of a link such as /sys/bus/pci/devices/0000:3b:00.0. A target that is not a PCI device,
 * or is nested too deep, has depth 0. */
void pci_path_parse(const char *target, struct pci_path *path);

/* numa_a and numa_b are -1 where unknown, which on a machine of one node (numa_nodes <= 1) does not matter.
 */
enum description_distance pci_distance(const struct pci_path *a, const struct pci_path *b, int numa_a,
                                       int numa_b, int numa_nodes);

/* Calls each with the bridges that a packet from a to b passes below the bridge that they share; none if
 * the path leads through a host bridge. */
void pci_between(const struct pci_path *a, const struct pci_path *b,
                 void (*each)(const char *bridge, void *context), void *context);

/* PCI Express generation of a link's transfer rate in GT/s; 0 if it is none. */
int pci_generation(double rate);

/* Whether a bridge's configuration space shows that access control redirects requests between its devices
 * up to the root (ACS P2P request or completion redirect). UNKNOWN if the space is cut before the extended
 * capabilities, which only root can read, or is invalid; NO if there is no such capability. */
enum description_flag pci_acs_redirects(const uint8_t *configuration, size_t length);

#ifdef __cplusplus
}
#endif
#endif
