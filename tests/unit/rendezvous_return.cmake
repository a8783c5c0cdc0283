# A server that was started again.
muster_test(rendezvous_return_test SOURCES rendezvous_return_test.c LINK muster_roster)
