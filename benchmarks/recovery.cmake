# The worker of recovery.py.
add_executable(recovery_worker recovery_worker.c)
target_link_libraries(recovery_worker PRIVATE muster_flags)
