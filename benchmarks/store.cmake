# The limit that tcpstore.py and store.py are held against.
add_executable(store_bare store_bare.c)
target_link_libraries(store_bare PRIVATE muster_flags)
# The clients in C of store.py, and the store over ZeroMQ that it measures beside ours over TCP.
add_executable(store_clients store_clients.c store_clients_tcp.c store_clients_zmq.c)
target_link_libraries(store_clients PRIVATE muster_flags muster_tcpstore PkgConfig::ZMQ)
add_executable(store_zmq_serve store_zmq_serve.c)
target_link_libraries(store_zmq_serve PRIVATE muster_flags muster_tcpstore PkgConfig::ZMQ)
