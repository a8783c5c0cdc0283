/* config_binding.h - --numa-binding on this machine: reads its topology and computes the CPUs of every
 * worker. */
#ifndef MUSTER_LAUNCHER_CONFIG_CONFIG_BINDING_H
#define MUSTER_LAUNCHER_CONFIG_CONFIG_BINDING_H

#include "launcher/config/config.h"

/* After config_resolve and machine_read_gpus. Fills config->cpus; does nothing without --numa-binding.
 * Local rank n is bound near visible GPU n; without GPUs the workers use the NUMA nodes in turn. sys:
 * "/sys". A failure is an error: a worker on the wrong CPUs would be a silent loss. */
int config_binding_resolve(struct run_config *config, const struct machine *machine, const char *sys,
                           struct muster_error *err);

#endif
