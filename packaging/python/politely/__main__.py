"""`python -m politely` is the command `politely`."""

import os
import sys

from politely import find_binary

os.execv(find_binary(), ["politely", *sys.argv[1:]])
