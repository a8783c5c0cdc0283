/* rng.h - counter-based random numbers: a value is a function of the place of its use, never of earlier
 * draws.
 *
 * Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011). The
 * key is the run's seed; the counter is (element, site): the global index of an element or sample and the
 * place of use. So any rank of any world, and a recomputed forward pass, get the same numbers. */
#ifndef MUSTER_RUNTIME_MODEL_RNG_H
#define MUSTER_RUNTIME_MODEL_RNG_H

#include <stdint.h>

/* The kind of use: keeps initialisation, sampling, factors of gradients and dropout (DROPOUT_DOMAIN) apart
 * under one seed. */
enum rng_domain { RNG_INIT, RNG_SAMPLE, RNG_FACTOR };

/* 64 random bits for (seed, domain, site, index). */
uint64_t rng_bits(uint64_t seed, enum rng_domain domain, uint32_t site, uint64_t index);
/* In [0,1), 53 bits. */
double rng_uniform(uint64_t seed, enum rng_domain domain, uint32_t site, uint64_t index);

/* Standard normal values number first..first+count-1 of a site (Box-Muller; value i depends on i alone). */
void rng_normal_fill(uint64_t seed, enum rng_domain domain, uint32_t site, uint64_t first, int64_t count,
                     double *out);

#endif
