muster_test(store_test SOURCES store_test.c LINK muster_tcpstore)
muster_test(tcpstore_test SOURCES tcpstore_test.c LINK muster_tcpstore)
muster_test(tcpstore_server_test SOURCES tcpstore_server_test.c LINK muster_tcpstore muster_test_kv)
