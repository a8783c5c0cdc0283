# Helpers of launch.py: the bare loop that is the limit, and what measures one run of anything.
add_executable(spawn_loop spawn_loop.c)
target_link_libraries(spawn_loop PRIVATE muster_flags)
add_executable(run_once run_once.c)
target_link_libraries(run_once PRIVATE muster_flags muster_base)
