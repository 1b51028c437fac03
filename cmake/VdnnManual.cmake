# Writes what the command (VDNN) says of itself into FOLDER: the shells' completions and the man pages.
file(MAKE_DIRECTORY ${FOLDER}/man1)
foreach(shell bash zsh fish)
  execute_process(COMMAND ${VDNN} completion ${shell} OUTPUT_FILE ${FOLDER}/${shell} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
execute_process(COMMAND ${VDNN} manual --man ${FOLDER}/man1 COMMAND_ERROR_IS_FATAL ANY)
