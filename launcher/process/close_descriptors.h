/* close_descriptors.h - closes a range of descriptors. Async-signal-safe: for processes that were forked from
 * one with threads. */
#ifndef MUSTER_LAUNCHER_PROCESS_CLOSE_DESCRIPTORS_H
#define MUSTER_LAUNCHER_PROCESS_CLOSE_DESCRIPTORS_H

/* first to last, both included; UINT_MAX: no end. Nothing if last < first. */
void close_descriptors(unsigned first, unsigned last);

#endif
