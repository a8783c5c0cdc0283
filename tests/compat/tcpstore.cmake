foreach(program tcpstore_serve tcpstore_call)
  add_executable(${program} ${program}.c)
  target_link_libraries(${program} PRIVATE muster_flags muster_tcpstore)
  set_target_properties(${program} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
endforeach()
muster_script_test(compat_tcpstore COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/tcpstore_torch_test.py LABELS compat)
# PyTorch's own cases for a store; with other versions of it in the full run.
muster_script_test(compat_store_cases COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/store_cases_test.py LABELS compat)
muster_script_test(compat_store_versions COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/store_versions_test.py MACHINE_NETWORK LABELS full
  TIMEOUT 3600)
muster_script_test(compat_process_groups COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/process_groups_test.py LABELS compat)
muster_script_test(compat_process_groups_of_64 COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/process_groups_test.py 64 LABELS full
  TIMEOUT 1800)
