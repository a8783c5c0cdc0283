add_executable(tcpstore_serve tcpstore_serve.c)
target_link_libraries(tcpstore_serve PRIVATE muster_flags muster_tcpstore)
set_target_properties(tcpstore_serve PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
if(Python3_FOUND)
  muster_script_test(compat_tcpstore
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/tcpstore_torch_test.py LABELS compat TIMEOUT 300)
endif()
