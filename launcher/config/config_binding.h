/* config_binding.h - --numa-binding on this machine: reads its topology and works out the CPUs of every
 * worker. */
#ifndef MUSTER_LAUNCHER_CONFIG_CONFIG_BINDING_H
#define MUSTER_LAUNCHER_CONFIG_CONFIG_BINDING_H

#include "launcher/config/config.h"

/* After config_resolve, with machine_read_gpus asked. Fills config->cpus; does nothing where no binding was
 * asked for. Local rank n goes by visible GPU n; without GPUs the workers take the NUMA nodes in turn. sys:
 * "/sys". A failure is final: a worker that runs on the wrong CPUs is a loss that nobody sees. */
int config_binding_resolve(struct run_config *config, const struct machine *machine, const char *sys,
                           struct muster_error *err);

#endif
