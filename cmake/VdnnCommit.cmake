# Each build runs this script. It writes OUTPUT, a header with the commit of the checkout in SOURCE, if the commit has
# changed. Without git or without a checkout, as in a tarball, the commit is "unknown".
set(commit unknown)
find_program(git git)
if(git AND EXISTS ${SOURCE}/.git)
  set(ENV{GIT_OPTIONAL_LOCKS} 0)
  execute_process(COMMAND ${git} -C ${SOURCE} describe --always --abbrev=12 --dirty --exclude=*
                  OUTPUT_VARIABLE text OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
  if(status EQUAL 0)
    set(commit ${text})
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#pragma once\n#define VDNN_COMMIT \"${commit}\"\n")
