import sys

from vdnn.torch import door

try:
    print(door.build())
except door.CannotBuild as error:
    sys.exit(f"vdnn.torch: {error}")
