# Devices, comms and the world: what a rank is made of before there is a model.
add_library(muster_device STATIC
  device_cpu.c
  device_cpu_arena.c
  device_cpu_stream.c
  futex.c
  host_memory.c)
target_link_libraries(muster_device PRIVATE muster_flags PUBLIC muster_kernels muster_tcpstore muster_base Threads::Threads)
