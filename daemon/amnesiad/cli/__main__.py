"""``python -m amnesiad.cli`` is the command ``amnesia``, for where no script is on the path."""

import sys

from amnesiad.cli import main

sys.exit(main())
