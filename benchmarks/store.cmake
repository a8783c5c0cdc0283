# The limit that tcpstore.py and store.py are held against.
add_executable(store_bare store_bare.c)
target_link_libraries(store_bare PRIVATE muster_flags)
