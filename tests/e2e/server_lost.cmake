# The serving agent of a static job is killed, frozen, cut off, and comes back.
muster_script_test(e2e_server_lost COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/server_lost_test.py)
# The server's name: late, wrong, slow, never, more than one address.
muster_script_test(e2e_names COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/names_test.py)
