muster_test(store_test SOURCES store_test.c LINK muster_tcpstore)
