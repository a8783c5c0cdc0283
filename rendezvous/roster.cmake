# The membership side. muster_roster is the pure part alone: no carrier, no ZeroMQ, no protobuf (the simulator links it).
add_library(muster_roster STATIC
  backoff.c
  client.c
  client_lease.c
  client_reports.c
  client_worlds.c
  connection.c
  event_queue.c
  failure.c
  failure_signs.c
  failure_text.c
  roster.c
  roster_elastic.c
  roster_report.c
  roster_return.c
  roster_job.c
  roster_join.c
  roster_seats.c
  roster_world.c)
target_link_libraries(muster_roster PRIVATE muster_flags PUBLIC muster_base)

# The messages. The generated code is not held to our warnings.
set(rendezvous_generated ${CMAKE_CURRENT_BINARY_DIR}/generated)
add_custom_command(
  OUTPUT ${rendezvous_generated}/rendezvous.pb-c.c ${rendezvous_generated}/rendezvous.pb-c.h
  COMMAND ${CMAKE_COMMAND} -E make_directory ${rendezvous_generated}
  COMMAND ${PROTOC_C} --proto_path=${CMAKE_SOURCE_DIR}/proto --c_out=${rendezvous_generated}
          ${CMAKE_SOURCE_DIR}/proto/rendezvous.proto
  DEPENDS ${CMAKE_SOURCE_DIR}/proto/rendezvous.proto
  COMMENT "Generating the rendezvous messages"
  VERBATIM)
add_library(muster_rendezvous_messages STATIC
  ${rendezvous_generated}/rendezvous.pb-c.c
  ${rendezvous_generated}/rendezvous.pb-c.h)
target_include_directories(muster_rendezvous_messages SYSTEM PUBLIC ${rendezvous_generated})
target_link_libraries(muster_rendezvous_messages PUBLIC ${PROTOBUF_C_LINK})

set(outside_calls zmq_calls.c sodium_calls.c)
if(MUSTER_BUNDLE)
  set(outside_calls zmq_calls_bundle.c sodium_calls_bundle.c)
endif()
add_library(muster_rendezvous STATIC
  carrier_client.c
  carrier_process.c
  carrier_server.c
  membership.c
  ${outside_calls}
  gate.c
  handshake.c
  refusals.c
  routes.c
  secret.c
  server_loop.c
  server_sessions.c
  wire_pack.c
  wire_unpack.c
  zap.c
  zmq_socket.c)
target_link_libraries(muster_rendezvous
  PRIVATE muster_flags muster_rendezvous_messages muster_tcpstore
  PUBLIC muster_roster Threads::Threads)
# zmq.h and sodium.h alone: the libraries are loaded where they are needed (zmq_calls.h, sodium_calls.h)
target_include_directories(muster_rendezvous SYSTEM PRIVATE ${ZMQ_INCLUDE_DIRS} ${SODIUM_INCLUDE_DIRS})
