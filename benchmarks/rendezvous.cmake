# Helpers of rendezvous.py: a world of thousands of agents in two processes, and a worker that tells when it was started.
add_executable(crowd crowd.c crowd_server.c)
target_link_libraries(crowd PRIVATE muster_flags muster_rendezvous PkgConfig::ZMQ)
add_executable(mark_start mark_start.c)
target_link_libraries(mark_start PRIVATE muster_flags muster_base)
