/* network.h - which 127.x.0.0/16 the pods of a run have: runs that go on at once on one machine have
 * different ones, so that the same port serves each of them. */
#ifndef MUSTER_LAUNCHER_LOCAL_JOB_NETWORK_H
#define MUSTER_LAUNCHER_LOCAL_JOB_NETWORK_H

enum { NETWORK_FIRST = 77, NETWORK_LAST = 126 };

/* Takes the first x that no other run has, for as long as *fd is open, which closes on exec. NETWORK_FIRST
 * with *fd -1 where none is free or none can be taken. */
int network_claim(int *fd);

#endif
