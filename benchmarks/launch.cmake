# Helpers of launch.py: the bare loop that is the limit, what measures one run of anything,
# and what a launch pays for NCCL's environment.
add_executable(spawn_loop spawn_loop.c)
target_link_libraries(spawn_loop PRIVATE muster_flags)
add_executable(run_once run_once.c)
target_link_libraries(run_once PRIVATE muster_flags muster_base)
add_executable(describe_once describe_once.c)
target_link_libraries(describe_once PRIVATE muster_flags muster_nccl)
