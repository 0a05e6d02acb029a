"""`python -m minikv` is the `minikv` command."""

from minikv.cli import main

raise SystemExit(main())
