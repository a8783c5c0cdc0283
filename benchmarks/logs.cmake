# The loud worker of logs.py.
add_executable(shout shout.c)
target_link_libraries(shout PRIVATE muster_flags)
