/* network.h - the 127.x.0.0/16 of a run's pods: concurrent runs on one machine have different ones, so
 * that each can use the same port. */
#ifndef MUSTER_LAUNCHER_LOCAL_JOB_NETWORK_H
#define MUSTER_LAUNCHER_LOCAL_JOB_NETWORK_H

enum { NETWORK_FIRST = 77, NETWORK_LAST = 126 };

/* Takes the first x without another run, for as long as *fd is open, which closes on exec. NETWORK_FIRST
 * with *fd -1 if none is free or none can be taken. */
int network_claim(int *fd);

#endif
