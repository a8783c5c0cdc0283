# The roster alone, for whoever wants no carrier (the simulator links no ZeroMQ).
add_library(muster_roster STATIC
  failure.c
  roster.c
  roster_join.c
  roster_world.c)
target_link_libraries(muster_roster PRIVATE muster_flags PUBLIC muster_base)

add_library(muster_rendezvous STATIC
  carrier_process.c
  membership.c)
target_link_libraries(muster_rendezvous PRIVATE muster_flags PUBLIC muster_roster)
