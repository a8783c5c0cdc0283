# Streams, arenas, comms and the world.
muster_test(device_cpu_test SOURCES device_cpu_test.c LINK muster_device)
muster_test(comm_host_test SOURCES comm_host_test.c LINK muster_device muster_test_kv)
muster_test(comm_process_test SOURCES comm_process_test.c LINK muster_device)
muster_test(comm_delay_test SOURCES comm_delay_test.c LINK muster_device)
muster_test(world_test SOURCES world_test.c LINK muster_device)
muster_test(agree_test SOURCES agree_test.c LINK muster_device muster_test_kv)
muster_test(last_step_test SOURCES last_step_test.c LINK muster_device muster_test_kv)
muster_test(host_threads_test SOURCES host_threads_test.c LINK muster_device)
