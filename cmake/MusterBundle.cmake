# MUSTER_BUNDLE=ON: the launcher alone, with everything but glibc inside, and `ninja package` to make the archive
# muster-<version>-linux-<arch>.tar.gz. libzmq and libmicrohttpd are the archives of Debian's packages; what these refer to
# for transports and TLS that muster never uses is in launcher/bundle_absent.c instead of twelve more libraries.
enable_language(CXX) # libzmq is C++: the link needs libstdc++
add_compile_definitions(MUSTER_BUNDLE) # proto/base/library.h

function(muster_archive variable name package)
  find_library(${variable} lib${name}.a)
  if(NOT ${variable})
    message(FATAL_ERROR "lib${name}.a was not found: install ${package} (./dev bundle installs every package by name)")
  endif()
endfunction()
muster_archive(ZMQ_ARCHIVE zmq libzmq3-dev)
muster_archive(SODIUM_ARCHIVE sodium libsodium-dev)
muster_archive(BSD_ARCHIVE bsd libbsd-dev)
muster_archive(PROTOBUF_C_ARCHIVE protobuf-c libprotobuf-c-dev)
set(PROTOBUF_C_LINK ${PROTOBUF_C_ARCHIVE})
muster_archive(MICROHTTPD_ARCHIVE microhttpd libmicrohttpd-dev)

# muster_bundle_program(target): links it so, and packs it.
function(muster_bundle_program target)
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
  foreach(user muster_rendezvous_zmq muster_rendezvous_security muster_launcher_status) # behind these in the link
    target_link_libraries(${user} INTERFACE ${ZMQ_ARCHIVE} ${SODIUM_ARCHIVE} ${BSD_ARCHIVE} ${MICROHTTPD_ARCHIVE} muster_absent)
  endforeach()
  target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc -Wl,--gc-sections -Wl,--as-needed)
  install(TARGETS ${target} RUNTIME DESTINATION bin)
  install(CODE "file(CREATE_LINK muster \$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/bin/torchrun SYMBOLIC)")
  install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION share/doc/muster)
  foreach(package libzmq3-dev libsodium-dev libbsd-dev libprotobuf-c-dev libyaml-dev libjansson-dev libmicrohttpd-dev)
    if(EXISTS /usr/share/doc/${package}/copyright)
      install(FILES /usr/share/doc/${package}/copyright DESTINATION share/doc/muster/licences RENAME ${package})
    endif()
  endforeach()
  set(CPACK_GENERATOR TGZ)
  set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR})
  set(CPACK_PACKAGE_NAME muster)
  set(CPACK_PACKAGE_FILE_NAME muster-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
  set(CPACK_STRIP_FILES ON)
  set(CPACK_VERBATIM_VARIABLES ON)
  muster_packs_for_earlier_glibc()
  include(CPack)
endfunction()
