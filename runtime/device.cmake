# Devices, comms and the world: what a rank is made of before there is a model.
add_library(muster_device STATIC
  agree.c
  last_step.c
  comm.c
  comm_call.c
  comm_delay.c
  comm_host.c
  comm_host_channel.c
  comm_host_link.c
  comm_host_move.c
  comm_host_wait.c
  comm_meet.c
  comm_reduce.c
  comm_tcp.c
  comm_tcp_link.c
  comm_tcp_move.c
  comm_tcp_wire.c
  comm_text.c
  device_cpu.c
  device_cpu_arena.c
  device_cpu_stream.c
  futex.c
  host_memory.c
  host_threads.c
  world.c
  world_environment.c)
target_link_libraries(muster_device PRIVATE muster_flags PUBLIC muster_kernels muster_tcpstore muster_base Threads::Threads)
# The sums over ranks are loops that have to vectorise; nothing in them depends on the order of additions.
set_source_files_properties(comm_reduce.c PROPERTIES COMPILE_OPTIONS "-O3;-ffp-contract=off")
set_source_files_properties(world.c PROPERTIES COMPILE_DEFINITIONS MUSTER_VERSION="${PROJECT_VERSION}")
